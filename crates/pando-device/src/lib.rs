//! Files and completion-based devices: the only crate below `pandodb` with file system calls.
//!
//! A [`Device`] is a directory of named files. A [`File`] is read and written at offsets by
//! blocking calls. Requests of the hot path go through a [`Channel`], one for each event loop,
//! which owns the buffer of a request until its [`Completion`] is reaped. Dispatch is static:
//! generic code takes a `Device`, and [`AnyDevice`] chooses the back end at run time with a
//! `match`.
//!
//! | back end            | what it is                                                           |
//! |---------------------|----------------------------------------------------------------------|
//! | [`DirectoryDevice`] | files of a directory; channels by uring, libaio or a pool of threads  |
//! | [`MemoryDevice`]    | files in memory; nothing survives the process                        |
//! | [`NullDevice`]      | names and lengths only: measures the layers above                    |
//! | [`FaultyDevice`]    | files in memory with faults and crashes that a seed decides          |
//! | [`InjectorDevice`]  | faults over any of these                                             |
//! | [`TimedDevice`]     | counts and times what goes to any of these                           |
//! | [`OverlayDevice`]   | only reads any of these: what is written stays in memory             |
//!
//! This crate does not know the meaning of the bytes: no checksums, pages or log records.
//!
//! Reading order: [`device`], [`buffer`], [`read_context`], [`error`], [`directory`], [`uring`],
//! [`libaio`], [`pread`], `requests`, [`memory`], [`null`], [`faulty`], [`injector`], [`timed`],
//! [`overlay`], [`any`].

#![cfg_attr(
    test,
    expect(
        clippy::cast_possible_truncation,
        reason = "tests count in small numbers"
    )
)]

pub mod any;
pub mod buffer;
mod cast;
mod chunk;
mod completions;
pub mod device;
pub mod directory;
pub mod error;
mod eventfd;
pub mod faulty;
mod fork;
pub mod injector;
pub mod libaio;
pub mod memory;
mod name;
pub mod null;
pub mod overlay;
pub mod pread;
pub mod read_context;
mod requests;
pub mod timed;
pub mod uring;
#[cfg(test)]
mod waking_tests;

pub use any::{AnyChannel, AnyDevice, AnyFile};
pub use buffer::{IO_ALIGNMENT, IoBuf};
pub use device::{
    Channel, ChannelOptions, Completion, Create, Device, File, OpenOptions, REAP_MAX,
};
pub use directory::{
    Backend, BackendChoice, DirectIo, DirectoryDevice, DirectoryOptions, PassedOver,
};
pub use error::{Error, Lack, Result};
pub use faulty::FaultyDevice;
pub use injector::InjectorDevice;
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use overlay::OverlayDevice;
pub use read_context::ReadContext;
pub use timed::TimedDevice;
