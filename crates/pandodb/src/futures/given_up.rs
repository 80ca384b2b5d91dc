//! Commits whose future is dropped while the helper has them. Who drops it may write the same keys
//! next: the commit must not come after that, and replace what was written.

use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, Ordering};

/// Kept by the future of a commit that the helper has. The commit looks at the flag with its
/// stripes held: whoever takes them after the drop, for another write, finds it committed, or it
/// never is.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Arc<AtomicBool>);

impl GivenUp {
    /// The flag that is set once the future is dropped: see `WriteSet::expect_unset`.
    pub(super) fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `WriteSet::is_flag_set`.
        self.0.store(true, Ordering::Release);
    }
}
