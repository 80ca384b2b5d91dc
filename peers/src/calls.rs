//! One call of each workload, as `pando bench kv` does it: same keys, same values, same choices.
//!
//! A [`Work`] belongs to one thread and checks what it reads.

use pando_bench::chooser::Chooser;
use pando_bench::keys::Keys;
use pando_bench::permutation::Permutation;
use pando_bench::phase::{self, Calls, Done};
use pando_bench::random::Random;
use pando_bench::values::Values;
use pando_bench::{Error, Result, Workload};
use pando_sync::atomic::{AtomicU64, Ordering};

use crate::engine::{Engine, Worker};
use crate::options::{CHUNK, Options};

/// No key lies before it, and some engines take no empty one.
const FIRST: [u8; 1] = [0];

/// What all threads share.
pub(crate) struct Plan<'a> {
    pub(crate) options: &'a Options,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) workload: Workload,
    /// Of this turn, without the companion thread.
    pub(crate) threads: usize,
    /// Of the choices of this round; the first one has those of `pando bench kv`.
    pub(crate) seed: u64,
    /// Makes and checks the values, each by its key's number.
    pub(crate) values: &'a Values,
    /// Makes keys of their numbers.
    pub(crate) keys: Keys,
    /// The order of a fill at random.
    pub(crate) permutation: &'a Permutation,
    /// Chooses the numbers of keys that are read or written.
    pub(crate) chooser: &'a Chooser,
    /// How often transactions were repeated.
    pub(crate) repeats: &'a AtomicU64,
}

/// The calls of one thread.
pub(crate) struct Work<'a> {
    plan: &'a Plan<'a>,
    worker: Box<dyn Worker + 'a>,
    /// It works beside those that are counted.
    beside: bool,
    random: Random,
    /// Numbers that a fill has still to write.
    fill: std::ops::Range<u64>,
    entries: Vec<(Vec<u8>, Vec<u8>)>,
    key: Vec<u8>,
    numbers: Vec<u64>,
    keys: Vec<Vec<u8>>,
    checker: Checker<'a>,
    /// Hundredths of puts that are due in transactions: shares are exact in the long run.
    due: u64,
}

/// Checks what is read; keeps the first thing that is wrong.
struct Checker<'a> {
    plan: &'a Plan<'a>,
    scratch: Vec<u8>,
    wrong: Option<String>,
    found: u64,
}

impl Checker<'_> {
    fn value(&mut self, number: u64, value: &[u8]) -> Option<u32> {
        self.found += 1;
        let version = self.plan.values.check(number, value, &mut self.scratch);
        if version.is_none() {
            let bytes = value.len();
            self.fail(|| format!("key {number} has a value of {bytes} bytes that is not its own"));
        }
        version
    }

    fn fail(&mut self, what: impl FnOnce() -> String) {
        self.wrong.get_or_insert_with(what);
    }

    /// What was found since the last time, if nothing was wrong with it.
    fn finish(&mut self) -> Result<u64> {
        let found = std::mem::take(&mut self.found);
        match self.wrong.take() {
            None => Ok(found),
            Some(what) => Err(Error::Wrong {
                workload: self.plan.workload.name(),
                what,
            }),
        }
    }
}

impl Calls for Work<'_> {
    fn call(&mut self, limit: u64) -> Result<Option<Done>> {
        let batch = self.plan.options.batch_of(self.plan.workload);
        match self.plan.workload {
            Workload::FillSeq | Workload::FillRandom | Workload::FillBulk => {
                return self.fill(batch);
            }
            Workload::Overwrite => self.overwrite(limit.min(batch)),
            Workload::ReadWhileWriting if self.beside => self.overwrite(1),
            Workload::ReadWhileWriting => {
                self.worker.renew();
                self.read()
            }
            Workload::MultiReadRandom => self.read_many(limit.min(batch)),
            Workload::ReadSeq => self.read_on(limit.min(CHUNK)),
            Workload::SeekRandom => self.seek(),
            Workload::UpdateRandom => self.update(),
            Workload::Transactions => self.transact(),
            _ => self.read(),
        }
        .map(Some)
    }
}

