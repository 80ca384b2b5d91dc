//! The pool against a device that is a map, and against itself under threads.

#![cfg(not(any(pando_loom, pando_shuttle)))]

mod pages;
mod rig;
mod stress;
