//! One call of each workload.
//!
//! An [`Operations`] belongs to one thread. Each call does one operation, checks what it has read,
//! and returns the number of keys that it covered.

use pando_format::cast::{low_u32, usize_of};

use pandodb::{Batch, Iter, Loader, Table, WriteOptions};

use crate::chooser::Chooser;
use crate::error::{Error, Result};
use crate::fresh::{Fresh, View};
use crate::keys::Keys;
use crate::options::{KvOptions, Workload};
use crate::phase::{self, Calls, Done, Kind};
use crate::random::Random;
use crate::values::Values;
use crate::workload::Mix;

/// Initial capacity of a buffer, so that the buffers of two threads share no cache line.
const BUFFER_BYTES: usize = 256;

/// State that all threads share.
#[derive(Debug)]
pub(crate) struct KvPlan<'a> {
    pub(crate) options: &'a KvOptions,
    pub(crate) workload: Workload,
    /// The only table of the store.
    pub(crate) table: &'a Table,
    /// Writes and checks the values, each by its key's number.
    pub(crate) values: &'a Values,
    /// Makes keys of their numbers.
    pub(crate) keys: Keys,
    /// Chooses the keys.
    pub(crate) chooser: Chooser,
    /// Keys that are inserted in addition to those that were filled.
    pub(crate) fresh: Fresh,
    mix: Option<Mix>,
}

/// The calls of one thread.
#[derive(Debug)]
pub(crate) struct Operations<'a> {
    /// Shared by all threads.
    pub(crate) plan: &'a KvPlan<'a>,
    /// It is the companion thread, whose operations are not counted.
    beside: bool,
    /// The thread's own sequence of random numbers.
    pub(crate) random: Random,
    /// What the thread knows of inserted keys.
    pub(crate) view: View<'a>,
    /// Kind of the previous call, in a mixed workload.
    pub(crate) mixed: Option<Kind>,
    /// Numbers that a fill has still to write.
    fill: std::ops::Range<u64>,
    batch: Batch,
    /// The loader of a bulk fill, from its first call to its last.
    loader: Option<Loader<'a>>,
    /// The key of the current call.
    pub(crate) key: Vec<u8>,
    /// The value that is written, or that was read.
    pub(crate) value: Vec<u8>,
    /// For checks of values.
    pub(crate) scratch: Vec<u8>,
    many: Vec<(u64, Vec<u8>)>,
    iter: Option<Iter<'a>>,
    last: Option<Vec<u8>>,
}

impl<'a> KvPlan<'a> {
    /// Inserted keys get numbers from `fresh_start` on.
    pub(crate) fn new(
        options: &'a KvOptions,
        workload: Workload,
        table: &'a Table,
        values: &'a Values,
        fresh_start: u64,
    ) -> Self {
        let distribution = options.distribution_of(workload);
        Self {
            options,
            workload,
            table,
            values,
            keys: options.keys(),
            chooser: Chooser::new(distribution, options.num, options.seed),
            fresh: Fresh::new(fresh_start, options.threads),
            mix: workload.mix(),
        }
    }

    /// Returns the number of a filled key, chosen as the options say.
    pub(crate) fn choose(&self, random: &mut Random) -> u64 {
        self.chooser.choose(random)
    }

    /// Returns the number of keys that a call covers.
    pub(crate) fn call_keys(&self) -> u64 {
        match self.workload {
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillBulk
            | Workload::Overwrite
            | Workload::DeleteRandom
            | Workload::MultiReadRandom => self.options.batch,
            _ => 1,
        }
    }

    /// Makes the error for a result that is wrong.
    pub(crate) fn wrong(&self, what: String) -> Error {
        Error::Wrong {
            workload: self.workload.name(),
            what,
        }
    }
}