impl<'a> Work<'a> {
    /// The calls of thread `thread`; `worker` is its own.
    pub(crate) fn new(plan: &'a Plan<'a>, worker: Box<dyn Worker + 'a>, thread: usize) -> Self {
        let stream = (plan.workload as u64) << 32 | thread as u64;
        Self {
            plan,
            worker,
            beside: thread >= plan.threads,
            random: Random::new(plan.seed, stream),
            fill: phase::share(plan.options.num, plan.threads, thread),
            entries: Vec::new(),
            key: Vec::new(),
            numbers: Vec::new(),
            keys: Vec::new(),
            checker: Checker {
                plan,
                scratch: Vec::new(),
                wrong: None,
                found: 0,
            },
            due: 0,
        }
    }

    fn choose(&mut self) -> u64 {
        self.plan.chooser.choose(&mut self.random)
    }

    fn fill(&mut self, batch: u64) -> Result<Option<Done>> {
        let plan = self.plan;
        let keys = batch.min(self.fill.end - self.fill.start);
        if keys == 0 {
            return Ok(None);
        }
        self.entries.resize_with(keys as usize, Default::default);
        let first = self.fill.start;
        self.fill.start += keys;
        for ((key, value), index) in self.entries.iter_mut().zip(first..) {
            let number = match plan.workload {
                Workload::FillSeq | Workload::FillBulk => index,
                _ => plan.permutation.at(index),
            };
            plan.keys.write(number, key);
            plan.values.write(number, 0, value);
        }
        // One thread fills, so that what comes later lies behind.
        match plan.workload {
            Workload::FillBulk => {
                let is_last = self.fill.is_empty();
                self.worker.load(&self.entries, is_last)?;
                if is_last {
                    plan.engine.sync()?;
                }
            }
            Workload::FillSeq if plan.keys.is_ordered() => {
                self.worker.append_batch(&self.entries)?;
            }
            _ => self.worker.put_batch(&self.entries)?,
        }
        Ok(Some(Done {
            ops: keys,
            found: 0,
        }))
    }

    fn overwrite(&mut self, keys: u64) -> Result<Done> {
        let plan = self.plan;
        self.entries.resize_with(keys as usize, Default::default);
        for at in 0..self.entries.len() {
            let number = self.choose();
            let version = self.random.next() as u32;
            let (key, value) = &mut self.entries[at];
            plan.keys.write(number, key);
            plan.values.write(number, version, value);
        }
        match &self.entries[..] {
            [(key, value)] => self.worker.put(key, value)?,
            entries => self.worker.put_batch(entries)?,
        }
        Ok(Done {
            ops: keys,
            found: 0,
        })
    }

    fn read(&mut self) -> Result<Done> {
        let number = self.choose();
        self.plan.keys.write(number, &mut self.key);
        let checker = &mut self.checker;
        let found = self.worker.get(&self.key, &mut |_, value| {
            checker.value(number, value);
        })?;
        self.done(1, found.into())
    }

    fn read_many(&mut self, keys: u64) -> Result<Done> {
        self.keys.resize_with(keys as usize, Default::default);
        self.numbers.resize(keys as usize, 0);
        for at in 0..self.keys.len() {
            let number = self.choose();
            self.numbers[at] = number;
            self.plan.keys.write(number, &mut self.keys[at]);
        }
        let (checker, numbers) = (&mut self.checker, &self.numbers);
        let mut answers = 0;
        self.worker.multi_get(&self.keys, &mut |at, value| {
            answers += 1;
            if let Some(value) = value {
                checker.value(numbers[at], value);
            }
        })?;
        if answers != keys {
            self.checker
                .fail(|| format!("{answers} answers for {keys} keys"));
        }
        let found = self.checker.finish()?;
        Ok(Done { ops: keys, found })
    }

