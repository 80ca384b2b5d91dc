//! Crashes, faults, damage and linearizability of whole stores.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]
#![cfg(not(any(pando_loom, pando_shuttle)))]
#![expect(clippy::unwrap_used, reason = "a test that meets an error has failed")]

mod compact;
mod crash;
mod damage;
mod data_size;
mod discards;
mod faults;
mod growth;
mod isolation;
mod large;
mod linear;
mod merge;
mod older;
mod restart;

/// Returns the amount of work that the environment variable `name` asks for, or `default`.
fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => default,
    }
}
