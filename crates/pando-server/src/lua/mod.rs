//! Lua, as scripts see it: a state with bounds, and the libraries that Redis has (decision 084).
//!
//! Nothing here knows of commands or data: who runs a script hands in what answers its calls
//! ([`Calls`]). Reading order: [`guard`] (what bounds a run), [`machine`] (a state, and a run of a
//! script), [`running`] (what comes and goes in a run), `sandbox.lua` (what a script sees),
//! [`native`] (how its native functions are called), [`redis`], [`numbers`] and [`random`];
//! [`strings`] and [`pattern`] (searches that can be ended); [`json`], [`message_pack`] and
//! [`structure`] (the libraries `cjson`, `cmsgpack` and `struct`).

#[cfg(panic = "abort")]
compile_error!(
    "scripts need `panic = \"unwind\"`: errors of Lua unwind through functions of Rust. Set it in the \
     profile, or leave out the feature `scripts`"
);

mod decimal;
mod guard;
mod json;
mod json_decode;
mod json_encode;
mod json_settings;
mod machine;
mod message_pack;
mod message_unpack;
mod native;
mod numbers;
mod pattern;
mod random;
mod redis;
mod running;
#[cfg(test)]
mod search_tests;
mod strings;
mod structure;
mod structure_format;

pub(crate) use guard::{Ending, Failure, Guard, Limits};
pub(crate) use machine::{Buffers, Chunk, LibraryLimits, Machine, Outcome};
pub(crate) use native::until_zero;
pub(crate) use redis::{hex, sha1_of};
pub(crate) use running::{Asked, Calls, Entry};
