//! Scans over neighbouring elements of a large collection.

use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::{Polled, Reads, ScanPage};

use super::part::{Goal, Load};
use crate::context::{Context, Interrupted, Run};
use crate::data::elements::{self, Kind};

/// Number of leaves that are read before others get a turn, at first: each turn of an EXEC begins
/// with all of its commands before, so that its turns become longer.
const LEAVES_PER_TURN: usize = 8;
/// Most doublings of that number.
const DOUBLINGS_MAX: u32 = 6;
/// Low bits of hashes that the numbers of iterations do not have: they have to be exact in
/// JavaScript.
const CURSOR_SHIFT: u32 = 12;

impl Context<'_> {
    /// Loads the elements at `places`.
    pub(super) fn load_places(
        &mut self,
        members: &Table,
        mut goal: Goal,
        places: Range<usize>,
    ) -> Result<Arc<Load>, Interrupted> {
        goal.count = places.len();
        let behind = goal.head.len().saturating_sub(places.end);
        if goal.count > 0 && places.start > 0 {
            if behind > 0 && self.may_rank_in(members, &goal.head)? {
                let mut key = Vec::new();
                let place = places.start as u64;
                match Reads::of(members).key_from(&goal.prefix(), place, &mut key)? {
                    Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                    Polled::Ready(_) => goal.from = Bound::Included(key),
                }
            } else if behind < places.start {
                let mut end = Vec::new();
                elements::end(goal.head.id, goal.kind, &mut end);
                goal.from = Bound::Excluded(end);
                goal.is_backwards = true;
                goal.skipped = behind;
            } else {
                goal.skipped = places.start;
            }
        }
        self.scanned(members, goal, Self::scan_places)
    }

    /// Loads about so many elements from a place of an iteration on: all that have the same place
    /// come together.
    pub(super) fn load_iterated(
        &mut self,
        members: &Table,
        mut goal: Goal,
        (cursor, count): (u64, usize),
    ) -> Result<Arc<Load>, Interrupted> {
        goal.kind = Kind::Name;
        goal.count = count;
        let mut from = goal.prefix();
        // A number that no iteration has is behind all of them.
        let hash = match cursor >> (u64::BITS - CURSOR_SHIFT) {
            0 => cursor << CURSOR_SHIFT,
            _ => u64::MAX,
        };
        from.extend_from_slice(&hash.to_be_bytes());
        goal.from = Bound::Included(from);
        self.scanned(members, goal, Self::scan_iterated)
    }

    /// Scans leaf by leaf until `scan` says that it has all.
    fn scanned(
        &mut self,
        members: &Table,
        goal: Goal,
        scan: fn(&mut Self, &Table, &mut Load, &mut ScanPage) -> Result<bool, Interrupted>,
    ) -> Result<Arc<Load>, Interrupted> {
        if let Some(done) = self.finished(&goal) {
            return Ok(done);
        }
        let mut load = self.take_load(goal);
        if load.goal.count == 0 {
            return Ok(self.finish(load));
        }
        let mut page = std::mem::take(&mut self.data().scratch.page);
        let mut result = Ok(false);
        let doublings = match self.exec_index {
            Some(_) => self.progress.turns.min(DOUBLINGS_MAX),
            None => 0,
        };
        for _ in 0..LEAVES_PER_TURN << doublings {
            result = self.read_leaf(members, &load, &mut page);
            if result.is_ok() {
                result = scan(self, members, &mut load, &mut page);
            }
            if !matches!(result, Ok(false)) {
                break;
            }
        }
        self.data().scratch.page = page;
        let result = match result {
            Ok(true) => self.check_load(&load),
            Ok(false) => {
                self.progress.turns += 1;
                self.check_load(&load).and(Err(Interrupted::Yield))
            }
            Err(interrupted) => Err(interrupted),
        };
        let mut load = self.unless_interrupted(load, result)?;
        if load.goal.is_backwards {
            load.strings.reverse(load.goal.strings_of_one());
            load.positions.reverse();
        }
        Ok(self.finish(load))
    }

    fn read_leaf(
        &mut self,
        members: &Table,
        load: &Load,
        page: &mut ScanPage,
    ) -> Result<bool, Interrupted> {
        let from = load.from.as_ref().map(Vec::as_slice);
        let goal = &load.goal;
        let batch = self.batch()?;
        let scanned = match goal.is_backwards {
            false => {
                let mut end = Vec::new();
                elements::end(goal.head.id, goal.kind, &mut end);
                batch.scan(members, (from, Bound::Excluded(&end)), page)?
            }
            true => batch.scan_back(members, (from, Bound::Included(&goal.prefix())), page)?,
        };
        if let Polled::Pending(pending) = scanned {
            return Err(Interrupted::Pending(pending));
        }
        self.progress.show_from(page.shown_from);
        Ok(false)
    }

    /// Adds the elements of a leaf that was read. Returns true if nothing is missing.
    fn scan_places(
        &mut self,
        members: &Table,
        load: &mut Load,
        page: &mut ScanPage,
    ) -> Result<bool, Interrupted> {
        let prefix = load.goal.prefix();
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            if !key.starts_with(&prefix) {
                return Err(Interrupted::Torn);
            }
            if load.skipped > 0 {
                load.skipped -= 1;
                continue;
            }
            self.add(members, load, (key, value))?;
            if load.left == 0 {
                return Ok(true);
            }
        }
        match page.next.take() {
            None => return Err(Interrupted::Torn),
            Some(next) if load.goal.is_backwards => load.from = Bound::Excluded(next),
            Some(next) => load.from = Bound::Included(next),
        }
        Ok(false)
    }

    /// Adds the elements of a leaf to an iteration. Returns true if it has enough.
    fn scan_iterated(
        &mut self,
        members: &Table,
        load: &mut Load,
        page: &mut ScanPage,
    ) -> Result<bool, Interrupted> {
        let prefix = load.goal.prefix();
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            if !key.starts_with(&prefix) {
                load.cursor = 0;
                return Ok(true);
            }
            let cursor = elements::hash_of(key) >> CURSOR_SHIFT;
            if load.left == 0 && cursor != load.cursor {
                load.cursor = cursor;
                return Ok(true);
            }
            self.add(members, load, (key, value))?;
            load.cursor = cursor;
            // COUNT is a wish.
            if load.strings.bytes() > self.engine().reply_bytes_max / 4 {
                load.left = 0;
            }
        }
        match page.next.take() {
            None => {
                load.cursor = 0;
                return Ok(true);
            }
            Some(next) => load.from = Bound::Included(next),
        }
        Ok(false)
    }

    /// Adds a row of a leaf; a value that does not lie there is read.
    fn add(
        &mut self,
        members: &Table,
        load: &mut Load,
        (key, value): (&[u8], Option<&[u8]>),
    ) -> Run {
        if let Some(value) = value {
            return Ok(load.add(key, value)?);
        }
        let mut row = Vec::new();
        match self.batch()?.get(members, key, &mut row)? {
            Polled::Pending(pending) => {
                load.from = Bound::Included(key.to_vec());
                Err(Interrupted::Pending(pending))
            }
            Polled::Ready(false) => Err(Interrupted::Torn),
            Polled::Ready(true) => Ok(load.add(key, &row)?),
        }
    }
}
