//! Checkpoints that are kept for settled snapshots (decision 071).

pub(crate) mod cut;
pub(crate) mod cuts;
pub(crate) mod mapping;
pub(crate) mod pages;
pub(crate) mod run;
pub(crate) mod settled;
pub(crate) mod young;
