//! A second look at what a transaction has read, taken when stamps say that it may have changed
//! (decision 059).
//!
//! A stripe stands for many keys. While enough writers change other keys, the stamps of a
//! transaction with many reads are never all unchanged, although the values it read are. So a
//! transaction that has met a few conflicts compares the values themselves, with all of its stripes
//! held: an equal value has not changed for it. If a value differs, all values are now known as of
//! this one moment, and the next run is answered from them.
//!
//! Stripes are only tried, and nothing is waited for while they are held: a missing page ends the
//! look, and the next look finds it in memory. No batch that writes a key of a held stripe can be
//! half applied, since a batch holds its stripes until it is applied everywhere.

use pando_format::PageId;
use pando_pool::Restart;
use pando_tree::ValueReader;

use crate::engine::Engine;
use crate::state::read_bounds::Debt;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::read_log::{ReadLog, long_bytes};
use crate::writes::set::WriteSet;
use crate::writes::stripes::{Locked, Stamp};

/// Most pages that one look asks for.
const WANTED_MAX: usize = 64;

/// Result of comparing the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// All values are as they were read.
    Same,
    /// Some values differ; the read log now has all of them as they are.
    Different,
    /// Some values are not kept in the log, or a table has another tree.
    Unknown,
}

/// Compares the reads of one transaction with the current values.
#[derive(Debug)]
pub(crate) struct SecondLook<'t> {
    log: &'t mut ReadLog,
    reader: &'t mut ValueReader,
    /// For reads, by position: stamps as of which the value is what the log has.
    fresh: Vec<(usize, Stamp)>,
    debt: Debt,
    /// Missing pages, except the first one.
    wanted: Vec<PageId>,
    seen: Seen,
    /// Entry of the log of the first value that differs.
    different: Option<usize>,
}

/// What a look leaves for the transaction.
#[derive(Debug)]
pub(crate) struct Looked {
    /// For reads, by position: stamps as of which the value is what the log has.
    pub(crate) fresh: Vec<(usize, Stamp)>,
    /// What the values that were looked at owe.
    pub(crate) debt: Debt,
    /// Missing pages, except the first one.
    pub(crate) wanted: Vec<PageId>,
    /// Result of the last comparison; [`Seen::Unknown`] if none was completed.
    pub(crate) seen: Seen,
    /// Entry of the log of the first value that differs.
    pub(crate) different: Option<usize>,
}

impl<'t> SecondLook<'t> {
    /// Prepares a look; reads nothing yet.
    pub(crate) fn new(log: &'t mut ReadLog, reader: &'t mut ValueReader) -> Self {
        Self {
            log,
            reader,
            fresh: Vec::new(),
            debt: Debt::NONE,
            wanted: Vec::new(),
            seen: Seen::Unknown,
            different: None,
        }
    }

    /// Ends it, and gives the borrowed parts back.
    pub(crate) fn end(self) -> Looked {
        Looked {
            fresh: self.fresh,
            debt: self.debt,
            wanted: self.wanted,
            seen: self.seen,
            different: self.different,
        }
    }

    /// Compares the reads of `set`, whose stripes `locked` holds. Never blocks.
    pub(crate) fn run(
        &mut self,
        engine: &Engine,
        set: &WriteSet,
        locked: &Locked<'_>,
    ) -> Step<Seen> {
        self.fresh.clear();
        (self.seen, self.different) = (Seen::Unknown, None);
        let mut missing = None;
        let (mut different, mut long) = (Vec::new(), 0);
        let mut entries = 0;
        let mut value = Vec::new();
        for (place, stamp) in set.reads.iter().enumerate() {
            assert!(locked.holds(*stamp), "the stripe of a read is not held");
            if engine.stripes.unchanged_held(*stamp) {
                continue;
            }
            let Some(at) = self.log.entry_of(place, &mut entries) else {
                return Ok(Seen::Unknown);
            };
            let looked = self.look_at(engine, set, at, &mut value);
            let found = match looked {
                Ok(found) => found,
                Err(Unfinished::Wait(WaitReason::Restart(Restart::Fault(page)))) => {
                    if missing.is_some() && self.wanted.len() < WANTED_MAX {
                        self.wanted.push(page);
                    }
                    missing = missing.or(Some(page));
                    continue;
                }
                Err(Unfinished::Wait(WaitReason::Chunks)) => return Ok(Seen::Unknown),
                Err(unfinished) => return Err(unfinished),
            };
            let stamp = engine.stripes.stamp_held(stamp.stripe);
            if self.log.is(at, found.map(|len| (&value[..], len))) {
                self.fresh.push((place, stamp));
                continue;
            }
            self.different.get_or_insert(at);
            long += long_bytes(&value);
            if !self.log.keeps(long) {
                return Ok(Seen::Unknown);
            }
            different.push((place, stamp, at, found.map(|len| (value.clone(), len))));
        }
        if let Some(page) = missing {
            return Err(Restart::Fault(page).into());
        }
        if !set.trees_unchanged() {
            return Ok(Seen::Unknown);
        }
        assert!(
            self.fresh.len() + different.len() <= set.reads.len(),
            "more results than reads"
        );
        self.seen = match different.is_empty() {
            true => Seen::Same,
            false => Seen::Different,
        };
        for (place, stamp, at, value) in different {
            let value = value.as_ref().map(|(bytes, len)| (&bytes[..], *len));
            self.log.replace(at, value);
            self.fresh.push((place, stamp));
        }
        Ok(self.seen)
    }

    /// Copies as much of the current value of the read that is entry `at` of the log as was read;
    /// returns its length, if there is one.
    fn look_at(
        &mut self,
        engine: &Engine,
        set: &WriteSet,
        at: usize,
        value: &mut Vec<u8>,
    ) -> Step<Option<usize>> {
        value.clear();
        let (table, key) = self.log.key_of(at);
        let state = &set.tables[table].state;
        let asked = self.log.asked(at);
        let looked_up = engine.look_up_head(state, (key, asked), self.reader, value);
        let (copied, len, _) = looked_up.inspect_err(|_| {
            let room = WANTED_MAX.saturating_sub(self.wanted.len());
            self.wanted.extend(self.reader.wanted.drain(..).take(room));
        })?;
        let lsn = copied.marks.lsn;
        self.debt.add(engine.debt(lsn, Some((copied.tree, key))));
        Ok(copied.found.then_some(len))
    }
}
