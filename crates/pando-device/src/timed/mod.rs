//! A device that counts and times what passes to the device below: bytes, errors, the time of each
//! read, write and sync, and how many requests were in flight.
//!
//! A request's time is what its caller sees: from its submission to the reap that brings it back.
//! The clock is read twice for each, some 40 ns beside the microseconds of a request.

mod channel;
mod device;
mod file;

pub use channel::TimedChannel;
pub use device::TimedDevice;
pub use file::TimedFile;
