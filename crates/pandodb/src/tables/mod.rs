//! Tables in memory: names, trees, numbers of entries.

pub(crate) mod counts;
pub(crate) mod kind;
pub(crate) mod state;