    /// Reads on in order; from the start again behind the last entry.
    fn read_on(&mut self, entries: u64) -> Result<Done> {
        let from = std::mem::take(&mut self.key);
        let mut read = match from.is_empty() {
            true => 0,
            false => self.scan(&from, entries)?,
        };
        if read == 0 {
            read = self.scan(&FIRST, entries)?;
        }
        if read == 0 {
            self.checker.fail(|| "there are no entries".to_owned());
        }
        // The least key behind the last one.
        self.key.push(0);
        self.done(read, read)
    }

    fn seek(&mut self) -> Result<Done> {
        let number = self.choose();
        let mut from = std::mem::take(&mut self.key);
        self.plan.keys.write(number, &mut from);
        let read = self.scan(&from, self.plan.options.scan)?;
        if read == 0 {
            self.checker
                .fail(|| format!("nothing from key {number} on, which is there"));
        }
        self.done(1, 1)
    }

    /// Reads up to `limit` entries from `from` on and leaves the last key in `key`.
    fn scan(&mut self, from: &[u8], limit: u64) -> Result<u64> {
        let (plan, checker, last) = (self.plan, &mut self.checker, &mut self.key);
        last.clear();
        let mut read = 0;
        self.worker.scan(from, limit as usize, &mut |key, value| {
            let in_order = match read {
                0 => key >= from,
                _ => key > &last[..],
            };
            if !in_order {
                checker.fail(|| format!("{key:?} follows {last:?} from {from:?} on"));
            }
            read += 1;
            last.clear();
            last.extend_from_slice(key);
            match plan.keys.number(key) {
                Some(number) => {
                    checker.value(number, value);
                }
                None => checker.found += 1,
            }
        })?;
        if read > limit {
            self.checker
                .fail(|| format!("{read} entries, {limit} at most were asked for"));
        }
        Ok(read)
    }

    fn update(&mut self) -> Result<Done> {
        let plan = self.plan;
        let number = self.choose();
        plan.keys.write(number, &mut self.key);
        let checker = &mut self.checker;
        let mut found = false;
        self.worker.update(&self.key, &mut |old, new| {
            found = old.is_some();
            let version = old.and_then(|old| checker.value(number, old));
            let next = version.unwrap_or_default().wrapping_add(1);
            plan.values.write(number, next, new);
        })?;
        self.done(1, found.into())
    }

    /// A transaction of gets, then puts, as those of `pando bench iso`.
    fn transact(&mut self) -> Result<Done> {
        let plan = self.plan;
        let ops = plan.options.ops_per_transaction;
        self.due += ops * plan.options.writes;
        let puts = (self.due / 100).min(ops);
        self.due -= puts * 100;
        let gets = (ops - puts) as usize;
        self.keys.resize_with(gets, Default::default);
        self.numbers.resize(gets, 0);
        for at in 0..gets {
            let number = self.choose();
            self.numbers[at] = number;
            plan.keys.write(number, &mut self.keys[at]);
        }
        self.entries.resize_with(puts as usize, Default::default);
        for at in 0..self.entries.len() {
            let number = self.choose();
            let version = self.random.next() as u32;
            let (key, value) = &mut self.entries[at];
            plan.keys.write(number, key);
            plan.values.write(number, version, value);
        }
        let (checker, numbers) = (&mut self.checker, &self.numbers);
        let repeats = self
            .worker
            .transact(&self.keys, &self.entries, &mut |at, value| {
                if at == 0 {
                    // It may be repeated.
                    checker.found = 0;
                }
                match value {
                    Some(value) => {
                        checker.value(numbers[at], value);
                    }
                    None => checker.fail(|| format!("key {} is not there", numbers[at])),
                }
            })?;
        if repeats > 0 {
            plan.repeats.fetch_add(repeats, Ordering::Relaxed);
        }
        let found = self.checker.finish()?;
        Ok(Done { ops, found })
    }

    fn done(&mut self, ops: u64, found: u64) -> Result<Done> {
        self.checker.finish()?;
        Ok(Done { ops, found })
    }
}
