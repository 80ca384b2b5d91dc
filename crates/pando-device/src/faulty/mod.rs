//! Files in memory whose failures and crashes a seed and a list of plans decide.
//!
//! Every file has the content that programs see, the durable content, and the changes between the
//! two. A crash drops an arbitrary part of those changes, sector by sector, and the rest makes a
//! new device. Names behave in the same way: making and removing them is durable only after
//! `sync_directory`. A process that ends while the kernel continues leaves all three to the next
//! one.
//!
//! ```text
//! write, set_len, allocate, punch          sync                     crash
//!   program ----> seen content ... changes ----> durable content ... changes ----> survivors
//!   next process <---- seen content, durable content, changes: an exit
//! ```
//!
//! Nothing depends on time or on memory addresses: one thread that does the same operations with
//! the same seed sees the same faults.
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
