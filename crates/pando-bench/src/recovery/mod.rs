//! `bench recovery`: how fast a log is replayed, and how soon after a crash a read is answered.
//!
//! `options`: what is asked for; `run`: the log, the crash and the recovery.

mod options;
mod run;

pub use options::RecoveryOptions;
pub use run::run;
