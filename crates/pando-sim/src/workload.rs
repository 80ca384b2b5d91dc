//! Threads that do random things to a store, and records of what they did.
//!
//! Every thread writes its own entries, in its own tables and in shared ones, checks what it reads
//! against its records, and stops at the first error, which the caller judges.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use pando_device::faulty::Random;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::{Arc, Mutex, thread};
use pandodb::{Batch, Db, Durability, Error, Table, ValueStream, WriteOptions};

use crate::failure::{Failure, Result};
use crate::history::{History, Step};
use crate::order::{self, Look, Seat, Tried};
use crate::state::{Effect, Place, State, own_table, shared_table};
use crate::store::is_durable_by_default;

/// Number of tables of each thread, and of tables that all threads share.
const OWN_TABLES: usize = 3;
const SHARED_TABLES: usize = 2;
/// Longest value of a workload.
const VALUE_BYTES_MAX: u64 = 30_000;

/// What to do.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Decides everything except the schedule.
    pub seed: u64,
    /// Tells the workloads on one store apart.
    pub round: u64,
    /// Number of threads.
    pub threads: usize,
    /// Number of steps of each thread.
    pub steps: usize,
    /// Number of keys of each thread in each table.
    pub keys: u64,
}

impl Plan {
    /// Returns a plan for `seed`, with one to three threads.
    pub fn of_seed(seed: u64, steps: usize) -> Self {
        let mut random = Random::new(seed).part(0x91a5);
        let threads = if random.once_in(2) {
            1
        } else {
            2 + random.index(2)
        };
        Self {
            seed,
            round: 0,
            threads,
            steps: steps / threads,
            keys: 20 + random.below(200),
        }
    }
}

/// Result of a run.
#[derive(Debug)]
pub struct Run {
    /// What each thread has committed.
    pub histories: Vec<History>,
    /// Stamps at which calls began that made everything before them durable.
    pub synced: Vec<u64>,
    /// The errors at which threads stopped.
    pub errors: Vec<Error>,
    /// Number of commits that were refused for lack of space.
    pub refused: usize,
}

#[derive(Debug, Default)]
struct Shared {
    clock: AtomicU64,
    synced: Mutex<Vec<u64>>,
}

