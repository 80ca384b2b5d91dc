//! A row of a large list, as far as a walk over it needs to know it.

use crate::data::keyspace::RowError;
use crate::data::list_block::Elements;

/// A row of a list.
pub(super) enum RowOf<'r> {
    /// The row, and its elements.
    Read(&'r [u8], Elements<'r>),
    /// A long element that is not the one that is looked for.
    Unread,
}

impl RowOf<'_> {
    /// Returns the number of its elements.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Read(_, elements) => elements.left(),
            Self::Unread => 1,
        }
    }

    /// Returns the places of `element` among those of the row.
    pub(super) fn matches(&self, element: &[u8]) -> Result<Vec<usize>, RowError> {
        let mut matches = Vec::new();
        if let Self::Read(_, elements) = self {
            let (mut elements, mut place) = (elements.clone(), 0);
            while let Some(other) = elements.next()? {
                if other == element {
                    matches.push(place);
                }
                place += 1;
            }
        }
        Ok(matches)
    }
}
