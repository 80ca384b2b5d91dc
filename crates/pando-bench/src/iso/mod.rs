//! `bench iso`: point reads of what is in memory, by more and more threads, each with a handle of
//! its own or all with one. What is lost from one number of threads to the next is what the engine
//! makes them wait for each other, and what the machine does not have.
//!
//! `options`: what is asked for; `run`: the turns.

mod options;
mod run;

pub use options::{IsoOptions, IsoVariant};
pub use run::run;
