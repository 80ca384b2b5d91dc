//! A history by number: keys, who wrote what, who counts as committed.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use super::history::{
    Bounds, Level, Operation, Outcome, TableKey, Transaction, TransactionHistory,
};
use crate::failure::{Failure, Result};

/// A write of a key; of a list, an append.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// Index of its transaction.
    pub(super) transaction: usize,
    /// The value; none for a delete.
    pub(super) value: Option<u64>,
    /// Its transaction wrote the key later again.
    pub(super) is_intermediate: bool,
}

/// Writes of one key, those of a transaction in its order.
#[derive(Debug)]
pub(super) struct Writes<'h> {
    pub(super) key: &'h TableKey,
    pub(super) is_list: bool,
    pub(super) all: Vec<Write>,
    /// Where in `all` a value was written.
    pub(super) by_value: HashMap<u64, usize>,
}

/// A history whose transactions and keys have numbers.
#[derive(Debug)]
pub(super) struct Index<'h> {
    pub(super) transactions: &'h [Transaction],
    /// Level of each transaction.
    pub(super) levels: Vec<Level>,
    /// Who counts as committed.
    pub(super) committed: Vec<bool>,
    pub(super) keys: Vec<Writes<'h>>,
    numbers: BTreeMap<&'h TableKey, usize>,
}

impl<'h> Index<'h> {
    /// Reads `history`; transactions without a level have `level`.
    ///
    /// # Errors
    ///
    /// The history cannot have been recorded: see [`super::examine`].
    pub(super) fn new(history: &'h TransactionHistory, level: Level) -> Result<Self> {
        let transactions = &history.transactions[..];
        check_header(transactions)?;
        // Who has an LSN is committed, whatever its client was told.
        let outcome =
            |it: &Transaction| it.outcome == Outcome::Committed || it.commit_lsn.is_some();
        let mut index = Self {
            transactions,
            levels: (transactions.iter())
                .map(|it| it.level.unwrap_or(level))
                .collect(),
            committed: transactions.iter().map(outcome).collect(),
            keys: Vec::new(),
            numbers: BTreeMap::new(),
        };
        for (number, transaction) in transactions.iter().enumerate() {
            for operation in &transaction.operations {
                index.add(number, operation)?;
            }
        }
        Ok(index)
    }

    fn add(&mut self, transaction: usize, operation: &'h Operation) -> Result<()> {
        match operation {
            Operation::Read(key, _) => self.enter(key, false).map(|_| ()),
            Operation::ReadList(key, _) => self.enter(key, true).map(|_| ()),
            Operation::ReadRange(bounds, rows) => {
                for (key, _) in rows {
                    if !bounds.contains(key) {
                        return Err(Failure::new(format!("{key} is not of the range read")));
                    }
                    self.enter(key, false)?;
                }
                Ok(())
            }
            Operation::Write(key, value) => self.write(transaction, key, Some(*value), false),
            Operation::Delete(key) => self.write(transaction, key, None, false),
            Operation::Append(key, value) => self.write(transaction, key, Some(*value), true),
        }
    }

    fn enter(&mut self, key: &'h TableKey, is_list: bool) -> Result<usize> {
        let number = *self.numbers.entry(key).or_insert(self.keys.len());
        if number == self.keys.len() {
            self.keys.push(Writes {
                key,
                is_list,
                all: Vec::new(),
                by_value: HashMap::new(),
            });
        }
        if self.keys[number].is_list != is_list {
            return Err(Failure::new(format!("{key} is a list and a value")));
        }
        Ok(number)
    }

    fn write(
        &mut self,
        transaction: usize,
        key: &'h TableKey,
        value: Option<u64>,
        is_list: bool,
    ) -> Result<()> {
        let number = self.enter(key, is_list)?;
        let writes = &mut self.keys[number];
        if let Some(value) = value
            && writes.by_value.insert(value, writes.all.len()).is_some()
        {
            return Err(Failure::new(format!("{value} was written twice to {key}")));
        }
        // Transactions come one after the other, so an earlier write of this one is the last.
        if let Some(last) = writes.all.last_mut()
            && last.transaction == transaction
        {
            last.is_intermediate = true;
        }
        writes.all.push(Write {
            transaction,
            value,
            is_intermediate: false,
        });
        Ok(())
    }

    /// Returns the number of a key that occurs in the history.
    pub(super) fn number(&self, key: &TableKey) -> usize {
        self.numbers[key]
    }

    /// Returns the numbers of the keys of `bounds` that have values.
    pub(super) fn within(&self, bounds: &Bounds) -> impl Iterator<Item = usize> {
        let from = TableKey::new(bounds.table.as_str(), bounds.from.as_slice());
        let (keys, bounds) = (&self.keys, bounds.clone());
        self.numbers
            .range::<TableKey, _>((Bound::Included(&from), Bound::Unbounded))
            .take_while(move |(key, _)| bounds.contains(key))
            .map(|(_, number)| *number)
            .filter(|number| !keys[*number].is_list)
    }

    /// Returns who wrote `value` to a key.
    pub(super) fn writer(&self, key: usize, value: u64) -> Option<&Write> {
        let writes = &self.keys[key];
        let at = writes.by_value.get(&value)?;
        Some(&writes.all[*at])
    }

    /// Returns the name of a transaction.
    pub(super) fn id(&self, transaction: usize) -> u64 {
        self.transactions[transaction].id
    }
}

/// Checks what transactions say of themselves.
fn check_header(transactions: &[Transaction]) -> Result<()> {
    let (mut ids, mut lsns) = (HashSet::new(), HashSet::new());
    for it in transactions {
        let wrong = if !ids.insert(it.id) {
            "occurs twice"
        } else if it.completed.is_some_and(|completed| completed < it.invoked) {
            "ended before it began"
        } else if it.commit_lsn.is_some() && it.outcome == Outcome::Aborted {
            "was aborted and has the LSN of a commit"
        } else if it.commit_lsn.is_some_and(|lsn| !lsns.insert(lsn)) {
            "has the LSN of another commit"
        } else {
            continue;
        };
        return Err(Failure::new(format!("T{} {wrong}", it.id)));
    }
    Ok(())
}
