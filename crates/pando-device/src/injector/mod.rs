//! Faults over any other device: its files are real, what goes wrong with them is planned.
//!
//! Plans and operations are those of the faulty directory in memory, without its crashes: what was
//! written is the inner device's. Completions may also come late and in another order.
//!
//! Reading order: [`device`], `faults`, [`mod@file`], [`channel`].

pub mod channel;
pub mod device;
mod faults;
pub mod file;

pub use channel::InjectorChannel;
pub use device::InjectorDevice;
pub use file::InjectorFile;
