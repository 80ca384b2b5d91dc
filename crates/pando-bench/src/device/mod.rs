//! `bench device`: requests to the device alone, through the same channels that the engine uses.
//!
//! Reading order: [`options`], `content` (the file's contents, and how a read is checked), `file`
//! (filling and reusing it), `requests` (what a thread does), [`run`](mod@run).

pub(crate) mod content;
pub(crate) mod file;
pub mod options;
pub(crate) mod requests;
pub mod run;

pub use options::{DeviceOptions, DeviceWorkload};
pub use run::run;