impl Calls for Operations<'_> {
    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        if let Some(mix) = self.plan.mix {
            return self.mixed(mix).map(Some);
        }
        match self.plan.workload {
            Workload::FillSeq | Workload::FillRandom => return self.fill(),
            Workload::FillBulk => return self.fill_in_bulk(),
            Workload::Overwrite => self.write_batch(limit.min(self.plan.options.batch), true),
            Workload::DeleteRandom => self.write_batch(limit.min(self.plan.options.batch), false),
            // Like db_bench's writer: each key is a commit.
            Workload::ReadWhileWriting if self.beside => self.write_batch(1, true),
            Workload::ReadWhileScanning if self.beside => self.iterate(Iter::next),
            Workload::ReadRandom | Workload::ReadWhileWriting | Workload::ReadWhileScanning => {
                self.read(false)
            }
            Workload::ReadMissing => self.read(true),
            Workload::MultiReadRandom => self.read_many(limit),
            Workload::ReadSeq => self.iterate(Iter::next),
            Workload::ReadReverse => self.iterate(Iter::next_back),
            Workload::SeekRandom => self.seek(),
            Workload::UpdateRandom => self.update(),
            Workload::YcsbA
            | Workload::YcsbB
            | Workload::YcsbC
            | Workload::YcsbD
            | Workload::YcsbE
            | Workload::YcsbF => unreachable!("a workload of YCSB mixes operations"),
            Workload::Queue | Workload::Transactions => {
                unreachable!("it has calls of its own")
            }
        }
        .map(Some)
    }

    fn kind(&self) -> Option<Kind> {
        self.mixed
    }
}

impl<'a> Operations<'a> {
    /// Returns true if its operations are counted; false for the companion thread.
    pub(crate) fn is_counted(&self) -> bool {
        !self.beside
    }

    /// Returns the calls of thread `thread`; the companion thread comes after the counted ones.
    pub(crate) fn new(plan: &'a KvPlan<'a>, thread: usize) -> Self {
        let stream = (plan.workload as u64) << 32 | thread as u64;
        let buffer = || Vec::with_capacity(BUFFER_BYTES);
        Self {
            plan,
            beside: thread >= plan.options.threads,
            view: View::new(&plan.fresh, thread),
            mixed: None,
            random: Random::new(plan.options.seed, stream),
            fill: phase::share(plan.options.num, plan.options.threads, thread),
            batch: Batch::new(),
            loader: None,
            key: buffer(),
            value: buffer(),
            scratch: buffer(),
            many: Vec::new(),
            iter: None,
            last: None,
        }
    }

    fn fill(&mut self) -> Result<Option<Done>> {
        let plan = self.plan;
        self.batch.clear();
        for index in self.fill.by_ref().take(usize_of(plan.options.batch)) {
            let number = match plan.workload {
                Workload::FillSeq => index,
                _ => plan.chooser.permutation().at(index),
            };
            plan.keys.write(number, &mut self.key);
            plan.values.write(number, 0, &mut self.value);
            self.batch.put(plan.table, &self.key, &self.value);
        }
        let keys = self.batch.len() as u64;
        if keys == 0 {
            return Ok(None);
        }
        self.commit()?;
        Ok(Some(Done {
            ops: keys,
            found: 0,
        }))
    }

    /// Finishing the load is a part of its last call.
    fn fill_in_bulk(&mut self) -> Result<Option<Done>> {
        let plan = self.plan;
        if self.fill.is_empty() {
            return Ok(None);
        }
        let loader = match &mut self.loader {
            Some(loader) => loader,
            none => none.insert(plan.table.loader()?),
        };
        let mut ops = 0;
        for number in self.fill.by_ref().take(usize_of(plan.options.batch)) {
            plan.keys.write(number, &mut self.key);
            plan.values.write(number, 0, &mut self.value);
            loader.put(&self.key, &self.value)?;
            ops += 1;
        }
        if self.fill.is_empty()
            && let Some(loader) = self.loader.take()
        {
            loader.finish()?;
        }
        Ok(Some(Done { ops, found: 0 }))
    }

    fn commit(&mut self) -> Result<()> {
        let db = self.plan.table.db();
        Ok(db.write(&mut self.batch, WriteOptions::default())?)
    }

    fn write_batch(&mut self, keys: u64, put: bool) -> Result<Done> {
        let plan = self.plan;
        self.batch.clear();
        for _ in 0..keys {
            let number = plan.choose(&mut self.random);
            plan.keys.write(number, &mut self.key);
            if put {
                let version = low_u32(self.random.next());
                plan.values.write(number, version, &mut self.value);
                self.batch.put(plan.table, &self.key, &self.value);
            } else {
                self.batch.delete(plan.table, &self.key);
            }
        }
        self.commit()?;
        Ok(Done {
            ops: keys,
            found: 0,
        })
    }

    /// Puts a chosen key, in a commit of its own.
    pub(crate) fn put_chosen(&mut self) -> Result<Done> {
        let number = self.plan.choose(&mut self.random);
        let version = low_u32(self.random.next());
        self.put(number, version)?;
        Ok(Done { ops: 1, found: 0 })
    }

