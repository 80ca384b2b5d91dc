//! Files of a directory, read by a pool of threads over shared descriptors: the back end that
//! works on every file system and every kernel.
//!
//! Reading order: [`directory`], [`mod@file`], [`pool`], `system`.

pub mod directory;
pub mod file;
pub mod pool;
mod system;

pub use directory::{COMPLETION_THREADS_DEFAULT, PreadDevice};
pub use file::PreadFile;
pub use pool::PreadChannel;
