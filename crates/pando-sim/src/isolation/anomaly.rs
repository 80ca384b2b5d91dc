//! What can be wrong with a history, and the words for it.

use std::fmt;

use super::history::{Level, TableKey};

/// A kind of anomaly. Those with a letter and a number, and G-single, are Adya's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Writes of transactions that are before and after each other.
    G0,
    /// A read of what an aborted transaction wrote.
    G1a,
    /// A read of what its writer overwrote itself.
    G1b,
    /// Transactions that see, or overwrite, each other in a circle.
    G1c,
    /// A circle in which one read is overtaken by a write.
    GSingle,
    /// A circle with several such reads, no two of them behind each other.
    GNonadjacent,
    /// Any other circle of reads of keys that were there, or were asked for by name.
    G2Item,
    /// Any other circle in which a range did not show a key that was written later.
    G2,
    /// A transaction overwrote what it had never seen of a key that it read.
    LostUpdate,
    /// A transaction that does not see its own write, or sees what it has yet to write.
    OwnRead,
    /// Two reads of one key in one transaction that differ.
    InternalRead,
    /// A read of what nobody wrote.
    Unwritten,
    /// A list that has an element twice.
    Repeated,
    /// Lists of which none is the beginning of the other, or of the order of commits.
    IncompatibleOrders,
    /// A read that is not of the state at the transaction's snapshot.
    SnapshotRead,
    /// A read that is not of the state right before the transaction's commit.
    CommitRead,
    /// A circle only by real time.
    RealTime,
}

impl Kind {
    /// Returns the lowest level at which it must not occur.
    pub fn forbidden_from(self) -> Level {
        match self {
            Self::G0
            | Self::G1a
            | Self::G1b
            | Self::G1c
            | Self::OwnRead
            | Self::Unwritten
            | Self::Repeated
            | Self::IncompatibleOrders => Level::ReadCommitted,
            Self::GSingle
            | Self::GNonadjacent
            | Self::LostUpdate
            | Self::InternalRead
            | Self::SnapshotRead => Level::Snapshot,
            Self::G2Item | Self::G2 | Self::CommitRead | Self::RealTime => Level::Serializable,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::G0 => "G0",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::G1c => "G1c",
            Self::GSingle => "G-single",
            Self::GNonadjacent => "G-nonadjacent",
            Self::G2Item => "G2-item",
            Self::G2 => "G2",
            Self::LostUpdate => "lost update",
            Self::OwnRead => "own read",
            Self::InternalRead => "internal read",
            Self::Unwritten => "unwritten value",
            Self::Repeated => "repeated element",
            Self::IncompatibleOrders => "incompatible orders",
            Self::SnapshotRead => "read beside the snapshot",
            Self::CommitRead => "read stale at commit",
            Self::RealTime => "real time",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// Who is in it; in a circle, in its order.
    pub transactions: Vec<u64>,
    /// Keys of it; none for real time.
    pub keys: Vec<TableKey>,
    /// The lowest level of those to whom something was promised that this breaks.
    pub judged: Level,
    /// The circle, or what was read and what should have been.
    pub text: String,
}

impl Anomaly {
    /// Says whether it breaks a promise, or is just what the level allows.
    pub fn is_forbidden(&self) -> bool {
        self.judged >= self.kind.forbidden_from()
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.text)
    }
}
