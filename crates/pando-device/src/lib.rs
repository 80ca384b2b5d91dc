//! Files and completion-based devices: the only crate below `pandodb` with file system calls.
//!
//! A [`Device`] is a directory of named files. A [`File`] is read and written at offsets, blocking;
//! requests of the hot path go through a [`Channel`], one for each event loop, which owns the
//! buffer of a request until its [`Completion`] is reaped. Dispatch is static: generic code takes
//! a `Device`, and [`AnyDevice`] chooses the back end at run time with a `match`.
//!
//! | back end           | what it is                                                           |
//! |--------------------|----------------------------------------------------------------------|
//! | [`PreadDevice`]    | files of a directory, a pool of threads that read; works everywhere  |
//! | [`MemoryDevice`]   | files in memory; nothing survives the process                        |
//! | [`FaultyDevice`]   | files in memory with faults and crashes that a seed decides          |
//!
//! Nothing here knows what the bytes mean: no checksum, no page, no log record.
//!
//! Reading order: [`device`], [`buffer`], [`read_context`], [`error`], [`memory`], [`pread`],
//! [`faulty`], [`any`].

pub mod any;
pub mod buffer;
mod completions;
pub mod device;
pub mod error;
pub mod faulty;
pub mod memory;
mod name;
pub mod pread;
pub mod read_context;

pub use any::{AnyChannel, AnyDevice, AnyFile};
pub use buffer::{IO_ALIGNMENT, IoBuf};
pub use device::{
    Channel, ChannelOptions, Completion, Create, Device, File, OpenOptions, REAP_MAX,
};
pub use error::{Error, Result};
pub use faulty::FaultyDevice;
pub use memory::MemoryDevice;
pub use pread::PreadDevice;
pub use read_context::ReadContext;
