//! A recorded history: what clients asked of transactions, and what they were told.
//!
//! Values written to one key, and elements appended to one, are unique, so that a read says whose
//! write it saw. The store is empty before the history. Times come from one clock.

use std::fmt;

/// What a transaction was promised. A later one promises all that an earlier one does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Reads see what is committed.
    ReadCommitted,
    /// Reads see one state, and nobody overwrites what was read and written.
    Snapshot,
    /// As if one ran after the other, in an order that real time allows.
    Serializable,
}

/// How a transaction ended, as far as its client knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store said that it is committed.
    Committed,
    /// The store said that it is not, and never will be.
    Aborted,
    /// Nobody said anything: it counts as committed once somebody who is has seen a write of it.
    Unknown,
}

/// A key of a table.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableKey {
    /// Its table.
    pub table: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl TableKey {
    /// Names the key `bytes` of `table`.
    pub fn new(table: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            table: table.into(),
            bytes: bytes.into(),
        }
    }
}

impl From<&str> for TableKey {
    /// `"table/key"`.
    fn from(text: &str) -> Self {
        let (table, bytes) = text.split_once('/').unwrap_or(("", text));
        Self::new(table, bytes)
    }
}

impl fmt::Display for TableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table, self.bytes.escape_ascii())
    }
}

/// Keys of one table from the first on, the last excluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// The table.
    pub table: String,
    /// The first key that belongs to it.
    pub from: Vec<u8>,
    /// The first key that does not any more; none: all others do.
    pub to: Option<Vec<u8>>,
}

impl Bounds {
    /// Says whether `key` lies in it.
    pub fn contains(&self, key: &TableKey) -> bool {
        let below = self.to.as_ref().is_none_or(|to| key.bytes < *to);
        key.table == self.table && key.bytes >= self.from && below
    }
}

/// One operation with its result. A key has either values or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Read a value, or that there is none.
    Read(TableKey, Option<u64>),
    /// Wrote a value, unique for its key.
    Write(TableKey, u64),
    /// Deleted a key.
    Delete(TableKey),
    /// Read a range: all keys of it that were there, in any order.
    ReadRange(Bounds, Vec<(TableKey, u64)>),
    /// Appended an element, unique for its key, to a list.
    Append(TableKey, u64),
    /// Read a whole list; one that is not there is empty.
    ReadList(TableKey, Vec<u64>),
}

/// What one transaction did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// Its name, unique in the history.
    pub id: u64,
    /// Who ran it.
    pub client: u64,
    /// What it was promised; none: what the check says.
    pub level: Option<Level>,
    /// Time before its first operation.
    pub invoked: u64,
    /// Time after it ended, if that is known.
    pub completed: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// Where its writes stand in the order of commits, if that is known and it wrote anything.
    /// Every commit has its own.
    pub commit_lsn: Option<u64>,
    /// Its reads see all commits up to this one, if that is known.
    pub snapshot_lsn: Option<u64>,
    /// What it did, in its own order.
    pub operations: Vec<Operation>,
}

/// Transactions, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransactionHistory {
    /// Them.
    pub transactions: Vec<Transaction>,
}

impl<const N: usize> From<[Transaction; N]> for TransactionHistory {
    fn from(transactions: [Transaction; N]) -> Self {
        Self {
            transactions: transactions.into(),
        }
    }
}
