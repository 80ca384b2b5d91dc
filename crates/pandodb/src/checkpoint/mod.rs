//! Checkpoints: the exact state of all trees after all batches up to an LSN.

pub(crate) mod checks;
mod keep;
pub(crate) mod run;
mod settle;
