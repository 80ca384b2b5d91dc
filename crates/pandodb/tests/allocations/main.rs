//! Runs the count of allocations as a program of its own, without the test harness: all threads are
//! counted, also those of the engine, and the harness allocates when it prints. As for the harness,
//! `--skip TEXT` leaves out the tests whose names contain TEXT.

#![expect(
    clippy::cast_possible_truncation,
    reason = "tests count in small numbers"
)]

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod counted;
#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod flat;
#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod kept;

fn main() {
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    {
        let tests: [(&str, fn()); 3] = [
            (
                "flat::mixed_load_leaves_nothing_behind",
                flat::mixed_load_leaves_nothing_behind,
            ),
            (
                "counted::gets_allocate_nothing",
                counted::gets_allocate_nothing,
            ),
            (
                "kept::threads_keep_little_of_what_was_large",
                kept::threads_keep_little_of_what_was_large,
            ),
        ];
        for (name, test) in tests {
            if !is_skipped(name) {
                test();
            }
        }
    }
}

/// Returns true if the arguments leave out this test.
#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
fn is_skipped(name: &str) -> bool {
    let before = std::env::args();
    let pairs = before.zip(std::env::args().skip(1));
    pairs
        .filter(|(flag, _)| flag == "--skip")
        .any(|(_, text)| name.contains(&text))
}
