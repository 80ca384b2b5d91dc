//! A device that counts and times the requests to an inner device: bytes, errors, the time of each
//! read, write and sync, and the number of requests in flight.
//!
//! The time of a request is what its caller sees: from its submission to the reap that returns it.
//! The clock is read twice for each request, which takes some 40 ns, compared with microseconds for
//! a request.

mod channel;
mod device;
mod file;

pub use channel::TimedChannel;
pub use device::TimedDevice;
pub use file::TimedFile;
