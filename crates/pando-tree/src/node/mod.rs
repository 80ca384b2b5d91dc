//! Nodes: leaves and inner nodes in a page, as `pando_format::page` lays them out.
//!
//! Pure functions over words, without latches and without the pool. Reading order: [`view`],
//! [`slot`], [`text`], [`search`], [`list`], [`edit`], [`cut`], [`course`], [`check`].

pub mod check;
pub mod course;
pub mod cut;
pub mod edit;
pub mod list;
pub mod search;
pub mod slot;
pub mod text;
pub mod view;

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests;
