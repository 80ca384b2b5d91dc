//! Reads of many keys at once: pages that are not in memory are read at the same time.
//!
//! Keys are tried in groups, so that the CPU cache misses of a group overlap. A key that misses a
//! page is linked to the read of that page. It is tried again as soon as the page has arrived,
//! while other reads are in flight and further keys are started: the device's queue stays full
//! until no keys are left. Values are copied to memory of the thread, and `f` sees them only after
//! the fetcher has been returned: the user's code may panic, or call the store again. A key that a
//! read of its own does not help (another thread reads its page, a batch is still being applied, no
//! frame is free) waits until nothing is in flight. Then it takes the path of a single read, one
//! key at a time, which guarantees that every key makes progress.

use std::cell::RefCell;

use pando_format::cast::u32_of_len;
use pando_format::{PageId, TreeId};
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Fate, GROUP_MAX, Lookup};
use pando_versions::Registration;

use crate::api::snapshot::Snapshot;
use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::fetcher::Started;
use crate::pages::store::Store;
use crate::profile::{self, Wait};
use crate::read::at::ReadAt;
use crate::read::buffers::{KEPT_BYTES_MAX, shorten};
use crate::read::lending::Borrowed;
use crate::read::point::{Copied, SoFar};
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// Largest number of keys that one run works on.
const GATHERED_MAX: usize = 1024;
/// Bytes of collected values at which they are shown before further keys are started.
const VALUES_BYTES: usize = 1 << 20;
/// Bytes of memory for collected values that a thread keeps.
const VALUES_KEPT: usize = 4 * KEPT_BYTES_MAX;
/// Attempts of a key that meets conflicts, before it is put off.
const CONFLICTS_MAX: u32 = 16;
/// Faults per key, over all keys of a run, after which single reads take over: pages that are
/// evicted before they are used would be read for ever.
const FAULTS_PER_KEY: usize = 16;
/// Stands for no key.
const NONE: u32 = u32::MAX;

thread_local! {
    /// Working memory of this thread: usually one; one more for each call that is nested in
    /// another.
    static SCRATCH: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
}

/// Working memory of one call; reused.
#[derive(Debug, Default)]
struct Scratch {
    /// Keys to try, as a stack.
    todo: Vec<u32>,
    /// Keys that wait until nothing is in flight.
    later: Vec<u32>,
    /// For each key, the next key that waits for the same read.
    next: Vec<u32>,
    /// For each key, whether its miss has been counted.
    missed: Vec<bool>,
    /// For each tag of a read, the first key that waits for it.
    first: Vec<u32>,
    /// Faults of this run so far.
    faults: usize,
    found: Vec<ReadKey>,
    /// Values of `found`, concatenated.
    values: Vec<u8>,
    /// Buffers of single reads.
    work: ReadAt,
    value: Vec<u8>,
    /// The debt of everything that was found.
    debt: Debt,
}

/// A key whose read is done.
#[derive(Debug, Clone, Copy)]
struct ReadKey {
    key: u32,
    /// Where its value begins in `values`.
    start: usize,
    /// Bytes of its value; None: the key does not exist.
    bytes: Option<usize>,
}

/// The scratch of this thread; dropping it returns it.
struct OwnScratch(Option<Scratch>);

impl OwnScratch {
    fn take() -> Self {
        let own = SCRATCH.try_with(|all| all.borrow_mut().pop());
        Self(Some(own.ok().flatten().unwrap_or_default()))
    }

    fn get(&mut self) -> &mut Scratch {
        self.0.as_mut().expect("it is given back on drop only")
    }
}

impl Drop for OwnScratch {
    fn drop(&mut self) {
        if let Some(mut scratch) = self.0.take() {
            shorten(&mut scratch.values, VALUES_KEPT);
            shorten(&mut scratch.value, KEPT_BYTES_MAX);
            scratch.work.shorten(KEPT_BYTES_MAX);
            let _ = SCRATCH.try_with(|all| all.borrow_mut().push(scratch));
        }
    }
}

impl Scratch {
    /// Prepares for a run over `keys` keys.
    fn begin(&mut self, keys: usize) {
        self.todo.clear();
        self.todo.extend((0..u32_of_len(keys)).rev());
        self.later.clear();
        self.later.reserve(keys);
        self.next.clear();
        self.next.resize(keys, NONE);
        self.missed.clear();
        self.missed.resize(keys, false);
        self.first.clear();
        self.faults = 0;
        self.found.clear();
        self.values.clear();
        self.debt = Debt::NONE;
        self.work.forget_kept();
    }

    fn is_done(&self) -> bool {
        self.todo.is_empty() && self.later.is_empty()
    }

