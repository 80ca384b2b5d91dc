//! Checkpoints: the exact state of all trees after all batches up to an LSN.

pub(crate) mod checks;
mod keep;
mod locked_files;
pub(crate) mod run;
mod settle;
