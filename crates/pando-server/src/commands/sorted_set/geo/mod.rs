//! Places on the earth: sorted sets whose scores are geohashes of 52 bits.

pub(in crate::commands) mod add;
mod arguments;
mod cells;
mod describe;
mod found;
pub(in crate::commands) mod look;
mod reply;
pub(in crate::commands) mod search;