    /// Keeps the result of `key`; its value, if found, is in `self.value`.
    fn keep(&mut self, key: u32, found: bool) {
        let start = self.values.len();
        if found {
            self.values.extend_from_slice(&self.value);
        }
        self.found.push(ReadKey {
            key,
            start,
            bytes: found.then_some(self.value.len()),
        });
    }

    /// Has `key` wait for the read of `tag`.
    fn link(&mut self, key: u32, tag: usize) {
        if self.first.len() <= tag {
            self.first.resize(tag + 1, NONE);
        }
        assert_eq!(self.next[key as usize], NONE, "a key waits for one read");
        assert_ne!(self.first[tag], key, "a key waits for one read");
        self.next[key as usize] = self.first[tag];
        self.first[tag] = key;
    }
}

/// Whether further keys may be tried.
#[derive(PartialEq, Eq)]
enum Went {
    On,
    /// Not before a read has completed.
    Full,
}

/// One run over keys, until all are done or enough values have been collected to be shown.
struct Gathering<'a> {
    engine: &'a Engine,
    table: &'a TableState,
    /// The moment that is shown; None: the present.
    then: Option<&'a Registration>,
    keys: &'a [&'a [u8]],
    scratch: &'a mut Scratch,
    /// Borrowed at the first fault.
    fetcher: Option<Borrowed<'a>>,
    /// False once the device has refused a channel.
    has_channels: bool,
    /// Finished gets of the current group that have not been counted yet.
    gets: u64,
}

