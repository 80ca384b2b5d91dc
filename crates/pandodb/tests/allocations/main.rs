//! Runs the count of allocations as a program of its own, without the test harness: all threads are
//! counted, also those of the engine, and the harness allocates when it prints.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod counted;
#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod flat;

fn main() {
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    {
        flat::mixed_load_leaves_nothing_behind();
        counted::gets_allocate_nothing();
    }
}
