//! Many keys at once: what is not in memory is read at the same time.
//!
//! Keys are tried in groups, whose misses of the processor's caches overlap; one that misses a page
//! is linked to the read of that page, and tried again as soon as it has arrived, while other reads
//! are in flight and further keys are begun: the device's queue stays full until there are no more
//! keys. Values are copied to memory of the
//! thread and shown only when the fetcher has been given back: the user's code may panic, or call
//! the store again. What cannot go on by a read of its own (a page that somebody else reads, a
//! batch that is still being applied, no free frame) waits until nothing is in flight, and takes
//! the way of a single read then, one key at a time: that is how every key makes progress.

use std::cell::RefCell;

use pando_format::{PageId, TreeId};
use pando_pool::Restart;
use pando_stats::Ticker;
use pando_tree::{Fate, GROUP_MAX, ValueReader};

use crate::api::table::Table;
use crate::engine::Engine;
use crate::error::Result;
use crate::pages::fetcher::Started;
use crate::profile::{self, Wait};
use crate::read::lending::Borrowed;
use crate::read::point::{Copied, SoFar};
use crate::state::read_bounds::Debt;
use crate::tables::state::TableState;
use crate::wait::reason::{Unfinished, WaitReason};

/// Keys that are gathered together.
const GATHERED_MAX: usize = 1024;
/// Bytes of values from which on they are shown before further keys are begun.
const VALUES_BYTES: usize = 1 << 20;
/// Tries of a key that meets changes, before it steps aside.
const CONFLICTS_MAX: u32 = 16;
/// Faults of all keys together, for each of them, from which on single reads take over: pages that
/// leave before they are used would be read for ever.
const FAULTS_PER_KEY: usize = 16;
/// No key.
const NONE: u32 = u32::MAX;

thread_local! {
    /// Working memory of this thread: one, and one more for each call from within a call.
    static SCRATCH: RefCell<Vec<Scratch>> = const { RefCell::new(Vec::new()) };
}

/// Working memory of one call; reused.
#[derive(Debug, Default)]
struct Scratch {
    /// Keys to try; the last one first.
    todo: Vec<u32>,
    /// Keys that wait until nothing is in flight.
    later: Vec<u32>,
    /// For each key, the next one that waits for the same read.
    next: Vec<u32>,
    /// Keys that were counted as missed.
    missed: Vec<bool>,
    /// For each tag, the first key that waits for its read.
    first: Vec<u32>,
    faults: usize,
    found: Vec<Found>,
    /// Values of `found`, one behind the other.
    values: Vec<u8>,
    reader: ValueReader,
    value: Vec<u8>,
    /// Of what was found.
    debt: Debt,
}

/// A key that is done.
#[derive(Debug, Clone, Copy)]
struct Found {
    key: u32,
    start: usize,
    /// None: it does not exist.
    bytes: Option<usize>,
}

/// The scratch of this thread, given back on drop.
struct OwnScratch(Option<Scratch>);

impl OwnScratch {
    fn take() -> Self {
        let own = SCRATCH.with_borrow_mut(Vec::pop);
        Self(Some(own.unwrap_or_default()))
    }

    fn get(&mut self) -> &mut Scratch {
        self.0.as_mut().expect("it is given back on drop only")
    }
}

impl Drop for OwnScratch {
    fn drop(&mut self) {
        if let Some(mut scratch) = self.0.take() {
            scratch.values.clear();
            scratch.values.shrink_to(2 * VALUES_BYTES);
            SCRATCH.with_borrow_mut(|all| all.push(scratch));
        }
    }
}

impl Scratch {
    fn begin(&mut self, keys: usize) {
        self.todo.clear();
        self.todo.extend((0..keys as u32).rev());
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
    }

    fn is_done(&self) -> bool {
        self.todo.is_empty() && self.later.is_empty()
    }

    fn keep(&mut self, key: u32, found: bool) {
        let start = self.values.len();
        if found {
            self.values.extend_from_slice(&self.value);
        }
        self.found.push(Found {
            key,
            start,
            bytes: found.then_some(self.value.len()),
        });
    }

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
    /// Not before a read has ended.
    Full,
}