    fn read(&mut self, missing: bool) -> Result<Done> {
        let plan = self.plan;
        let number = plan.choose(&mut self.random);
        match missing {
            true => plan.keys.write_missing(number, &mut self.key),
            false => plan.keys.write(number, &mut self.key),
        }
        let found = plan.table.get_into(&self.key, &mut self.value)?;
        if found && missing {
            return Err(plan.wrong(format!("key {number} with a dot behind it is there")));
        }
        if found {
            check_value(plan, number, &self.value, &mut self.scratch)?;
        }
        Ok(Done {
            ops: 1,
            found: found.into(),
        })
    }

    fn read_many(&mut self, limit: u64) -> Result<Done> {
        let plan = self.plan;
        let keys = plan.options.batch.min(limit);
        self.many.resize_with(usize_of(keys), Default::default);
        for (number, key) in &mut self.many {
            *number = plan.choose(&mut self.random);
            plan.keys.write(*number, key);
        }
        let wanted: Vec<&[u8]> = self.many.iter().map(|(_, key)| &key[..]).collect();
        let (mut found, mut checked) = (0, Ok(()));
        let scratch = &mut self.scratch;
        plan.table.get_many_with(&wanted, |at, value| {
            if let Some(value) = value {
                found += 1;
                if checked.is_ok() {
                    checked = check_value(plan, self.many[at].0, value, scratch);
                }
            }
        })?;
        checked?;
        Ok(Done { ops: keys, found })
    }

    fn iterate(
        &mut self,
        next: fn(&mut Iter<'a>) -> Option<pandodb::Result<pandodb::Entry>>,
    ) -> Result<Done> {
        let plan = self.plan;
        let iter = self.iter.get_or_insert_with(|| plan.table.iter());
        let entry = match next(iter) {
            Some(entry) => Some(entry),
            // Start over: a run may be longer than the table.
            None => {
                self.last = None;
                next(self.iter.insert(plan.table.iter()))
            }
        };
        let Some(entry) = entry else {
            let what = "the table is empty; fill it first".to_owned();
            return Err(Error::option("workloads", what));
        };
        let (key, value) = entry?;
        let in_order = self.last.as_ref().is_none_or(|last| match plan.workload {
            Workload::ReadReverse => *last > key,
            _ => *last < key,
        });
        if !in_order {
            return Err(plan.wrong(format!("key {key:?} is out of order")));
        }
        if let Some(number) = plan.keys.number(&key) {
            check_value(plan, number, &value, &mut self.scratch)?;
        }
        self.last = Some(key);
        Ok(Done { ops: 1, found: 1 })
    }

    fn seek(&mut self) -> Result<Done> {
        let plan = self.plan;
        let number = plan.choose(&mut self.random);
        plan.keys.write(number, &mut self.key);
        let entry = plan.table.range(&self.key[..]..).next().transpose()?;
        let found = entry.is_some();
        if let Some((key, value)) = entry {
            if key < self.key {
                return Err(plan.wrong(format!("found {key:?} from {:?} on", self.key)));
            }
            if let Some(number) = plan.keys.number(&key) {
                check_value(plan, number, &value, &mut self.scratch)?;
            }
        }
        Ok(Done {
            ops: 1,
            found: found.into(),
        })
    }

    /// Changes the value of a chosen key by what it was before, in one call of the store.
    pub(crate) fn update(&mut self) -> Result<Done> {
        let plan = self.plan;
        let number = plan.choose(&mut self.random);
        plan.keys.write(number, &mut self.key);
        let (value, scratch) = (&mut self.value, &mut self.scratch);
        let (mut found, mut wrong) = (false, false);
        plan.table.update(&self.key, |old| {
            found = old.is_some();
            let version = old.map_or(Some(0), |old| plan.values.check(number, old, scratch));
            wrong = version.is_none();
            let next = version.unwrap_or_default().wrapping_add(1);
            plan.values.write(number, next, value);
            Some(value.clone())
        })?;
        if wrong {
            return Err(plan.wrong(format!("key {number} had the value of another one")));
        }
        Ok(Done {
            ops: 1,
            found: found.into(),
        })
    }
}

/// Checks that `value` was written for key `number`, in any version.
pub(crate) fn check_value(
    plan: &KvPlan<'_>,
    number: u64,
    value: &[u8],
    scratch: &mut Vec<u8>,
) -> Result<()> {
    match plan.values.check(number, value, scratch) {
        Some(_) => Ok(()),
        None => Err(plan.wrong(format!(
            "key {number} has a value of {} bytes that was not written for it (a store filled with \
             other --value-size, --value-compress or --seed also reads so)",
            value.len()
        ))),
    }
}
