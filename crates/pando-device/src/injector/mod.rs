//! Faults over any other device: its files are real, and their failures are planned.
//!
//! Plans and operations are those of the faulty directory in memory, without its crashes, since the
//! inner device stores what was written. Completions may also arrive late and in another order.
//!
//! Reading order: [`device`], `faults`, [`mod@file`], [`channel`].

pub mod channel;
pub mod device;
mod faults;
pub mod file;

pub use channel::InjectorChannel;
pub use device::InjectorDevice;
pub use file::InjectorFile;
