//! Steps of a workload that read at a snapshot.

use pandodb::{Error, Snapshot};

use crate::state::{State, own_table};
use crate::workload::worker::{OWN_TABLES, OrStop, Stop, Worker, wrong};

impl Worker {
    /// Begins a snapshot, or checks the one that there is, and ends it some time. What this thread
    /// has committed before is in it, and nobody else changes its entries.
    pub(super) fn read_at_snapshot(&mut self) -> OrStop<()> {
        let Some((snapshot, state)) = self.snapshot.take() else {
            let snapshot = match self.random.once_in(3) {
                true => self.db.snapshot_settled()?,
                false => self.db.snapshot()?,
            };
            self.snapshot = Some((snapshot, self.history.now().clone()));
            return Ok(());
        };
        match self.check(&snapshot, &state) {
            Err(Stop::Error(Error::SnapshotEnded)) => return Ok(()),
            checked => checked?,
        }
        if !self.random.once_in(4) {
            self.snapshot = Some((snapshot, state));
        }
        Ok(())
    }

    /// Compares an own table and an entry of a shared one with what they were.
    fn check(&mut self, snapshot: &Snapshot, state: &State) -> OrStop<()> {
        let name = own_table(self.history.thread, self.random.index(OWN_TABLES));
        match snapshot.table(&name) {
            Ok(table) => {
                let iter = snapshot.iter(&table);
                let mut found = match self.random.once_in(2) {
                    true => iter.collect::<pandodb::Result<Vec<_>>>()?,
                    false => iter.rev().collect::<pandodb::Result<Vec<_>>>()?,
                };
                found.sort_unstable();
                let expected = state.table(&name);
                let found = found.iter().map(|(key, value)| (key, value));
                if !found.eq(expected.map(|((_, key), value)| (key, value))) {
                    return wrong(format!("{name} was something else at a snapshot"));
                }
            }
            Err(Error::NoSuchTable { .. }) if !state.tables().contains(&name) => {}
            Err(Error::NoSuchTable { .. }) => {
                return wrong(format!("{name} was there at a snapshot"));
            }
            Err(error) => return Err(error.into()),
        }
        let table = self.table();
        let place = self.key(&table);
        let table = match snapshot.table(&place.0) {
            Err(Error::NoSuchTable { .. }) => return Ok(()),
            table => table?,
        };
        let found = snapshot.get(&table, &place.1)?;
        if found.as_ref() != state.get(&place) {
            let bytes = found.map(|value| value.len());
            return wrong(format!("{place:?} at a snapshot: {bytes:?} bytes"));
        }
        Ok(())
    }
}
