//! What is asked of a transaction.

use pando_sync::time::Duration;

use crate::options::{Durability, WriteOptions};

/// Bytes of what a transaction remembers of its reads, unless set otherwise.
const READ_SET_BYTES: usize = 1 << 20;

/// What a transaction is protected from. The anomalies are those of Adya ("Weak Consistency: A
/// Generalized Theory and Optimistic Implementations for Distributed Transactions", 1999). No
/// transaction of any level sees what is not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// Each read sees what is committed when it is made, and a commit never conflicts. A range
    /// shows each leaf as it is when the range comes there, so it may show the later part of a
    /// batch without the earlier one. G0 and G1 do not happen. Lost updates, read skew and phantoms
    /// do.
    ReadCommitted,
    /// All reads see one moment, with the transaction's own writes on top: a moment during the
    /// first read, so that everything committed before that is seen. The commit fails if somebody
    /// has written since a key that the transaction writes. Lost updates and read skew (G-single)
    /// do not happen. Write skew (G2) does.
    Snapshot,
    /// Transactions behave as if they had run one after the other, in the order of their LSNs,
    /// which is in keeping with real time. All reads see one moment, as with
    /// [`Isolation::Snapshot`]. The commit fails if somebody has written since into something that
    /// the transaction has read: a key, or a range as far as it was read. Writes without reads
    /// never conflict.
    #[default]
    Serializable,
}

/// Options of a transaction: by default serializable, and acknowledged as the store's other writes
/// are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    pub(crate) isolation: Isolation,
    pub(crate) write: WriteOptions,
    pub(crate) read_set_bytes: usize,
    /// None: as the store says.
    pub(crate) lock_timeout: Option<Duration>,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        Self {
            isolation: Isolation::default(),
            write: WriteOptions::default(),
            read_set_bytes: READ_SET_BYTES,
            lock_timeout: None,
        }
    }
}

impl TransactionOptions {
    /// Sets the isolation level.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// Sets what is guaranteed when the commit returns; unless set, that is the durability of the
    /// store.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.write.durability = Some(durability);
        self
    }

    /// Sets how long the transaction waits for a lock of another one, and its commit for keys that
    /// others have locked; unless set, as long as other writes of the store
    /// ([`Builder::lock_timeout`](crate::Builder::lock_timeout)).
    #[must_use]
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.lock_timeout = Some(timeout);
        self
    }

    /// Sets how many bytes a serializable transaction uses to remember what it has read, 1 MiB
    /// unless set. A transaction that reads more remembers ranges that have neighbouring keys
    /// between them: then a write to a key that it has not read may be a conflict, too, and if such
    /// a key is written all the time, every repetition may meet one.
    #[must_use]
    pub fn read_set_bytes(mut self, bytes: usize) -> Self {
        self.read_set_bytes = bytes;
        self
    }
}
