//! What a lock guards, and who may have it.

use pando_format::TreeId;

/// What a lock guards.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LockName {
    /// One key of a tree, whether it exists or not.
    Key(TreeId, Box<[u8]>),
    /// All commits into a tree, for a transaction that has lost too often.
    Table(TreeId),
    /// The turn of such a transaction: there is one of them at a time.
    Turn,
}

impl LockName {
    /// Returns the tree, if it guards something in one.
    pub(crate) fn tree(&self) -> Option<TreeId> {
        match self {
            Self::Key(tree, _) | Self::Table(tree) => Some(*tree),
            Self::Turn => None,
        }
    }

    /// Returns the key, if it guards one.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Key(_, key) => Some(key),
            Self::Table(_) | Self::Turn => None,
        }
    }

    /// Returns whether it guards this key.
    pub(super) fn is_key(&self, of: (TreeId, &[u8])) -> bool {
        matches!(self, Self::Key(tree, key) if (*tree, &**key) == of)
    }
}

/// Number of an owner. The age of an owner is such a number, too: of two, the one with the larger
/// number is younger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct OwnerId(pub(super) u64);
