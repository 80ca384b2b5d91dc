//! Steps of a workload that read and write entries.

use pandodb::Batch;

use crate::history::Step;
use crate::kind::{self, options_of};
use crate::order::{self, Look, Seat, Tried};
use crate::state::{Effect, own_table, shared_table};
use crate::workload::worker::{OWN_TABLES, OrStop, VALUE_BYTES_MAX, Worker, wrong};

impl Worker {
    pub(super) fn put(&mut self) -> OrStop<()> {
        let table = self.table();
        let place = self.key(&table);
        let value = self.value();
        let (options, durable) = self.durability();
        let effects = vec![Effect::Put(place.clone(), value.clone())];
        self.commit(effects, durable, || {
            table.put_with(&place.1, &value, options)
        })
    }

    pub(super) fn delete(&mut self) -> OrStop<()> {
        let table = self.table();
        let place = self.key(&table);
        let (options, durable) = self.durability();
        let expected = self.history.now().get(&place).is_some();
        let effects = vec![Effect::Delete(place.clone())];
        // The delete of a missing entry commits nothing, so it promises nothing either.
        let existed = self.commit(effects, durable && expected, || {
            table.delete_with(&place.1, options)
        })?;
        if existed != expected {
            return wrong(format!("delete {place:?}: {existed}, expected {expected}"));
        }
        Ok(())
    }

    pub(super) fn update(&mut self) -> OrStop<()> {
        let table = self.table();
        let place = self.key(&table);
        let value = self.value();
        let old = self.history.now().get(&place).cloned();
        let durable = self.default_is_durable();
        let effects = vec![Effect::Put(place.clone(), value.clone())];
        let mut seen = None;
        let new = Some(value);
        if self.random.once_in(2) {
            self.commit(effects, durable, || {
                table.update(&place.1, |now| {
                    seen = now.map(<[u8]>::to_vec);
                    new.clone()
                })
            })?;
        } else {
            let done = self.commit(effects, durable, || {
                table.compare_and_put(&place.1, old.as_deref(), new.as_deref())
            })?;
            if !done {
                return wrong(format!("compare_and_put {place:?} found another value"));
            }
            seen.clone_from(&old);
        }
        if seen != old {
            return wrong(format!("update {place:?} saw another value than was put"));
        }
        Ok(())
    }

    /// Changes a part of a value, or appends to it.
    pub(super) fn edit(&mut self) -> OrStop<()> {
        let table = self.table();
        let place = self.key(&table);
        let bytes = self.value();
        let mut new = self.history.now().get(&place).cloned().unwrap_or_default();
        let offset = match self.random.once_in(2) || new.len() > VALUE_BYTES_MAX {
            true => self.random.index(new.len() + 1),
            false => new.len() + self.random.index(3000),
        };
        let end = offset + bytes.len();
        if bytes.is_empty() {
            return Ok(());
        }
        new.resize(new.len().max(end), 0);
        new[offset..end].copy_from_slice(&bytes);
        let len = new.len() as u64;
        let durable = self.default_is_durable();
        let effects = vec![Effect::Put(place.clone(), new)];
        let found = self.commit(effects, durable, || {
            table.put_range(&place.1, offset as u64, &bytes)
        })?;
        if found != len {
            return wrong(format!("edit {place:?}: {found} bytes, expected {len}"));
        }
        Ok(())
    }

    /// Continues to read a value that was opened some steps ago, or opens one.
    pub(super) fn read_slowly(&mut self) -> OrStop<()> {
        if let Some((mut reader, expected)) = self.reader.take() {
            let mut found = vec![0; usize::try_from(reader.len()).expect("short values")];
            let count = reader.read_at(0, &mut found)?;
            if count != found.len() || found != expected {
                return wrong("a reader saw another value than it had opened".into());
            }
        }
        let table = self.table();
        let place = self.key(&table);
        let found = table.get_reader(&place.1)?;
        let expected = self.history.now().get(&place);
        if found.is_some() != expected.is_some() {
            return wrong(format!("get_reader {place:?}: not what was put"));
        }
        self.reader = found.zip(expected.cloned());
        Ok(())
    }

    pub(super) fn batch(&mut self) -> OrStop<()> {
        let mut batch = Batch::new();
        let mut effects = Vec::new();
        let mut bytes = 0;
        for _ in 0..2 + self.random.below(18) {
            let table = self.table();
            let place = self.key(&table);
            if self.random.once_in(4) {
                batch.delete(&table, &place.1);
                effects.push(Effect::Delete(place));
                continue;
            }
            let value = self.value();
            bytes += value.len();
            batch.put(&table, &place.1, &value);
            effects.push(Effect::Put(place, value));
            if bytes > 2 * VALUE_BYTES_MAX {
                break;
            }
        }
        let (options, durable) = self.durability();
        let db = self.db.clone();
        self.commit(effects, durable, || db.write(&mut batch, options))
    }

    /// Reads what all threads have committed, and commits a record of that; see [`order`].
    pub(super) fn look(&mut self) -> OrStop<()> {
        let (thread, threads) = (self.history.thread, self.plan.threads);
        let name = shared_table(0);
        let options = options_of(self.plan.seed, &name);
        let table = self.db.table_with(&name, options)?;
        self.written += 1;
        let number = (self.plan.round + 1) << 32 | self.written;
        let seat = match &mut self.seat {
            Some(seat) => seat,
            none => none.insert(Seat::new(&self.db)?),
        };
        let start = self.shared.stamp();
        let Tried { value, end } = seat.commit(&table, threads, thread, number);
        if let Some(value) = value {
            self.history.push(Step {
                effects: vec![Effect::Put(order::place(thread), value)],
                start,
                end: end.is_ok().then(|| self.shared.stamp()),
                durable: false,
            });
            self.unknown = end.is_err().then_some(number);
        }
        let (lsn, read) = end?;
        self.looks.push(Look {
            lsn,
            thread,
            number,
            read,
        });
        Ok(())
    }

    pub(super) fn get(&mut self) -> OrStop<()> {
        let table = self.table();
        let place = self.key(&table);
        let found = table.get(&place.1)?;
        if found.as_ref() != self.history.now().get(&place) {
            return wrong(format!(
                "get {place:?}: {:?} bytes, not what was put",
                found.map(|value| value.len())
            ));
        }
        Ok(())
    }

    pub(super) fn scan(&mut self) -> OrStop<()> {
        let name = own_table(self.history.thread, self.random.index(OWN_TABLES));
        let Some(table) = self.db.existing_table(&name) else {
            return wrong(format!("{name} is not there"));
        };
        let mut found = table.iter().collect::<pandodb::Result<Vec<_>>>()?;
        if self.random.once_in(2) {
            found = table.iter().rev().collect::<pandodb::Result<Vec<_>>>()?;
            found.reverse();
        }
        let expected = self.history.now().table(&name);
        if !found
            .iter()
            .map(|(k, v)| (k, v))
            .eq(expected.map(|((_, k), v)| (k, v)))
        {
            return wrong(format!("scan of {name} found {} entries", found.len()));
        }
        let len = table.len();
        if len != found.len() as u64 {
            return wrong(format!(
                "{name} counts {len} entries, a scan {}",
                found.len()
            ));
        }
        kind::check(&table, &found)?;
        Ok(())
    }
}
