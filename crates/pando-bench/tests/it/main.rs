//! Runs every workload of every layer with tiny inputs, so that all of them keep working.

#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

mod ablation;
mod device;
mod html;
mod iso;
mod kv;
mod notes;
mod pool;
mod recovery;
mod report;
mod resp;
