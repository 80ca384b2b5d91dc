//! Who may use the reserve of blocks (decision 058).

/// Page ids that only batches may take which delete, or drop and empty tables, so that those make
/// room in a store that has no other ids left. They reserve one for each page that they change.
pub(crate) const IDS_FOR_DELETES: u64 = 1024;

/// What a reservation of blocks is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// May use nothing of the reserve.
    No,
    /// Puts that make room, of a batch that deletes what is larger: three quarters of the reserve.
    /// A put may make a new page, so what is left is for deletes, which do not.
    FreesRoom,
    /// Deletes, and background work that removes pages: all of it.
    Deletes,
}

impl Urgency {
    /// Returns true if it may use some of the reserve.
    #[inline]
    pub(crate) fn is_urgent(self) -> bool {
        self != Self::No
    }

    /// Returns true if it may take page ids for which a merge of the mapping has no room: it makes
    /// no pages.
    #[inline]
    pub(crate) fn takes_last_ids(self) -> bool {
        self == Self::Deletes
    }

    /// Returns how much of a reserve it may not use.
    #[inline]
    pub(crate) fn leaves(self, reserve: u64) -> u64 {
        match self {
            Self::No => reserve,
            Self::FreesRoom => reserve / 4,
            Self::Deletes => 0,
        }
    }
}
