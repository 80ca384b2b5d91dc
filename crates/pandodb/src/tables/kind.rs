//! Kinds of tables: what the inner entries of their trees tell (decisions 079 and 117).

use pando_format::TreeId;

/// What the inner entries of the tree of a table tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TreeKind {
    /// No more than where the keys are.
    Plain,
    /// How many records are below.
    Counted,
    /// The sum of the weights of these.
    Weighted,
}

impl TreeKind {
    /// Returns the kind of `tree`.
    pub(crate) fn of(tree: TreeId) -> Self {
        match (tree.is_weighted(), tree.is_counted()) {
            (true, _) => Self::Weighted,
            (false, true) => Self::Counted,
            (false, false) => Self::Plain,
        }
    }

    /// Returns the id of the tree of this kind with this number.
    pub(crate) fn id(self, number: u32) -> TreeId {
        let plain = TreeId(number);
        match self {
            Self::Plain => plain,
            Self::Counted => plain.counted(),
            Self::Weighted => plain.weighted(),
        }
    }
}
