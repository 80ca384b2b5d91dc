//! The head of a large collection that the commands of a pipeline run read, one after the other: it
//! is read before the first of them, and once more behind the last (decision 119).
//!
//! A command without a transaction reads head, elements, and the head again: if that is unchanged,
//! all that it has read was so at each moment between the two. That is as true of the elements of
//! several commands between the same two reads. So the first one keeps the row of the key here, the
//! others find it here, and none looks at it again; who runs them does so at the end, before any of
//! their replies is shown, and takes all of them back if it is another one.

use pandodb::Lsn;

use crate::context::strings::Former;
use crate::data::keyspace::Row;
use crate::data::tree_head::TreeHead;

/// The row of a key whose collection is being read.
#[derive(Debug)]
pub(crate) struct ReadStretch {
    pub(super) key: Vec<u8>,
    pub(super) row: Vec<u8>,
    pub(super) head: TreeHead,
    /// The last swap of the table of elements, behind the first read of the row.
    pub(super) last_swap: Option<Lsn>,
    /// What the second command has found in the row.
    pub(super) found: Option<(Option<Row>, Former)>,
}

impl ReadStretch {
    /// The id of the collection.
    pub(crate) fn id(&self) -> u64 {
        self.head.id
    }

    /// Returns true if it is of this key, in the database of the session.
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        self.key == key
    }
}
