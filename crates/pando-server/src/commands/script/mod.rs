//! EVAL, EVALSHA, their read-only forms, and SCRIPT (decision 084).
//!
//! Reading order: `eval` (a script is a command that calls commands), `shebang` (its first line;
//! `words` splits it), `call` (`redis.call`), `conversion` (between replies and values of Lua),
//! `container` (SCRIPT).

mod call;
mod container;
mod conversion;
pub(in crate::commands) mod eval;
mod shebang;
pub(in crate::commands) mod words;

pub(crate) use container::COMMANDS as CONTAINER;
pub(crate) use eval::{COMMANDS, named_only_reads};
pub(crate) use shebang::only_reads;
