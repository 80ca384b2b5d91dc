//! FUNCTION, FCALL and FCALL_RO (decision 089).
//!
//! Reading order: `call` (a function is called), `metadata` (the first line of a library),
//! `register` (what functions a library has), `store` (libraries are rows), `load`, `list`,
//! `payload` (DUMP and RESTORE), `container` (the table of FUNCTION).

mod arguments;
mod call;
mod container;
mod list;
mod load;
mod metadata;
mod payload;
mod register;
mod store;

pub(crate) use call::COMMANDS;
pub(crate) use container::COMMANDS as CONTAINER;
