//! `bench iso`: point reads of cached data, by more and more threads, each with a table handle of
//! its own or all with one. If the speed does not grow with the threads, either they wait for each
//! other in the engine, or the machine is the limit.
//!
//! With levels, transactions take the place of the reads: the same ones at each level of isolation.
//! With snapshots, gets and puts do: the same ones with each kind of snapshot.
//!
//! `options`: what is asked for; `run`: the turns; `levels`: the transactions; `snapshots`: gets in
//! snapshots and puts beside them.

mod levels;
mod options;
mod run;
mod snapshots;

pub use options::{IsoLevel, IsoOptions, IsoSnapshots, IsoVariant};
pub use run::run;
