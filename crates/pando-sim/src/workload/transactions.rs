//! Steps of a workload beside the usual ones: transactions of many calls, with savepoints and
//! locks, beside checkpoints; other budgets; pages that are all written again.
//!
//! They draw from a generator of their own, so that the other choices of a seed do not change.

use std::collections::BTreeMap;
use std::mem;

use pandodb::{Error, Isolation, Savepoint, Table, Transaction, TransactionOptions};

use crate::history::Step;
use crate::state::{Effect, Place, own_table};
use crate::workload::worker::{OWN_TABLES, OrStop, Worker, wrong};

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::Snapshot,
    Isolation::Serializable,
];

/// What a transaction has written: a value, or a removal.
type Written = BTreeMap<Place, Option<Vec<u8>>>;

/// An open transaction, and what it is expected to see.
struct Open {
    transaction: Transaction,
    written: Written,
    savepoints: Vec<(Savepoint, Written)>,
}

/// What a call of a transaction came to.
enum Went {
    On,
    /// It has lost a conflict, and may be run again.
    Lost,
}

/// A conflict, or the end of its snapshot for want of room, is no fault of the store.
fn went(result: pandodb::Result<()>) -> OrStop<Went> {
    match result {
        Ok(()) => Ok(Went::On),
        Err(error) if error.is_conflict() => Ok(Went::Lost),
        Err(error) => Err(error.into()),
    }
}

impl Worker {
    /// Now and then does something beside the usual steps.
    pub(super) fn beside(&mut self) -> OrStop<()> {
        mem::swap(&mut self.random, &mut self.beside);
        let done = match self.random.below(40) {
            0..4 => self.transaction(),
            4 => self.budget(),
            5 if self.random.once_in(3) => self.rewrite(),
            _ => Ok(()),
        };
        mem::swap(&mut self.random, &mut self.beside);
        done
    }

    /// Gives the store another budget.
    fn budget(&mut self) -> OrStop<()> {
        let range = self.db.max_memory_range();
        let bytes = range.start() + self.random.below(range.end() - range.start() + 1);
        self.db.set_max_memory(bytes)?;
        Ok(())
    }

    fn transaction(&mut self) -> OrStop<()> {
        let level = LEVELS[self.random.index(LEVELS.len())];
        let options = TransactionOptions::default().isolation(level);
        let mut open = Open {
            transaction: self.db.begin(options)?,
            written: Written::new(),
            savepoints: Vec::new(),
        };
        for _ in 0..3 + self.random.below(20) {
            if let Went::Lost = self.call(&mut open)? {
                return Ok(());
            }
        }
        if self.random.once_in(4) {
            open.transaction.rollback();
            return Ok(());
        }
        self.end(open)
    }

    fn end(&mut self, open: Open) -> OrStop<()> {
        let effect = |(place, value): (Place, Option<Vec<u8>>)| match value {
            Some(value) => Effect::Put(place, value),
            None => Effect::Delete(place),
        };
        let effects: Vec<Effect> = open.written.into_iter().map(effect).collect();
        let start = self.shared.stamp();
        let result = open.transaction.commit();
        if matches!(&result, Err(error) if error.is_conflict()) {
            return Ok(());
        }
        let has_record = matches!(result, Ok(Some(_)));
        let is_full = matches!(result, Err(Error::Full { .. }));
        if !effects.is_empty() && !is_full {
            self.history.push(Step {
                effects,
                start,
                end: result.is_ok().then(|| self.shared.stamp()),
                durable: has_record && self.default_is_durable(),
            });
        }
        result?;
        Ok(())
    }

    fn call(&mut self, open: &mut Open) -> OrStop<Went> {
        let table = self.table();
        let place = self.key(&table);
        match self.random.below(20) {
            0..7 => {
                let value = self.value();
                let put = open.transaction.put(&table, &place.1, &value);
                open.written.insert(place, Some(value));
                went(put)
            }
            7..10 => {
                let delete = open.transaction.delete(&table, &place.1);
                open.written.insert(place, None);
                went(delete)
            }
            10..13 => self.look_in(open, &table, &place),
            13 => self.range_in(open),
            14 => went(open.transaction.lock(&table, &[&place.1])),
            15..17 => {
                let savepoint = open.transaction.savepoint();
                open.savepoints.push((savepoint, open.written.clone()));
                Ok(Went::On)
            }
            17..19 if !open.savepoints.is_empty() => {
                let at = self.random.index(open.savepoints.len());
                open.savepoints.truncate(at + 1);
                let (savepoint, written) = open.savepoints.pop().expect("it was chosen");
                open.transaction.rollback_to(savepoint)?;
                open.written = written;
                Ok(Went::On)
            }
            _ if self.random.once_in(3) => self.checkpoint().map(|()| Went::On),
            _ => Ok(Went::On),
        }
    }

    fn look_in(&mut self, open: &mut Open, table: &Table, place: &Place) -> OrStop<Went> {
        let found = match self.random.once_in(3) {
            true => open.transaction.get_for_update(table, &place.1),
            false => open.transaction.get(table, &place.1),
        };
        let found = match found {
            Ok(found) => found,
            Err(Error::InChunks) => return Ok(Went::On),
            Err(error) => return went(Err(error)),
        };
        let stored = || self.history.now().get(place).cloned();
        let expected = open.written.get(place).cloned().unwrap_or_else(stored);
        if found != expected {
            return wrong(format!("a transaction saw another value at {place:?}"));
        }
        Ok(Went::On)
    }

    /// Reads a whole table of this thread.
    fn range_in(&mut self, open: &mut Open) -> OrStop<Went> {
        let name = own_table(self.history.thread, self.random.index(OWN_TABLES));
        let Some(table) = self.db.existing_table(&name) else {
            return wrong(format!("{name} is not there"));
        };
        let mut expected: BTreeMap<_, _> = self.history.now().table(&name).collect();
        for (place, value) in open.written.iter().filter(|(place, _)| place.0 == name) {
            match value {
                Some(value) => expected.insert(place, value),
                None => expected.remove(place),
            };
        }
        let mut expected = expected.into_iter();
        for entry in open.transaction.iter(&table) {
            let (key, value) = match entry {
                Ok(entry) => entry,
                Err(error) => return went(Err(error)),
            };
            let next = expected.next();
            if next.is_none_or(|(place, wanted)| place.1 != key || *wanted != value) {
                return wrong(format!("a transaction saw another entry of {name}"));
            }
        }
        match expected.next() {
            None => Ok(Went::On),
            Some((place, _)) => wrong(format!("a transaction did not see {place:?}")),
        }
    }
}
