//! A device that is only read, under writes that are kept in memory: whoever uses it may write,
//! allocate, rename and remove, and the inner device never learns of it (decision 147).
//!
//! This is the only place that promises that: no method of the inner device that changes anything
//! is called in this folder, and its files are opened for reading.
//!
//! Reading order: `content`, [`device`], [`mod@file`], [`channel`].

pub mod channel;
mod content;
pub mod device;
pub mod file;

pub use channel::OverlayChannel;
pub use device::OverlayDevice;
pub use file::OverlayFile;
