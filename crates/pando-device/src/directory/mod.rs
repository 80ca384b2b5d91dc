//! Files of a directory of the file system, and channels to them of three kinds.
//!
//! Opening, locking, alignment and blocking calls are the same whatever serves the channels: one
//! descriptor for each opening, shared by all.
//!
//! Reading order: [`device`], [`choice`], `probe`, `lock`, [`mod@file`], [`channel`], `system`.

pub mod channel;
pub mod choice;
pub mod device;
pub mod file;
mod lock;
pub mod probe;
mod system;

pub use channel::DirectoryChannel;
pub(crate) use choice::Notes;
pub use choice::{Backend, BackendChoice, PassedOver};
pub use device::{COMPLETION_THREADS_DEFAULT, DirectoryDevice, DirectoryOptions};
pub use file::DirectoryFile;
pub use probe::DirectIo;
