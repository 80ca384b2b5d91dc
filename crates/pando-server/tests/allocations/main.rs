//! Runs the count of allocations as a program of its own, without the test harness: all threads are
//! counted, and the harness allocates when it prints.

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod counted;

fn main() {
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    counted::pipelined_gets_allocate_nothing();
}
