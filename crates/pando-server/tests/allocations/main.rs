//! Runs the count of allocations. A binary of its own, without the harness: the count is of all
//! threads, and the harness says something now and then.

#[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
mod counted;

fn main() {
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    counted::pipelined_gets_allocate_nothing();
}