/// One run over keys, until all are done or enough values wait to be shown.
struct Gathering<'a> {
    engine: &'a Engine,
    table: &'a TableState,
    keys: &'a [&'a [u8]],
    scratch: &'a mut Scratch,
    /// Borrowed with the first fault.
    fetcher: Option<Borrowed<'a>>,
    /// The device has not refused one.
    has_channels: bool,
    /// Gets of the group that have ended, and that are not counted yet.
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
            // Before anything else is waited for.
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

    /// Tries the next keys, as many as a group has.
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
        let (tree, fates) = match self
            .engine
            .look_up_group(self.table, &texts[..count], values)
        {
            Ok(looked_up) => looked_up,
            Err(Unfinished::Wait(_)) => {
                let again = Fate::Restart(Restart::Conflict);
                (TreeId::default(), [again; GROUP_MAX])
            }
            Err(Unfinished::Error(error)) => return Err(error),
        };
        self.scratch.reader.wanted.clear();
        let mut went = Went::On;
        for (key, fate) in group.into_iter().zip(fates).take(count) {
            if self.end_try(key, tree, fate)? == Went::Full {
                went = Went::Full;
            }
        }
        let gets = std::mem::take(&mut self.gets);
        self.engine.store.statistics.tick(Ticker::Gets, gets);
        Ok(went)
    }

    /// Does what follows from the fate of a key of a group.
    fn end_try(&mut self, key: u32, tree: TreeId, fate: Fate) -> Result<Went> {
        match fate {
            Fate::Read {
                lookup,
                start,
                bytes,
            } => match self
                .engine
                .check_copied(Copied::of(tree, &lookup), self.keys[key as usize])
            {
                Ok(debt) => {
                    self.scratch.debt.add(debt);
                    self.gets += 1;
                    let bytes = lookup.found.then_some(bytes);
                    self.scratch.found.push(Found { key, start, bytes });
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

    fn try_key(&mut self, key: u32) -> Result<Went> {
        let text = self.keys[key as usize];
        for _ in 0..CONFLICTS_MAX {
            let Scratch { reader, value, .. } = &mut *self.scratch;
            let step = self
                .engine
                .try_get(self.table, text, reader, value)
                .inspect_err(|unfinished| {
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
                    // Without a channel keys are read one by one.
                    self.scratch.later.push(key);
                    return Ok(Went::On);
                };
                self.fetcher.insert(fetcher)
            }
        };
        if !self.scratch.reader.wanted.is_empty() {
            // A long value: its pages are read at the same time, the value is put together later.
            for page in self.scratch.reader.wanted.drain(..) {
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

    /// Waits for a read, and lists the keys that can go on.
    fn reap(&mut self) -> Result<()> {
        let Some(fetcher) = &mut self.fetcher else {
            return Ok(());
        };
        let Scratch {
            todo, next, first, ..
        } = &mut *self.scratch;
        let mut failed = Ok(());
        let begun = profile::begin();
        fetcher.wait(None);
        profile::end(begun, Wait::Page);
        fetcher.reap(&self.engine.store, |tag, _, result| {
            if failed.is_ok() {
                failed = result;
            }
            // A tag without a key: a page of a long value.
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

    /// Reads a key as a single read does. Nothing is in flight.
    fn read_alone(&mut self, key: u32) -> Result<()> {
        let text = self.keys[key as usize];
        let begun = SoFar::with_miss(self.scratch.missed[key as usize]);
        let Scratch { reader, value, .. } = &mut *self.scratch;
        let engine = self.engine;
        let found = engine.read_on(self.table, text, reader, value, begun)?;
        self.scratch.keep(key, found);
        Ok(())
    }
}

impl Table {
    /// The values of `keys`, in their order; committed values key by key, not of one moment. Pages
    /// that are not in memory are read at the same time.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut values: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        self.get_many_with(keys, |at, value| values[at] = value.map(<[u8]>::to_vec))?;
        Ok(values)
    }

    /// Calls `f` once for each key, with its position in `keys` and a copy of its value if it
    /// exists: in any order, and as [`Table::get_many`] otherwise. Allocates nothing. `f` may call
    /// the store.
    ///
    /// # Errors
    /// As [`Table::get_into`]; `f` was called for some keys then, perhaps for none.
    pub fn get_many_with(
        &self,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, Option<&[u8]>),
    ) -> Result<()> {
        let engine = self.db.engine();
        let mut own = OwnScratch::take();
        for (turn, keys) in keys.chunks(GATHERED_MAX).enumerate() {
            let scratch = own.get();
            scratch.begin(keys.len());
            let mut shown = 0;
            while !scratch.is_done() {
                let mut gathering = Gathering {
                    engine,
                    table: &self.state,
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
}
