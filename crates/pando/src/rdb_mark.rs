//! What precedes anything but a key in an RDB file of Redis.

pub(crate) const SLOT: u8 = 244;
pub(crate) const LIBRARY: u8 = 245;
pub(crate) const OF_MODULE: u8 = 247;
pub(crate) const IDLE_TIME: u8 = 248;
pub(crate) const FREQUENCY: u8 = 249;
pub(crate) const AUXILIARY: u8 = 250;
pub(crate) const SIZES: u8 = 251;
pub(crate) const DEADLINE: u8 = 252;
pub(crate) const DEADLINE_IN_SECONDS: u8 = 253;
pub(crate) const DATABASE: u8 = 254;
pub(crate) const END: u8 = 255;
