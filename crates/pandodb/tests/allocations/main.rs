//! Runs the count of allocations. A binary of its own, without the harness: the count is of all
//! threads, the engine's too, and the harness says something now and then.

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
