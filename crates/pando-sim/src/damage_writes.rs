//! A damaged store that opens is written to, and opened again, twice (decision 061).
//!
//! Whatever is refused is refused with an error that names the damage, and has not happened;
//! whatever was acknowledged exists, or its place is damaged. The store never stops accepting
//! writes, and a table that is created after the damage works like any other.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use pando_device::AnyDevice;
use pando_device::faulty::{CrashMode, FaultyDevice, Random};
use pandodb::{Batch, Db, Error, Table, VerifyReport, WriteOptions};

use crate::failure::{Failure, Result, fail};
use crate::state::Place;
use crate::store;

/// Name of a table that is created after the damage.
const AFTER: &str = "after";
const STEPS: u64 = 60;
const LIVES: u64 = 2;

/// What is known of each place; `None`: it could not be read.
type Known = BTreeMap<Place, Option<Option<Vec<u8>>>>;

struct Life<'a> {
    db: Db,
    known: &'a mut Known,
    /// Contents of the table that was created after the damage.
    after: &'a mut BTreeMap<Vec<u8>, Vec<u8>>,
    random: &'a mut Random,
}

/// Writes to the store in `device`, which was opened as `db`, and opens it again. `places` has all
/// places that were ever written.
///
/// # Errors
/// Something is lost, or an error has the wrong text.
pub(crate) fn live_on(
    seed: u64,
    db: Db,
    device: &FaultyDevice,
    places: impl Iterator<Item = Place>,
    random: &mut Random,
) -> Result<()> {
    let mut known = Known::new();
    for place in places {
        let value = look(&db, &place)?;
        known.insert(place, value);
    }
    let mut after = BTreeMap::new();
    let (mut db, mut device) = (db, device.clone());
    for _ in 0..LIVES {
        let mut life = Life {
            db,
            known: &mut known,
            after: &mut after,
            random,
        };
        for _ in 0..STEPS {
            life.step()?;
        }
        life.check()?;
        let db_now = life.db;
        if random.once_in(2) {
            db_now.close().map_err(said("closing it"))?;
        } else {
            db_now.flush().map_err(said("a flush"))?;
            let survivors = device.after_crash(random.below(1 << 30), CrashMode::RandomSubset);
            device.crash_now();
            drop(db_now);
            device = survivors;
        }
        VerifyReport::of_device(&AnyDevice::from(device.clone())).map_err(said("verify"))?;
        db = store::open(seed, &device).map_err(said("opening it again"))?;
        Life {
            db: db.clone(),
            known: &mut known,
            after: &mut after,
            random,
        }
        .check()?;
    }
    Ok(())
}

