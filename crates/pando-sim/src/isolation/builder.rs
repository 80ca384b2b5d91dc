//! Transactions that are written down in a line, for tests and recorders.

use super::history::{Bounds, Level, Operation, Outcome, TableKey, Transaction};

impl Transaction {
    /// A committed transaction without operations. It may have run at any time until others say
    /// more with [`Self::during`].
    pub fn new(id: u64) -> Self {
        Self {
            id,
            client: id,
            level: None,
            invoked: 0,
            completed: None,
            outcome: Outcome::Committed,
            commit_lsn: None,
            snapshot_lsn: None,
            operations: Vec::new(),
        }
    }

    /// Sets who ran it.
    #[must_use]
    pub fn client(self, client: u64) -> Self {
        Self { client, ..self }
    }

    /// Sets what it was promised.
    #[must_use]
    pub fn level(self, level: Level) -> Self {
        let level = Some(level);
        Self { level, ..self }
    }

    /// Sets when it began and when it had ended.
    #[must_use]
    pub fn during(self, invoked: u64, completed: u64) -> Self {
        let completed = Some(completed);
        Self {
            invoked,
            completed,
            ..self
        }
    }

    /// It is not committed.
    #[must_use]
    pub fn aborted(self) -> Self {
        let outcome = Outcome::Aborted;
        Self { outcome, ..self }
    }

    /// Nobody knows whether it is committed.
    #[must_use]
    pub fn unknown(self) -> Self {
        let outcome = Outcome::Unknown;
        Self { outcome, ..self }
    }

    /// Sets where its writes stand.
    #[must_use]
    pub fn commit(self, lsn: u64) -> Self {
        let commit_lsn = Some(lsn);
        Self { commit_lsn, ..self }
    }

    /// Sets up to which commit its reads see.
    #[must_use]
    pub fn snapshot(self, lsn: u64) -> Self {
        let snapshot_lsn = Some(lsn);
        Self {
            snapshot_lsn,
            ..self
        }
    }

    /// Adds any operation.
    #[must_use]
    pub fn then(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// It read `value`.
    #[must_use]
    pub fn read(self, key: impl Into<TableKey>, value: u64) -> Self {
        self.then(Operation::Read(key.into(), Some(value)))
    }

    /// It read that there is no such key.
    #[must_use]
    pub fn read_none(self, key: impl Into<TableKey>) -> Self {
        self.then(Operation::Read(key.into(), None))
    }

    /// It wrote `value`.
    #[must_use]
    pub fn write(self, key: impl Into<TableKey>, value: u64) -> Self {
        self.then(Operation::Write(key.into(), value))
    }

    /// It deleted the key.
    #[must_use]
    pub fn delete(self, key: impl Into<TableKey>) -> Self {
        self.then(Operation::Delete(key.into()))
    }

    /// It read the keys of a table from `from` up to `to`, and saw `rows`.
    #[must_use]
    pub fn range<const N: usize>(
        self,
        from: impl Into<TableKey>,
        to: impl Into<TableKey>,
        rows: [(&str, u64); N],
    ) -> Self {
        let TableKey { table, bytes } = from.into();
        let bounds = Bounds {
            table,
            from: bytes,
            to: Some(to.into().bytes),
        };
        let rows = rows.map(|(key, value)| (key.into(), value));
        self.then(Operation::ReadRange(bounds, rows.into()))
    }

    /// It appended `element`.
    #[must_use]
    pub fn append(self, key: impl Into<TableKey>, element: u64) -> Self {
        self.then(Operation::Append(key.into(), element))
    }

    /// It read a whole list.
    #[must_use]
    pub fn list<const N: usize>(self, key: impl Into<TableKey>, elements: [u64; N]) -> Self {
        self.then(Operation::ReadList(key.into(), elements.into()))
    }
}