impl Gathering<'_> {
    fn run(&mut self) -> Result<()> {
        loop {
            let mut went = Went::On;
            while went == Went::On && self.scratch.values.len() < VALUES_BYTES {
                if self.scratch.todo.is_empty() {
                    break;
                }
                went = self.try_group()?;
            }
            if self.in_flight() > 0 {
                self.reap()?;
                continue;
            }
            if self.scratch.values.len() >= VALUES_BYTES || self.scratch.is_done() {
                return Ok(());
            }
            // Return the fetcher before this thread waits for anything else.
            self.fetcher = None;
            let last = self.scratch.later.pop();
            if let Some(key) = last.or_else(|| self.scratch.todo.pop()) {
                self.read_alone(key)?;
            }
            let Scratch { todo, later, .. } = &mut *self.scratch;
            todo.append(later);
        }
    }

    fn in_flight(&self) -> usize {
        self.fetcher
            .as_ref()
            .map_or(0, |fetcher| fetcher.in_flight())
    }

    /// Tries the next keys, at most one group.
    fn try_group(&mut self) -> Result<Went> {
        let todo = &mut self.scratch.todo;
        let mut group = [NONE; GROUP_MAX];
        let mut texts: [&[u8]; GROUP_MAX] = [&[]; GROUP_MAX];
        let count = todo.len().min(GROUP_MAX);
        for (place, text) in group.iter_mut().zip(&mut texts).take(count) {
            *place = todo.pop().expect("it has as many");
            *text = self.keys[*place as usize];
        }
        if let [key] = group[..count] {
            return self.try_key(key);
        }
        let values = &mut self.scratch.values;
        let (engine, table, texts) = (self.engine, self.table, &texts[..count]);
        let mut fates = [Fate::Long; GROUP_MAX];
        let looked_up = match self.then {
            Some(then) => engine.look_up_group_at(then, table, texts, values, &mut fates),
            None => engine.look_up_group(table, texts, values, &mut fates),
        };
        let tree = match looked_up {
            Ok(tree) => tree,
            Err(Unfinished::Wait(_)) => {
                fates.fill(Fate::Restart(Restart::Conflict));
                TreeId::default()
            }
            Err(Unfinished::Error(error)) => return Err(error),
        };
        self.scratch.work.reader.wanted.clear();
        let mut went = Went::On;
        for (key, fate) in group[..count].iter().zip(&fates) {
            if self.end_try(*key, tree, fate)? == Went::Full {
                went = Went::Full;
            }
        }
        let gets = std::mem::take(&mut self.gets);
        self.engine.store.statistics.tick(Ticker::Gets, gets);
        Ok(went)
    }

    /// Continues with a key of a group according to its `fate`.
    #[inline]
    fn end_try(&mut self, key: u32, tree: TreeId, fate: &Fate) -> Result<Went> {
        match *fate {
            Fate::Read {
                ref lookup,
                start,
                bytes,
            } => match self.check(tree, key, lookup) {
                Ok(None) => return self.try_key(key),
                Ok(Some(debt)) => {
                    self.scratch.debt.add(debt);
                    self.gets += 1;
                    let bytes = lookup.found.then_some(bytes);
                    self.scratch.found.push(ReadKey { key, start, bytes });
                }
                Err(Unfinished::Wait(_)) => self.scratch.later.push(key),
                Err(Unfinished::Error(error)) => return Err(error),
            },
            Fate::Restart(Restart::Fault(page)) => {
                let missed = &mut self.scratch.missed[key as usize];
                self.engine.count_miss(&Restart::Fault(page).into(), missed);
                return self.fault(key, page);
            }
            Fate::Long | Fate::Restart(Restart::Conflict) => return self.try_key(key),
            Fate::Restart(_) => self.scratch.later.push(key),
        }
        Ok(Went::On)
    }

    /// Returns the debt of what was copied of `key`; None if it is not what the snapshot sees.
    fn check(&self, tree: TreeId, key: u32, lookup: &Lookup) -> Step<Option<Debt>> {
        let text = self.keys[key as usize];
        match self.then {
            Some(then) => self.engine.check_copied_at(then, (tree, text), lookup),
            None => {
                let debt = self.engine.check_copied(Copied::of(tree, lookup), text)?;
                Ok(Some(debt))
            }
        }
    }

    /// Makes one attempt to read a single key.
    fn step(&mut self, key: u32) -> Step<(bool, Debt)> {
        let text = self.keys[key as usize];
        let Scratch { work, value, .. } = &mut *self.scratch;
        self.engine
            .try_read(self.then, self.table, text, work, value)
    }

    /// Tries a single key.
    fn try_key(&mut self, key: u32) -> Result<Went> {
        for _ in 0..CONFLICTS_MAX {
            let step = self.step(key).inspect_err(|unfinished| {
                let missed = &mut self.scratch.missed[key as usize];
                self.engine.count_miss(unfinished, missed);
            });
            match step {
                Ok((found, debt)) => {
                    self.scratch.keep(key, found);
                    self.scratch.debt.add(debt);
                    return Ok(Went::On);
                }
                Err(Unfinished::Wait(WaitReason::Restart(Restart::Fault(page)))) => {
                    return self.fault(key, page);
                }
                Err(Unfinished::Wait(WaitReason::Restart(Restart::Conflict))) => {}
                Err(Unfinished::Wait(_)) => break,
                Err(Unfinished::Error(error)) => return Err(error),
            }
        }
        self.scratch.later.push(key);
        Ok(Went::On)
    }

    /// Starts the read of `page`, which `key` missed, or puts the key off.
    fn fault(&mut self, key: u32, page: PageId) -> Result<Went> {
        self.scratch.faults += 1;
        if self.scratch.faults > FAULTS_PER_KEY * self.keys.len() + GATHERED_MAX {
            self.scratch.later.push(key);
            return Ok(Went::On);
        }
        let fetcher = match &mut self.fetcher {
            Some(fetcher) => fetcher,
            None => {
                let fetcher = match self.has_channels {
                    true => self.engine.borrow_fetcher().ok(),
                    false => None,
                };
                self.has_channels = fetcher.is_some();
                let Some(fetcher) = fetcher else {
                    // Without a channel, keys are read one by one.
                    self.scratch.later.push(key);
                    return Ok(Went::On);
                };
                self.fetcher.insert(fetcher)
            }
        };
        if !self.scratch.work.reader.wanted.is_empty() {
            // A long value: its pages are read at the same time, and it is put together later.
            for page in self.scratch.work.reader.wanted.drain(..) {
                if let Started::Crowded | Started::Refused(_) =
                    fetcher.start(&self.engine.store, page)?
                {
                    break;
                }
            }
            self.scratch.later.push(key);
            return Ok(Went::On);
        }
        match fetcher.start(&self.engine.store, page)? {
            Started::Reading(tag) => self.scratch.link(key, tag),
            Started::Loading => match fetcher.tag_of(page) {
                Some(tag) => self.scratch.link(key, tag),
                None => self.scratch.later.push(key),
            },
            Started::Done => self.scratch.todo.push(key),
            Started::Crowded | Started::Refused(_) => {
                self.scratch.todo.push(key);
                return Ok(Went::Full);
            }
        }
        Ok(Went::On)
    }

    /// Waits for a read, and makes the keys that waited for it ready.
    fn reap(&mut self) -> Result<()> {
        let Some(fetcher) = &mut self.fetcher else {
            return Ok(());
        };
        let Scratch {
            todo, next, first, ..
        } = &mut *self.scratch;
        let mut failed = Ok(());
        let begun = profile::begin();
        fetcher.wait(&self.engine.store, None);
        profile::end(begun, Wait::Page);
        fetcher.reap(&self.engine.store, |tag, _, result| {
            if failed.is_ok() {
                failed = result;
            }
            // A tag without a key is that of a page of a long value.
            let mut key = first
                .get_mut(tag)
                .map_or(NONE, |first| std::mem::replace(first, NONE));
            while key != NONE {
                todo.push(key);
                key = std::mem::replace(&mut next[key as usize], NONE);
            }
        });
        failed
    }

    /// Reads a key as a single read does. No read may be in flight.
    fn read_alone(&mut self, key: u32) -> Result<()> {
        let text = self.keys[key as usize];
        let begun = SoFar::with_miss(self.scratch.missed[key as usize]);
        let Scratch { work, value, .. } = &mut *self.scratch;
        let engine = self.engine;
        let found = match self.then {
            Some(then) => engine.read_at(then, self.table, text, work, value)?,
            None => engine.read_on(self.table, text, &mut work.reader, value, begun)?,
        };
        self.scratch.keep(key, found);
        Ok(())
    }
}

