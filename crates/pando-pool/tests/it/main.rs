//! The pool over a device that is a map, with one thread and with many.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]
#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod checked_images;
mod chunks;
mod pages;
mod parked;
mod rig;
mod stress;
mod wiring;
