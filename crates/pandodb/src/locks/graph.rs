//! The waits of those who hold something: only they can be in a cycle of waits.

use std::collections::HashMap;

use pando_sync::Arc;

use crate::locks::name::OwnerId;
use crate::locks::wait::LockWait;

/// The wait of one owner.
#[derive(Debug)]
pub(super) struct Edge {
    /// None for a commit, which never gives up: its passes are taken away.
    pub(super) age: Option<OwnerId>,
    /// Stripe of what it waits for.
    pub(super) stripe: u32,
    pub(super) wait: Arc<LockWait>,
}

/// The waits of owners that hold something.
#[derive(Debug, Default)]
pub(super) struct Graph(HashMap<OwnerId, Edge>);

impl Graph {
    /// Adds the wait of `owner`.
    pub(super) fn begin(&mut self, owner: OwnerId, edge: Edge) {
        let before = self.0.insert(owner, edge);
        assert!(before.is_none(), "an owner waits once");
    }

    /// Removes the wait of `owner`, and returns it.
    pub(super) fn end(&mut self, owner: OwnerId) -> Option<Edge> {
        self.0.remove(&owner)
    }

    /// Returns the wait of `owner`.
    pub(super) fn wait_of(&self, owner: OwnerId) -> Option<&Edge> {
        self.0.get(&owner)
    }
}
