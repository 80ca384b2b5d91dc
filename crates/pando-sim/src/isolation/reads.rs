//! What transactions saw of others: each read without what is their own, and the anomalies that one
//! transaction shows by itself.

use std::collections::HashMap;

use super::anomaly::{Anomaly, Kind};
use super::history::{Operation, TableKey};
use super::index::Index;

/// What was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen<'h> {
    /// A value, or none.
    Value(Option<u64>),
    /// A list, without the reader's own elements at its end.
    List(&'h [u64]),
}

/// A read of what others have written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observation<'h> {
    pub(super) transaction: usize,
    pub(super) key: usize,
    pub(super) seen: Seen<'h>,
    /// The key was not asked for by name, and was not there.
    pub(super) is_predicate: bool,
}

/// What a transaction knows of a key so far.
#[derive(Debug, Default)]
struct KeyState<'h> {
    own: Option<Option<u64>>,
    own_list: Vec<u64>,
    seen: Option<Seen<'h>>,
}

struct Walk<'a, 'h> {
    index: &'a Index<'h>,
    transaction: usize,
    known: HashMap<usize, KeyState<'h>>,
    observations: Vec<Observation<'h>>,
    anomalies: Vec<Anomaly>,
}

/// Returns the observations of all transactions, one after the other, and anomalies of their own.
pub(super) fn walk<'h>(index: &Index<'h>) -> (Vec<Observation<'h>>, Vec<Anomaly>) {
    let mut walk = Walk {
        index,
        transaction: 0,
        known: HashMap::new(),
        observations: Vec::new(),
        anomalies: Vec::new(),
    };
    for (number, transaction) in index.transactions.iter().enumerate() {
        walk.transaction = number;
        walk.known.clear();
        for operation in &transaction.operations {
            walk.step(operation);
        }
    }
    (walk.observations, walk.anomalies)
}

impl<'h> Walk<'_, 'h> {
    fn step(&mut self, operation: &'h Operation) {
        let number = |key| self.index.number(key);
        match operation {
            Operation::Read(key, value) => self.value(number(key), *value, false),
            Operation::ReadList(key, elements) => self.list(number(key), elements),
            Operation::ReadRange(bounds, rows) => {
                let rows: HashMap<&TableKey, u64> =
                    rows.iter().map(|(key, it)| (key, *it)).collect();
                let index = self.index;
                for key in index.within(bounds) {
                    let value = rows.get(index.keys[key].key).copied();
                    self.value(key, value, value.is_none());
                }
            }
            Operation::Write(key, value) => self.knows(number(key)).own = Some(Some(*value)),
            Operation::Delete(key) => self.knows(number(key)).own = Some(None),
            Operation::Append(key, value) => self.knows(number(key)).own_list.push(*value),
        }
    }

    fn knows(&mut self, key: usize) -> &mut KeyState<'h> {
        self.known.entry(key).or_default()
    }

    fn value(&mut self, key: usize, value: Option<u64>, is_predicate: bool) {
        if let Some(own) = self.knows(key).own {
            if own != value {
                let text = format!("{} instead of its own {}", show(value), show(own));
                self.report(Kind::OwnRead, key, &text);
            }
        } else if value.is_some_and(|value| self.is_own(key, value)) {
            let text = format!("{}, which it writes only later", show(value));
            self.report(Kind::OwnRead, key, &text);
        } else {
            self.observe(key, Seen::Value(value), is_predicate);
        }
    }

    fn list(&mut self, key: usize, elements: &'h [u64]) {
        let Some(others) = elements.strip_suffix(&self.knows(key).own_list[..]) else {
            let text = format!(
                "{elements:?}, whose end is not its own {:?}",
                self.knows(key).own_list
            );
            return self.report(Kind::OwnRead, key, &text);
        };
        if let Some(own) = others.iter().find(|element| self.is_own(key, **element)) {
            let text = format!("{elements:?}, with its own {own} where that is not");
            return self.report(Kind::OwnRead, key, &text);
        }
        self.observe(key, Seen::List(others), false);
    }

    fn is_own(&self, key: usize, value: u64) -> bool {
        let writer = self.index.writer(key, value);
        writer.is_some_and(|write| write.transaction == self.transaction)
    }

    fn observe(&mut self, key: usize, seen: Seen<'h>, is_predicate: bool) {
        match self.knows(key).seen.replace(seen) {
            Some(before) if before == seen => return,
            Some(before) => {
                let text = format!("{}, and as {} before", shown(seen), shown(before));
                self.report(Kind::InternalRead, key, &text);
            }
            None => {}
        }
        self.observations.push(Observation {
            transaction: self.transaction,
            key,
            seen,
            is_predicate,
        });
    }

    fn report(&mut self, kind: Kind, key: usize, text: &str) {
        let (index, transaction) = (self.index, self.transaction);
        self.anomalies
            .push(of_read(index, kind, transaction, key, text));
    }
}

/// An anomaly of one read: `text` goes on where "T1 read t/key as" ends.
pub(super) fn of_read(
    index: &Index<'_>,
    kind: Kind,
    transaction: usize,
    key: usize,
    text: &str,
) -> Anomaly {
    let (id, key) = (index.id(transaction), index.keys[key].key);
    Anomaly {
        kind,
        transactions: vec![id],
        keys: vec![key.clone()],
        judged: index.levels[transaction],
        text: format!("T{id} read {key} as {text}"),
    }
}

/// Prints a value.
pub(super) fn show(value: Option<u64>) -> String {
    value.map_or_else(|| "absent".to_owned(), |value| value.to_string())
}

/// Prints what was seen.
pub(super) fn shown(seen: Seen<'_>) -> String {
    match seen {
        Seen::Value(value) => show(value),
        Seen::List(elements) => format!("{elements:?}"),
    }
}