fn said(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// Returns the value at a place; `None` if the place is damaged.
fn look(db: &Db, (name, key): &Place) -> Result<Option<Option<Vec<u8>>>> {
    let Some(table) = db.existing_table(name) else {
        return Ok(Some(None));
    };
    match table.get(key) {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_corruption() => Ok(None),
        Err(error) => fail(format!("reading {name}: {error}")),
    }
}

impl Life<'_> {
    /// Returns true if the operation was done, false if it was refused for damage.
    fn done(what: &str, result: pandodb::Result<()>) -> Result<bool> {
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.is_corruption() => Ok(false),
            Err(error) => fail(format!("{what}: {error}")),
        }
    }

    fn place(&mut self) -> Option<Place> {
        let at = self.random.index(self.known.len().max(1));
        self.known.keys().nth(at).cloned()
    }

    fn table(&self, name: &str) -> Result<Table> {
        self.db.table(name).map_err(said("making a table"))
    }

    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(10) {
            0 => 60_000 + self.random.below(40_000),
            1..3 => 3000 + self.random.below(9000),
            _ => self.random.below(300),
        };
        let seed = self.random.below(1 << 40).to_le_bytes();
        seed.iter()
            .copied()
            .cycle()
            .take(usize::try_from(bytes).expect("short values"))
            .collect()
    }

    fn step(&mut self) -> Result<()> {
        match self.random.below(40) {
            0 => self.drop_table(),
            1 => self.clear_table(),
            2..4 => Self::done("a checkpoint", self.db.checkpoint()).and_then(|done| match done {
                true => Ok(()),
                false => fail("a checkpoint meets damage, which it has no need to read"),
            }),
            4 => {
                let compacted = self.db.compact(|_| ControlFlow::Continue(()));
                Self::done("a compaction", compacted.map(drop)).map(drop)
            }
            5..12 => self.put_after(),
            12..20 => self.batch(),
            20..28 => self.delete(),
            _ => self.put(),
        }
    }

    fn put_after(&mut self) -> Result<()> {
        let (key, value) = (self.random.below(50).to_le_bytes().to_vec(), self.value());
        let put = self.table(AFTER)?.put(&key, &value);
        put.map_err(said("writing to a table that is sound"))?;
        self.after.insert(key, value);
        Ok(())
    }

    fn put(&mut self) -> Result<()> {
        let Some(place) = self.place() else {
            return Ok(());
        };
        let value = self.value();
        let put = self.table(&place.0)?.put(&place.1, &value);
        if Self::done("a put", put)? {
            self.known.insert(place, Some(Some(value)));
        }
        Ok(())
    }

    fn delete(&mut self) -> Result<()> {
        let Some(place) = self.place() else {
            return Ok(());
        };
        let deleted = self.table(&place.0)?.delete(&place.1);
        let existed = deleted.as_ref().ok().copied();
        if Self::done("a delete", deleted.map(drop))? {
            let before = self.known.insert(place.clone(), Some(None)).flatten();
            if let (Some(before), Some(existed)) = (before, existed)
                && before.is_some() != existed
            {
                return fail(format!("a delete of {place:?} has found {existed}"));
            }
        }
        Ok(())
    }

    /// Puts and deletes at places of any table, more than a small pool holds at once.
    fn batch(&mut self) -> Result<()> {
        let (mut batch, mut writes) = (Batch::new(), BTreeMap::new());
        for _ in 0..1 + self.random.below(40) {
            if let Some(place) = self.place() {
                let value = (!self.random.once_in(4)).then(|| self.value());
                writes.insert(place, value);
            }
        }
        for ((name, key), value) in &writes {
            let table = self.table(name)?;
            match value {
                Some(value) => batch.put(&table, key, value),
                None => batch.delete(&table, key),
            }
        }
        let written = self.db.write(&mut batch, WriteOptions::default());
        if matches!(written, Err(Error::BatchTooLarge { .. })) {
            return Ok(());
        }
        if Self::done("a batch", written)? {
            let writes = writes.into_iter();
            self.known
                .extend(writes.map(|(place, value)| (place, Some(value))));
        }
        Ok(())
    }

    fn any_table(&mut self) -> Option<String> {
        let mut names = self.db.tables();
        names.retain(|name| name != AFTER);
        let at = self.random.index(names.len().max(1));
        names.into_iter().nth(at)
    }

    fn forget(&mut self, name: &str) {
        let of_table = self.known.iter_mut().filter(|((of, _), _)| of == name);
        of_table.for_each(|(_, known)| *known = Some(None));
    }

    fn drop_table(&mut self) -> Result<()> {
        let Some(name) = self.any_table() else {
            return Ok(());
        };
        if Self::done("a table is dropped", self.db.drop_table(&name))? {
            self.forget(&name);
        }
        Ok(())
    }

    fn clear_table(&mut self) -> Result<()> {
        let Some(name) = self.any_table() else {
            return Ok(());
        };
        let table = self.table(&name)?;
        if Self::done("a table is emptied", self.db.clear_tables(&[&table]))? {
            self.forget(&name);
        }
        Ok(())
    }

    /// Checks that everything is as it is known to be, or damaged.
    fn check(&self) -> Result<()> {
        if let Some(cause) = self.db.report().poisoned {
            return fail(format!("it takes no writes any more: {cause}"));
        }
        for (place, known) in self.known.iter() {
            let found = look(&self.db, place)?;
            if let (Some(found), Some(known)) = (found, known)
                && found != *known
            {
                let lengths = (found.map(|value| value.len()), known.as_ref().map(Vec::len));
                return fail(format!(
                    "{place:?} is not what was written: {lengths:?} bytes"
                ));
            }
        }
        let table = self.table(AFTER)?;
        for (key, value) in self.after.iter() {
            let found = table
                .get(key)
                .map_err(said("reading a table that is sound"))?;
            if found.as_ref() != Some(value) {
                return fail("a row that was written behind the damage is gone");
            }
        }
        match table.iter().count() == self.after.len() {
            true => Ok(()),
            false => fail("a table that is sound has other rows"),
        }
    }
}
