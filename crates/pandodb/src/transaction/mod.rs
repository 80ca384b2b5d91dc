//! Interactive transactions: read, think, write, and commit all of it or nothing (decision 068).

pub(crate) mod commit;
pub(crate) mod delete_range;
pub(crate) mod handle;
pub(crate) mod iter;
pub(crate) mod locks;
pub(crate) mod options;
pub(crate) mod precedence;
pub(crate) mod retry;
pub(crate) mod steps;
