//! A second look at what a transaction has read, when stripes say that it may have
//! changed (decision 059).
//!
//! A stripe stands for many keys: beside enough writers of other keys the stamps of a transaction
//! that reads many are never all unchanged, though its values are. So one that has met a few
//! conflicts compares the values themselves, with all of its stripes held: what is equal was not
//! changed for it. If something is not, all of it is known as of this moment, and the next run is
//! answered from that.
//!
//! Stripes are tried, and nothing is waited for while they are held: a page that is missing ends
//! the look, and the next one finds it. No batch that writes a key of a stripe that is held is half
//! applied: it holds the stripe until it is applied everywhere.

use pando_format::PageId;
use pando_pool::Restart;
use pando_tree::ValueReader;

use crate::engine::Engine;
use crate::state::read_bounds::Debt;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::read_log::ReadLog;
use crate::writes::set::WriteSet;
use crate::writes::stripes::{Locked, Stamp};

/// Most pages that are asked for at the same time.
const WANTED_MAX: usize = 64;

/// What became of the reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// They are as they were.
    Same,
    /// The log has all of them as they are.
    Different,
    /// Some are not kept, or a table has another tree.
    Unknown,
}

/// Looks again at the reads of one transaction.
#[derive(Debug)]
pub(crate) struct SecondLook<'t> {
    log: &'t mut ReadLog,
    reader: &'t mut ValueReader,
    /// Stamps of reads, by their places, with which they are what the log has.
    fresh: Vec<(usize, Stamp)>,
    debt: Debt,
    /// Pages that were missing, but for the first.
    wanted: Vec<PageId>,
    seen: Seen,
}

/// What a look leaves.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) fresh: Vec<(usize, Stamp)>,
    pub(crate) debt: Debt,
    pub(crate) wanted: Vec<PageId>,
    pub(crate) seen: Seen,
}

impl<'t> SecondLook<'t> {
    pub(crate) fn new(log: &'t mut ReadLog, reader: &'t mut ValueReader) -> Self {
        Self {
            log,
            reader,
            fresh: Vec::new(),
            debt: Debt::NONE,
            wanted: Vec::new(),
            seen: Seen::Unknown,
        }
    }

    pub(crate) fn end(self) -> Looked {
        Looked {
            fresh: self.fresh,
            debt: self.debt,
            wanted: self.wanted,
            seen: self.seen,
        }
    }

    /// Looks at the reads of `set`, whose stripes are those of `locked`.
    pub(crate) fn run(
        &mut self,
        engine: &Engine,
        set: &WriteSet,
        locked: &Locked<'_>,
    ) -> Step<Seen> {
        self.fresh.clear();
        self.seen = Seen::Unknown;
        let mut missing = None;
        let mut different = Vec::new();
        let mut entries = 0;
        let mut value = Vec::new();
        for (place, stamp) in set.reads.iter().enumerate() {
            assert!(locked.holds(*stamp), "what was read is not held");
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
            let found = found.then_some(&value[..]);
            match self.log.is(at, found) {
                true => self.fresh.push((place, stamp)),
                false if ReadLog::keeps(found) => {
                    different.push((place, stamp, at, found.map(<[u8]>::to_vec)));
                }
                false => return Ok(Seen::Unknown),
            }
        }
        if let Some(page) = missing {
            return Err(Restart::Fault(page).into());
        }
        if !set.trees_unchanged() {
            return Ok(Seen::Unknown);
        }
        assert!(
            self.fresh.len() + different.len() <= set.reads.len(),
            "more looks than reads"
        );
        self.seen = match different.is_empty() {
            true => Seen::Same,
            false => Seen::Different,
        };
        for (place, stamp, at, value) in different {
            self.log.replace(at, value.as_deref());
            self.fresh.push((place, stamp));
        }
        Ok(self.seen)
    }

    /// The value of a read as it is now: true if there is one.
    fn look_at(
        &mut self,
        engine: &Engine,
        set: &WriteSet,
        at: usize,
        value: &mut Vec<u8>,
    ) -> Step<bool> {
        value.clear();
        let (table, key) = self.log.key_of(at);
        let state = &set.tables[table].state;
        let copied = engine
            .look_up(state, key, self.reader, value)
            .inspect_err(|_| {
                let room = WANTED_MAX.saturating_sub(self.wanted.len());
                self.wanted.extend(self.reader.wanted.drain(..).take(room));
            })?;
        let lsn = copied.marks.lsn;
        self.debt.add(engine.debt(lsn, Some((copied.tree, key))));
        Ok(copied.found)
    }
}
