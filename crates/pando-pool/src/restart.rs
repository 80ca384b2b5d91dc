//! Why a step could not go on: the engine's only control flow besides success and errors.

use pando_format::PageId;

/// A step that could not go on holds nothing; its caller does what the reason asks and starts it
/// again from the root. Never leaves the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a step that did not happen has to be tried again"]
pub enum Restart {
    /// A version check failed or a latch was taken.
    Conflict,
    /// The page is not in memory: fetch it first.
    Fault(PageId),
    /// Something must come first.
    Wait(Resource),
    /// The page is whole, but what it says cannot be.
    Damaged(PageId, &'static str),
}

/// What a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// A free frame: the cleaner makes some.
    Frames,
    /// A free image buffer, or the end of a frame's image in flight.
    Images,
    /// A page id: the page table is as large as the memory budget allows.
    PageIds,
}

/// Result of a step that may have to be started again.
pub type Attempt<T> = Result<T, Restart>;
