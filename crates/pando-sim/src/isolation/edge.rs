//! Dependencies between transactions.

use std::fmt;

/// Why one transaction comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Why {
    /// It wrote a version before the other did.
    Ww,
    /// It wrote what the other read.
    Wr,
    /// It read what the other overwrote.
    Rw,
    /// The same of a key that a range did not show.
    RwPredicate,
    /// It had ended before the other began.
    RealTime,
}

impl Why {
    /// Says whether it is a read that a write overtook.
    pub(super) fn is_rw(self) -> bool {
        matches!(self, Self::Rw | Self::RwPredicate)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ww => "ww",
            Self::Wr => "wr",
            Self::Rw => "rw",
            Self::RwPredicate => "rw of a range",
            Self::RealTime => "real time",
        })
    }
}

/// One dependency. Nodes are transactions, and behind them moments of real time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Edge {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) why: Why,
    /// The key; of no meaning for real time.
    pub(super) key: usize,
}
