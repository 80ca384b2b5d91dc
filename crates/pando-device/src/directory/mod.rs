//! Files of a directory of the file system, and channels to them of three kinds.
//!
//! Opening, locking, alignment and blocking calls are the same for all back ends of channels: there
//! is one descriptor for each opening, which all share.
//!
//! Reading order: [`device`], [`choice`], `probe`, `making`, `lock`, `root`, [`mod@file`],
//! [`channel`], `system`.

pub mod channel;
pub mod choice;
pub mod device;
pub mod file;
mod lock;
mod making;
pub mod probe;
mod root;
mod system;

pub use channel::DirectoryChannel;
pub(crate) use choice::Notes;
pub use choice::{Backend, BackendChoice, PassedOver};
pub use device::{COMPLETION_THREADS_DEFAULT, DirectoryDevice, DirectoryOptions};
pub use file::DirectoryFile;
pub use probe::DirectIo;
