//! `bench report`: a report over the whole store beside writers. One thread scans all entries at a
//! snapshot, again and again, while others overwrite random keys of data larger than memory. Each
//! pass must find the entries of the snapshot's moment.
//!
//! `options`: what is asked for; `run`: the turns; `scan`: the passes; `memory`: what the process
//! takes.

mod memory;
mod options;
mod run;
mod scan;

pub use options::ReportOptions;
pub use run::run;
