//! Reads that outlive the call that asked for them: read requests, and the engine thread that
//! serves them.
//!
//! A future or a scan that misses a page leaves a read request and goes on, or away. The read
//! thread owns a fetcher; it starts the reads of read requests, takes the completions and wakes
//! those who wait for the pages. So nobody depends on the one who asked: it may sleep for an hour,
//! block or end. A read request holds nothing but its place in the queue; the claim of a page
//! begins when its read does, and ends with it.
//!
//! Every read request ends with a wake of those who wait for the page, also when the page came by
//! another way, when it cannot be read, and when the store is closed.

pub(crate) mod ahead;
pub(crate) mod buffers;
pub(crate) mod debts;
pub(crate) mod lending;
pub(crate) mod point;
pub(crate) mod request;
pub(crate) mod thread;

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests;
