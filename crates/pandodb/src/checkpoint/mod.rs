//! Checkpoints: the exact tree after all batches up to an LSN.

pub(crate) mod checks;
pub(crate) mod run;
