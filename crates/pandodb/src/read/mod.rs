//! Point reads and read-ahead, and reads that outlive the call that asked for them: read requests,
//! and the engine thread that serves them (decision 012).
//!
//! A future or a scan that misses a page leaves a read request, and continues or goes away. The
//! read thread owns a fetcher: it starts the reads of read requests, takes their completions, and
//! wakes those that wait for the pages. So nothing depends on whoever asked, which may sleep for an
//! hour, block or end. A read request occupies nothing but its place in the queue; the page is
//! claimed when its read begins, and released when the read ends.
//!
//! Every read request ends with a wake-up of those that wait for the page, even if the page was
//! loaded by somebody else, if it cannot be read, or if the store is closed.

pub(crate) mod ahead;
pub(crate) mod at;
pub(crate) mod buffers;
pub(crate) mod counted;
pub(crate) mod debts;
pub(crate) mod kept_leaf;
pub(crate) mod lending;
pub(crate) mod merged_leaf;
pub(crate) mod point;
pub(crate) mod request;
pub(crate) mod sample;
pub(crate) mod thread;

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests;