impl Table {
    /// Returns the values of `keys`, in their order. Each value is committed, but they need not be
    /// of one moment. Pages that are not in memory are read at the same time.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        self.get_many_with(keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// Calls `f` once for each key, in any order, with the key's position in `keys` and a copy of
    /// its value if it exists. Otherwise as [`Table::get_many`]. Allocates nothing. `f` may call
    /// the store.
    ///
    /// # Errors
    /// As [`Table::get_into`]; `f` may have been called for some keys then.
    pub fn get_many_with(
        &self,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        gather(self.db.engine(), &self.state, None, keys, &mut f)
    }
}

impl Snapshot {
    /// Returns the values that `keys` of `table` have at this moment, in their order. Pages that
    /// are not in memory are read at the same time.
    ///
    /// # Errors
    /// As [`Snapshot::get_into`].
    pub fn get_many(&self, table: &Table, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        let keep = |at: usize, value: Option<&[u8]>| values[at] = value.map(<[u8]>::to_vec);
        self.get_many_with(table, keys, keep)?;
        Ok(values)
    }

    /// Calls `f` once for each key, in any order, with the key's position in `keys` and a copy of
    /// its value if it exists at this moment. Otherwise as [`Snapshot::get_many`]. `f` may call the
    /// store.
    ///
    /// # Errors
    /// As [`Snapshot::get_into`]; `f` may have been called for some keys then.
    pub fn get_many_with(
        &self,
        table: &Table,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let engine = self.engine_of(table)?;
        let mut is_shown = vec![false; keys.len()];
        if let Some(young) = self.young() {
            let show = &mut |at: usize, value: Option<&[u8]>| {
                is_shown[at] = true;
                f(at, value);
            };
            let then = Some(young.registration());
            let gathered = gather(engine, &table.state, then, keys, show);
            if gathered.is_ok() || !young.registration().is_ended() {
                return gathered;
            }
            // It may have been settled meanwhile.
        }
        let settled = self.settled().ok_or(Error::SnapshotEnded)?;
        let left = keys.iter().copied().enumerate();
        let left: Vec<_> = left.filter(|(at, _)| !is_shown[*at]).collect();
        let together = |store: &Store, pages: &[PageId]| engine.fetch_many_of(store, pages);
        settled.get_many(&together, self.tree_of(table)?, &left, |at, value| {
            engine.count_get();
            f(at, value);
        })
    }
}

/// Calls `f` once for each key, with its position and its value: see [`Table::get_many_with`].
fn gather(
    engine: &Engine,
    table: &TableState,
    then: Option<&Registration>,
    keys: &[&[u8]],
    f: &mut impl FnMut(usize, Option<&[u8]>),
) -> Result<()> {
    let mut own = OwnScratch::take();
    for (turn, keys) in keys.chunks(GATHERED_MAX).enumerate() {
        let scratch = own.get();
        scratch.begin(keys.len());
        let mut shown = 0;
        while !scratch.is_done() {
            let mut gathering = Gathering {
                engine,
                table,
                then,
                keys,
                scratch: &mut *scratch,
                fetcher: None,
                has_channels: true,
                gets: 0,
            };
            gathering.run()?;
            drop(gathering);
            engine.pay(std::mem::take(&mut scratch.debt))?;
            shown += scratch.found.len();
            for found in scratch.found.drain(..) {
                let value = found
                    .bytes
                    .map(|bytes| &scratch.values[found.start..found.start + bytes]);
                f(turn * GATHERED_MAX + found.key as usize, value);
            }
            scratch.values.clear();
        }
        assert_eq!(shown, keys.len(), "each key is shown once");
    }
    Ok(())
}
