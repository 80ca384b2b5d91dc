//! The waits of those who hold something: only they can be in a cycle of waits.

use std::collections::HashMap;

use pando_sync::Arc;

use crate::locks::name::OwnerId;
use crate::locks::wait::LockWait;

/// The waits of owners that hold something, with the stripes of what they wait for.
#[derive(Debug, Default)]
pub(super) struct Graph(HashMap<OwnerId, (u32, Arc<LockWait>)>);

impl Graph {
    /// Adds the wait of `owner`.
    pub(super) fn begin(&mut self, owner: OwnerId, stripe: u32, wait: Arc<LockWait>) {
        let before = self.0.insert(owner, (stripe, wait));
        assert!(before.is_none(), "an owner waits once");
    }

    /// Removes the wait of `owner`, and returns it.
    pub(super) fn end(&mut self, owner: OwnerId) -> Option<(u32, Arc<LockWait>)> {
        self.0.remove(&owner)
    }

    /// Returns the wait of `owner`.
    pub(super) fn wait_of(&self, owner: OwnerId) -> Option<&(u32, Arc<LockWait>)> {
        self.0.get(&owner)
    }
}
