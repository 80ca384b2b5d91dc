//! Steps of a workload that concern whole tables or the store.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pandodb::{CompactProgress, CompactReport, Db, Error, Table};

use crate::state::{Effect, Place, own_table};
use crate::workload::worker::{OrStop, Worker, wrong};

/// Is told of each step of a compaction, and may end it.
type Progress<'p> = dyn FnMut(CompactProgress) -> ControlFlow<()> + 'p;

impl Worker {
    pub(super) fn checkpoint(&mut self) -> OrStop<()> {
        let start = self.shared.stamp();
        self.db.checkpoint()?;
        self.shared.synced.lock().push(start);
        Ok(())
    }

    /// Compacts, for some steps or to the end; only one thread does so at a time.
    pub(super) fn compact(&mut self) -> OrStop<()> {
        self.for_some_steps(|db, progress| db.compact(progress))
    }

    /// As [`Worker::compact`], but writes all pages again.
    pub(super) fn rewrite(&mut self) -> OrStop<()> {
        self.for_some_steps(|db, progress| db.rewrite(progress))
    }

    fn for_some_steps(
        &mut self,
        run: impl FnOnce(&Db, &mut Progress<'_>) -> pandodb::Result<CompactReport>,
    ) -> OrStop<()> {
        let start = self.shared.stamp();
        let mut steps = self.random.below(12);
        let report = run(&self.db, &mut |_| {
            steps = steps.saturating_sub(1);
            match steps {
                1 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        match report {
            Ok(report) if report.finished => self.shared.synced.lock().push(start),
            Ok(_) | Err(Error::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> OrStop<()> {
        let start = self.shared.stamp();
        self.db.flush()?;
        self.shared.synced.lock().push(start);
        Ok(())
    }

    pub(super) fn clear(&mut self) -> OrStop<()> {
        let mut names = vec![own_table(self.history.thread, 0)];
        if self.random.once_in(2) {
            names.push(own_table(self.history.thread, 1));
        }
        self.clear_all(names)
    }

    /// Empties a table and loads it, or gives up in the middle.
    pub(super) fn load(&mut self) -> OrStop<()> {
        let name = own_table(self.history.thread, 0);
        self.clear_all(vec![name.clone()])?;
        let Some(table) = self.db.existing_table(&name) else {
            return wrong(format!("{name} is not there"));
        };
        let mut entries = BTreeMap::new();
        for _ in 0..self.random.below(3 * self.plan.keys) {
            let place = self.key(&table);
            entries.insert(place, self.value());
        }
        let count = entries.len() as u64;
        let checkpoint_at = self.random.below(2 * count + 1);
        let db = self.db.clone();
        let fill = |count: u64| {
            let mut loader = table.loader()?;
            for (number, ((_, key), value)) in (0..count).zip(&entries) {
                loader.put(key, value)?;
                if number == checkpoint_at {
                    db.checkpoint()?;
                }
            }
            Ok::<_, Error>(loader)
        };
        if self.random.once_in(4) {
            drop(fill(self.random.below(count + 1))?);
            return Ok(());
        }
        let put = |(place, value): (&Place, &Vec<u8>)| Effect::Put(place.clone(), value.clone());
        let effects = entries.iter().map(put).collect();
        // A load of nothing makes nothing durable.
        let found = self.commit(effects, count > 0, || fill(count)?.finish())?;
        if found != count {
            return wrong(format!("{found} entries were loaded, {count} were put"));
        }
        Ok(())
    }

    pub(super) fn clear_all(&mut self, names: Vec<String>) -> OrStop<()> {
        let tables: Vec<Table> = names
            .iter()
            .filter_map(|name| self.db.existing_table(name))
            .collect();
        let effects = names.into_iter().map(Effect::Clear).collect();
        let (db, durable) = (self.db.clone(), self.default_is_durable());
        let all: Vec<&Table> = tables.iter().collect();
        self.commit(effects, durable, || db.clear_tables(&all))
    }

    /// Swaps two tables of this thread.
    pub(super) fn swap(&mut self) -> OrStop<()> {
        let numbers = [[0, 1], [1, 2], [2, 0]][self.random.index(3)];
        let names = numbers.map(|number| own_table(self.history.thread, number));
        let [first, second] = names.each_ref().map(|name| self.db.existing_table(name));
        let (Some(first), Some(second)) = (first, second) else {
            return wrong(format!("one of {names:?} is not there"));
        };
        let now = self.history.now();
        let mut effects: Vec<Effect> = names.iter().cloned().map(Effect::Clear).collect();
        for (from, to) in [(&names[0], &names[1]), (&names[1], &names[0])] {
            let put = |((_, key), value): (&Place, &Vec<u8>)| {
                Effect::Put((to.clone(), key.clone()), value.clone())
            };
            effects.extend(now.table(from).map(put));
        }
        let (db, durable) = (self.db.clone(), self.default_is_durable());
        self.commit(effects, durable, || db.swap_tables(&[(&first, &second)]))
    }

    pub(super) fn drop_table(&mut self) -> OrStop<()> {
        let name = own_table(self.history.thread, 2);
        let (db, durable) = (self.db.clone(), self.default_is_durable());
        if db.existing_table(&name).is_some() {
            let effects = vec![Effect::Drop(name.clone())];
            self.commit(effects, durable, || db.drop_table(&name))?;
        }
        self.create(name)
    }
}
