//! Examining a store on disk: is it sound, and how full are its pages?

pub(crate) mod chunks;
pub(crate) mod pages;
pub(crate) mod run;
pub(crate) mod stat;
pub(crate) mod tree_stat;
pub(crate) mod walk;