impl Shared {
    fn stamp(&self) -> u64 {
        // AcqRel: stamps order calls of different threads.
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Runs `plan` on top of `initial` (by thread; missing threads are empty).
///
/// # Errors
/// A read contradicts what the thread has committed.
pub fn run(db: &Db, plan: Plan, initial: &[State]) -> Result<Run> {
    let shared = Arc::new(Shared::default());
    let workers: Vec<_> = (0..plan.threads)
        .map(|thread| {
            let initial = initial.get(thread).cloned().unwrap_or_default();
            let worker = Worker::new(db.clone(), plan, History::new(thread, initial), &shared);
            thread::spawn(move || worker.work(plan.steps))
        })
        .collect();
    let mut run = Run {
        histories: Vec::new(),
        synced: Vec::new(),
        errors: Vec::new(),
        refused: 0,
    };
    let mut failure = None;
    let (mut looks, mut unknown) = (Vec::new(), BTreeSet::new());
    for worker in workers {
        match worker.join() {
            Ok((worker, end)) => {
                let thread = worker.history.thread;
                looks.extend(worker.looks);
                unknown.extend(worker.unknown.map(|number| (thread, number)));
                run.histories.push(worker.history);
                run.refused += worker.refused;
                match end {
                    Ok(()) => {}
                    Err(Stop::Error(error)) => run.errors.push(error),
                    Err(Stop::Failure(found)) => failure = Some(found),
                }
            }
            Err(_) => failure = Some(Failure::new("a thread of the workload panicked")),
        }
    }
    run.synced.append(&mut shared.synced.lock());
    if let Some(failure) = failure {
        return Err(failure);
    }
    order::check_live(looks, initial, &unknown)?;
    Ok(run)
}

enum Stop {
    Error(Error),
    Failure(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

type End<T> = std::result::Result<T, Stop>;

fn wrong<T>(what: String) -> End<T> {
    Err(Stop::Failure(Failure::new(what)))
}

struct Worker {
    db: Db,
    plan: Plan,
    random: Random,
    history: History,
    shared: Arc<Shared>,
    tables: Vec<Table>,
    written: u64,
    refused: usize,
    /// A value that was opened some steps ago, and its expected contents.
    reader: Option<(ValueStream, Vec<u8>)>,
    seat: Option<Seat>,
    /// Commits that have read what others committed, and the number of the one without an outcome.
    looks: Vec<Look>,
    unknown: Option<u64>,
}

impl Worker {
    fn new(db: Db, plan: Plan, history: History, shared: &Arc<Shared>) -> Self {
        Self {
            db,
            plan,
            random: Random::new(plan.seed).part(plan.round * 1000 + 100 + history.thread as u64),
            history,
            shared: shared.clone(),
            tables: Vec::new(),
            written: 0,
            refused: 0,
            reader: None,
            seat: None,
            looks: Vec::new(),
            unknown: None,
        }
    }

    fn work(mut self, steps: usize) -> (Self, End<()>) {
        let end = self.open_tables().and_then(|()| {
            for _ in 0..steps {
                match self.step() {
                    Err(Stop::Error(Error::Full { .. })) => self.refused += 1,
                    other => other?,
                }
            }
            Ok(())
        });
        self.tables.clear();
        self.reader = None;
        self.seat = None;
        (self, end)
    }

    fn open_tables(&mut self) -> End<()> {
        for number in 0..OWN_TABLES {
            let name = own_table(self.history.thread, number);
            self.create(name)?;
        }
        for number in 0..SHARED_TABLES {
            // Threads race to create it.
            self.tables.push(self.db.table(&shared_table(number))?);
        }
        Ok(())
    }

    /// Creates a table of this thread, or finds it.
    fn create(&mut self, name: String) -> End<()> {
        let durable = self.default_is_durable() && !self.history.now().tables().contains(&name);
        let db = self.db.clone();
        let effects = vec![Effect::Create(name.clone())];
        let table = self.commit(effects, durable, || db.table(&name))?;
        match self.tables.iter_mut().find(|known| known.name() == name) {
            Some(known) => *known = table,
            None => self.tables.push(table),
        }
        Ok(())
    }

    fn default_is_durable(&self) -> bool {
        is_durable_by_default(self.plan.seed)
    }

    /// Records a commit around the call that makes it.
    fn commit<T>(
        &mut self,
        effects: Vec<Effect>,
        durable: bool,
        call: impl FnOnce() -> pandodb::Result<T>,
    ) -> End<T> {
        let start = self.shared.stamp();
        let result = call();
        let step = Step {
            effects,
            start,
            end: result.is_ok().then(|| self.shared.stamp()),
            durable: durable && result.is_ok(),
        };
        match &result {
            // `Full` promises that nothing was written.
            Err(Error::Full { .. }) => {}
            _ => self.history.push(step),
        }
        Ok(result?)
    }

    fn step(&mut self) -> End<()> {
        let name = own_table(self.history.thread, 2);
        if !self.history.now().tables().contains(&name) {
            // A full disk has refused to create it again.
            self.create(name)?;
        }
        match self.random.below(100) {
            0..30 => self.put(),
            30..36 => self.look(),
            36..48 => self.delete(),
            48..56 => self.update(),
            56..70 => self.batch(),
            70..76 => self.edit(),
            76..79 => self.read_slowly(),
            79..86 => self.get(),
            86..90 => self.scan(),
            90..93 => self.checkpoint(),
            93..95 => self.flush(),
            95 => self.clear(),
            96 => self.load(),
            97 => self.drop_table(),
            98 => self.compact(),
            _ => {
                self.db.request_checkpoint();
                Ok(())
            }
        }
    }

    fn table(&mut self) -> Table {
        self.tables[self.random.index(self.tables.len())].clone()
    }

    fn key(&mut self, table: &Table) -> Place {
        let number = self.random.below(self.plan.keys);
        let thread = self.history.thread;
        let key = match number % 10 {
            0 => format!("{}{number}-{thread}", "long".repeat(40)),
            1 => format!("{number}{thread}"),
            _ => format!("key{number:05}-{thread}"),
        };
        (table.name().to_owned(), key.into_bytes())
    }

    /// Values name their writer, so that no two are alike.
    fn value(&mut self) -> Vec<u8> {
        let bytes = match self.random.below(24) {
            0 => self.random.below(VALUE_BYTES_MAX),
            1 => self.random.below(6000),
            2 => 0,
            _ => self.random.below(500),
        };
        self.written += 1;
        let stamp = format!("{}/{}/", self.history.thread, self.written);
        stamp.bytes().cycle().take(bytes as usize).collect()
    }

    fn durability(&mut self) -> (WriteOptions, bool) {
        match self.random.below(8) {
            0 => (WriteOptions::durability(Durability::Durable), true),
            1 => (WriteOptions::durability(Durability::Periodic), false),
            2 => (WriteOptions::default(), self.default_is_durable()),
            _ => (WriteOptions::durability(Durability::None), false),
        }
    }

    fn put(&mut self) -> End<()> {
        let table = self.table();
        let place = self.key(&table);
        let value = self.value();
        let (options, durable) = self.durability();
        let effects = vec![Effect::Put(place.clone(), value.clone())];
        self.commit(effects, durable, || {
            table.put_with(&place.1, &value, options)
        })
    }

    fn delete(&mut self) -> End<()> {
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

    fn update(&mut self) -> End<()> {
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
    fn edit(&mut self) -> End<()> {
        let table = self.table();
        let place = self.key(&table);
        let bytes = self.value();
        let mut new = self.history.now().get(&place).cloned().unwrap_or_default();
        let offset = match self.random.once_in(2) || new.len() > VALUE_BYTES_MAX as usize {
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
    fn read_slowly(&mut self) -> End<()> {
        if let Some((mut reader, expected)) = self.reader.take() {
            let mut found = vec![0; reader.len() as usize];
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

    fn batch(&mut self) -> End<()> {
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
            if bytes > 2 * VALUE_BYTES_MAX as usize {
                break;
            }
        }
        let (options, durable) = self.durability();
        let db = self.db.clone();
        self.commit(effects, durable, || db.write(&mut batch, options))
    }

    /// Reads what all threads have committed, and commits a record of that; see [`order`].
    fn look(&mut self) -> End<()> {
        let (thread, threads) = (self.history.thread, self.plan.threads);
        let table = self.db.table(&shared_table(0))?;
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

    fn get(&mut self) -> End<()> {
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

    fn scan(&mut self) -> End<()> {
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
        Ok(())
    }

    fn checkpoint(&mut self) -> End<()> {
        let start = self.shared.stamp();
        self.db.checkpoint()?;
        self.shared.synced.lock().push(start);
        Ok(())
    }

    /// Compacts, for some steps or to the end; only one thread does so at a time.
    fn compact(&mut self) -> End<()> {
        let start = self.shared.stamp();
        let mut steps = self.random.below(12);
        let report = self.db.compact(|_| {
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

    fn flush(&mut self) -> End<()> {
        let start = self.shared.stamp();
        self.db.flush()?;
        self.shared.synced.lock().push(start);
        Ok(())
    }

    fn clear(&mut self) -> End<()> {
        let mut names = vec![own_table(self.history.thread, 0)];
        if self.random.once_in(2) {
            names.push(own_table(self.history.thread, 1));
        }
        self.clear_all(names)
    }

    /// Empties a table and loads it, or gives up in the middle.
    fn load(&mut self) -> End<()> {
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

    fn clear_all(&mut self, names: Vec<String>) -> End<()> {
        let tables: Vec<Table> = names
            .iter()
            .filter_map(|name| self.db.existing_table(name))
            .collect();
        let effects = names.into_iter().map(Effect::Clear).collect();
        let (db, durable) = (self.db.clone(), self.default_is_durable());
        let all: Vec<&Table> = tables.iter().collect();
        self.commit(effects, durable, || db.clear_tables(&all))
    }

    fn drop_table(&mut self) -> End<()> {
        let name = own_table(self.history.thread, 2);
        let (db, durable) = (self.db.clone(), self.default_is_durable());
        if db.existing_table(&name).is_some() {
            let effects = vec![Effect::Drop(name.clone())];
            self.commit(effects, durable, || db.drop_table(&name))?;
        }
        self.create(name)
    }
}
