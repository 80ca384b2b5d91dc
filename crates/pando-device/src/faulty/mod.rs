//! Files in memory that fail and crash as a seed and a list of plans decide.
//!
//! For every file there is what programs see, what is durable, and the changes between the two.
//! A crash throws away an arbitrary part of those changes, sector by sector; what remains is a new
//! device. Names behave alike: made and removed ones are durable after `sync_directory` only.
//! A process that ends while the kernel goes on leaves all three to the next one.
//!
//! ```text
//! write, set_len, allocate, punch          sync                     crash
//!   program ----> seen content ... changes ----> durable content ... changes ----> survivors
//!   next process <---- seen content, durable content, changes: an exit
//! ```
//!
//! Nothing depends on time or on the addresses of memory: one thread that does the same over the
//! same seed meets the same faults.
//!
//! Reading order: [`device`], `directory`, [`plan`], `state`, `image`, [`mod@file`], [`channel`],
//! [`random`].

pub mod channel;
pub mod device;
mod directory;
pub mod file;
mod image;
pub mod plan;
pub mod random;
mod state;

pub use channel::FaultyChannel;
pub use device::FaultyDevice;
pub use file::FaultyFile;
pub use image::{CrashMode, SECTOR_BYTES};
pub use plan::{Fault, FaultPlan, Operation};
pub use random::Random;
pub use state::ContextsSeen;
