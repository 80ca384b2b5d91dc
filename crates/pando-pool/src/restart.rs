//! Reasons why a step did not finish: the engine's only control flow besides success and errors.

use pando_format::PageId;

/// Why a step did not finish. The step holds nothing any longer; its caller does what the reason
/// asks and starts the step again from the root. Never leaves the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a step that did not happen has to be tried again"]
pub enum Restart {
    /// A version check failed or a latch was taken.
    Conflict,
    /// The page is not in memory: the caller fetches it first.
    Fault(PageId),
    /// A resource is missing: the caller waits for it.
    Wait(Resource),
    /// The page is intact, but its content is inconsistent.
    Damaged(PageId, &'static str),
}

/// A resource that a step waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resource {
    /// A free frame: the cleaner makes some.
    Frames,
    /// A free image buffer, or the end of a frame's image in flight.
    Images,
    /// A page id: all ids that the memory budget allows are in use.
    PageIds,
}

/// Result of a step that may have to be started again.
pub type Attempt<T> = Result<T, Restart>;
