//! Scans over neighbouring elements of a large collection.

use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::{Polled, ScanPage};

use super::ahead::{AHEAD_MAX, Ahead};
use super::part::{Goal, Load};
use super::search::Spot;
use super::source::Source;
use crate::context::{Context, Data, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, has_ended};
use crate::data::list_block;
use crate::data::stream_rows::PendingRow;

/// Number of leaves that are read before others get a turn, at first: each turn of an EXEC begins
/// with all of its commands before, so that its turns become longer.
const LEAVES_PER_TURN: usize = 8;
/// Number of elements of a list that are passed over rather than to leave a pipeline run.
const FAR: usize = 2048;
/// Most doublings of that number.
const DOUBLINGS_MAX: u32 = 6;
/// Low bits of hashes that the numbers of iterations do not have: they have to be exact in
/// JavaScript.
const CURSOR_SHIFT: u32 = 12;

/// What is known of a scan before it begins.
struct Scanned<'s> {
    /// What the keys of all elements begin with.
    prefix: [u8; elements::START_BYTES],
    members: &'s Table,
    /// Bytes from which on an iteration ends: COUNT is a wish.
    bytes_max: usize,
    /// Bytes that a load may have.
    load_bytes_max: usize,
    now_ms: u64,
}

/// Adds the elements of a leaf to what was loaded. Returns true if nothing is missing.
type AddLeaf =
    fn(&Scanned<'_>, &mut Source<'_>, &mut Load, &mut ScanPage) -> Result<bool, Interrupted>;

impl Context<'_> {
    /// Loads the elements at `places`.
    pub(super) fn load_places(
        &mut self,
        members: &Table,
        mut goal: Goal,
        places: Range<usize>,
    ) -> Result<Arc<Load>, Interrupted> {
        goal.count = places.len();
        goal.from = Bound::Included(goal.prefix().to_vec());
        if goal.count == 0 {
            return Ok(Arc::new(Load::new(goal)));
        }
        if goal.kind == Kind::Position && goal.head.is_dense() {
            let position = (goal.head.low + places.start as u64).to_be_bytes();
            if goal.count == 1 {
                return self.load_at(members, goal, &position);
            }
            let mut key = Vec::new();
            elements::position_key(goal.head.id, &position, &mut key);
            goal.from = Bound::Included(key);
            return self.scanned(members, (goal, false), add_places);
        }
        let behind = goal.head.len().saturating_sub(places.end);
        let is_end = places.start == 0 || behind == 0;
        if is_end
            && self.is_together
            && let Some(ahead) = &mut self.progress.ahead
            && let Some(load) = ahead.take(&goal, places.start > 0)
        {
            return Ok(load);
        }
        if places.start > 0 {
            if behind > 0 && self.may_rank_in(members, &goal.head)? {
                let mut key = Vec::new();
                let prefix = goal.prefix();
                let from = (&prefix[..], places.start);
                match self.source().key_from(members, from, &mut key)? {
                    Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                    Polled::Ready(_) => goal.from = Bound::Included(key),
                }
            } else if behind < places.start {
                goal.turn_back(behind);
            } else {
                goal.skipped = places.start;
            }
        }
        self.scanned(members, (goal, is_end), add_places)
    }

    /// Loads the blocks of a list that have the elements at `places`, or, if there are none, the
    /// block at the end at which they are not. Also returns the place of the first element that was
    /// loaded.
    pub(super) fn load_blocks(
        &mut self,
        members: &Table,
        mut goal: Goal,
        mut places: Range<usize>,
    ) -> Result<(usize, Arc<Load>), Interrupted> {
        let length = goal.head.len();
        if places.is_empty() {
            places = match places.start {
                0 => 0..1,
                _ => length - 1..length,
            };
        }
        goal.count = places.len();
        goal.from = Bound::Included(goal.prefix().to_vec());
        let behind = length.saturating_sub(places.end);
        if places.start > 0 {
            if behind > 0 && self.may_rank_in(members, &goal.head)? {
                let mut key = Vec::new();
                let prefix = goal.prefix();
                let from = (&prefix[..], places.start);
                match self.source().key_from(members, from, &mut key)? {
                    Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                    Polled::Ready(None) => return Err(Interrupted::Torn),
                    Polled::Ready(Some(before)) => {
                        goal.from = Bound::Included(key);
                        goal.skipped = usize::try_from(before).unwrap_or(usize::MAX);
                    }
                }
            } else if self.is_together && behind.min(places.start) > FAR {
                // The commit of the commands before it is cheaper than to pass over so many.
                return Err(Interrupted::Yield);
            } else if behind < places.start {
                goal.turn_back(behind);
            } else {
                goal.skipped = places.start;
            }
        }
        let is_backwards = goal.is_backwards;
        let load = self.scanned(members, (goal, false), add_places)?;
        let first = match is_backwards {
            false => places.start.checked_sub(load.lead),
            true => (places.end + load.lead).checked_sub(load.strings.len()),
        };
        Ok((first.ok_or(Interrupted::Torn)?, load))
    }

    /// Loads the blocks of a list that have to be known to put something beside an element that was
    /// found. Also returns the place of their first element.
    pub(super) fn load_block(
        &mut self,
        members: &Table,
        mut goal: Goal,
        (spot, is_behind): (&Spot, bool),
    ) -> Result<(usize, Arc<Load>), Interrupted> {
        let mut key = Vec::new();
        let (first, position, count) = spot.part(is_behind, goal.head.len());
        elements::position_key(goal.head.id, position, &mut key);
        (goal.from, goal.count) = (Bound::Included(key), count);
        let load = self.scanned(members, (goal, false), add_places)?;
        Ok((first, load))
    }

    /// Loads the element of a list at a position.
    fn load_at(
        &mut self,
        members: &Table,
        goal: Goal,
        position: &[u8],
    ) -> Result<Arc<Load>, Interrupted> {
        let Data { batch, scratch, .. } = self.data();
        let mut source = Source::new(batch.as_deref_mut());
        let (key, row) = (&mut scratch.element_key, &mut scratch.element_row);
        elements::position_key(goal.head.id, position, key);
        match source.get(members, key, row)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(false) => return Err(Interrupted::Torn),
            Polled::Ready(true) => {}
        }
        let mut load = Load::new(goal);
        load.strings.reserve(1, row.len());
        load.add(key, row)?;
        load.strings.seal();
        let shown_from = source.shown_from;
        self.progress.show_from(shown_from);
        self.check_load(self.loaded_bytes(), &load)?;
        Ok(Arc::new(load))
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
        let mut from = goal.prefix().to_vec();
        // A number that no iteration has is behind all of them.
        let hash = match cursor >> (u64::BITS - CURSOR_SHIFT) {
            0 => cursor << CURSOR_SHIFT,
            _ => u64::MAX,
        };
        from.extend_from_slice(&hash.to_be_bytes());
        goal.from = Bound::Included(from);
        self.scanned(members, (goal, false), add_iterated)
    }

    /// Loads all fields that live.
    pub(super) fn load_living(
        &mut self,
        members: &Table,
        mut goal: Goal,
    ) -> Result<Arc<Load>, Interrupted> {
        goal.living = Some(usize::MAX);
        goal.count = goal.head.len();
        goal.from = Bound::Included(goal.prefix().to_vec());
        self.scanned(members, (goal, false), add_places)
    }

    /// Returns the number of fields that have expired: looks at the rows of their deadlines, and at
    /// no others.
    pub(super) fn scan_expired(
        &mut self,
        members: &Table,
        mut goal: Goal,
    ) -> Result<usize, Interrupted> {
        goal.kind = Kind::Time;
        goal.count = usize::try_from(goal.head.timed).unwrap_or(usize::MAX);
        goal.from = Bound::Included(goal.prefix().to_vec());
        let load = self.scanned(members, (goal, false), pass_expired)?;
        Ok(load.goal.count - load.left)
    }

    /// Loads rows of a stream: at most as many as the goal says, and those between its bounds.
    pub(super) fn load_rows(
        &mut self,
        members: &Table,
        goal: Goal,
    ) -> Result<Arc<Load>, Interrupted> {
        self.scanned(members, (goal, false), add_rows)
    }

    /// Loads rows of a list as they are: as many as the goal says, and so many bytes of them. The
    /// value of the last one is left out, unless the list ends before.
    pub(super) fn load_window(
        &mut self,
        members: &Table,
        goal: Goal,
    ) -> Result<Arc<Load>, Interrupted> {
        self.scanned(members, (goal, false), add_window)
    }

    /// Loads members of a sorted set that lie near a place, of those between the bounds of the
    /// goal.
    pub(super) fn load_around(
        &mut self,
        members: &Table,
        goal: Goal,
    ) -> Result<Arc<Load>, Interrupted> {
        self.scanned(members, (goal, false), add_around)
    }

    /// Returns the number of leaves that are read before others get a turn.
    pub(super) fn leaves_of_turn(&self) -> usize {
        LEAVES_PER_TURN << self.doublings()
    }

    /// Returns how often the length of a turn is doubled.
    pub(super) fn doublings(&self) -> u32 {
        // Whoever has begun again since others wrote must get further in a turn than they do.
        match self.exec_index.is_some() || self.progress.restarts > 0 {
            true => self.progress.turns.min(DOUBLINGS_MAX),
            false => 0,
        }
    }

    /// Scans leaf by leaf until `add_leaf` says that it has all.
    fn scanned(
        &mut self,
        members: &Table,
        (goal, is_end): (Goal, bool),
        add_leaf: AddLeaf,
    ) -> Result<Arc<Load>, Interrupted> {
        if let Some(done) = self.finished(&goal) {
            return Ok(done);
        }
        let mut load = self.take_load(goal);
        if is_end && self.is_together && self.data().batch.is_some() {
            load.ahead = Some(Box::default());
        }
        let (before, most) = (self.loaded_bytes(), self.engine().reply_bytes_max);
        let scanned = Scanned {
            prefix: load.goal.prefix(),
            members,
            bytes_max: most / 4,
            load_bytes_max: most.saturating_sub(before),
            now_ms: self.now_ms,
        };
        let mut result = Ok(false);
        for _ in 0..self.leaves_of_turn() {
            result = self.scan_leaf(&scanned, &mut load, add_leaf);
            if !matches!(result, Ok(false)) {
                break;
            }
        }
        // A load that waits for one page after the other is checked each time, too.
        let result = self.check_load(before, &load).and(match result {
            Ok(true) => Ok(()),
            Ok(false) => {
                self.progress.turns += 1;
                Err(Interrupted::Yield)
            }
            Err(interrupted) => Err(interrupted),
        });
        let mut load = self.unless_interrupted(load, result)?;
        load.put_in_order(load.goal.is_backwards);
        let ahead = load.ahead.take();
        let load = self.finish(load);
        if let Some(ahead) = ahead.and_then(|behind| Ahead::behind(&load, *behind)) {
            self.progress.ahead = Some(Box::new(ahead));
        }
        Ok(load)
    }

    /// Reads one leaf, and adds its elements.
    fn scan_leaf(
        &mut self,
        scanned: &Scanned<'_>,
        load: &mut Load,
        add_leaf: AddLeaf,
    ) -> Result<bool, Interrupted> {
        let from = load.from.as_ref().map(Vec::as_slice);
        let goal = &load.goal;
        // An iteration sees by the next one that it has all of a place.
        let behind = load.ahead.as_ref().map_or(1, |_| AHEAD_MAX);
        let most = load
            .skipped
            .saturating_add(load.left)
            .saturating_add(behind);
        let Data { batch, scratch, .. } = self.data();
        let mut source = Source::new(batch.as_deref_mut());
        let page = &mut scratch.page;
        let end = elements::behind(goal.head.id, goal.kind);
        let until = match (&goal.until, goal.is_backwards) {
            (Some(until), _) => Bound::Included(&until[..]),
            (None, false) => Bound::Excluded(&end[..]),
            (None, true) => Bound::Included(&scanned.prefix[..]),
        };
        let range = ((from, until), goal.is_backwards);
        if let Polled::Pending(pending) = source.scan(scanned.members, range, most, page)? {
            return Err(Interrupted::Pending(pending));
        }
        load.make_room(page.len());
        let added = add_leaf(scanned, &mut source, load, page);
        let shown_from = source.shown_from;
        self.progress.show_from(shown_from);
        added
    }
}

/// Adds elements until none is left of the number that is wanted.
fn add_places(
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    for index in 0..page.len() {
        let (key, value) = page.entry(index);
        if !key.starts_with(&scanned.prefix) {
            return Err(Interrupted::Torn);
        }
        let is_passed = match load.is_of_blocks() {
            true => load.pass_block(list_block::count_of(value)?),
            false => load.skipped > 0 && load.pass_one(),
        };
        if is_passed {
            continue;
        }
        add(scanned, source, load, (key, value))?;
        if load.left == 0 {
            if load.ahead.is_some() {
                add_ahead(scanned, load, (page, index + 1));
            }
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

/// Adds elements of the same leaf, from the entry `from` on, to those that are kept for the next
/// command.
fn add_ahead(scanned: &Scanned<'_>, load: &mut Load, (page, from): (&mut ScanPage, usize)) {
    load.turn_to_ahead();
    let places = from..page.len().min(from + AHEAD_MAX);
    for index in places {
        let (key, Some(value)) = page.entry(index) else {
            break;
        };
        // A damaged one is for the command that needs it.
        if !key.starts_with(&scanned.prefix) || load.add(key, value).is_err() {
            break;
        }
    }
    load.turn_to_ahead();
}

/// Passes over fields by their deadlines until one has not expired.
fn pass_expired(
    scanned: &Scanned<'_>,
    _source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    for index in 0..page.len() {
        let (key, _) = page.entry(index);
        if !key.starts_with(&scanned.prefix) || !has_ended(elements::time_of(key), scanned.now_ms) {
            return Ok(true);
        }
        load.left = load.left.checked_sub(1).ok_or(Interrupted::Torn)?;
    }
    match page.next.take() {
        None => return Ok(true),
        Some(next) => load.from = Bound::Included(next),
    }
    Ok(false)
}

/// Adds rows until none is left of the number that is wanted, or one lies behind the end.
fn add_rows(
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    for index in 0..page.len() {
        let (key, value) = page.entry(index);
        let is_beyond = match (&load.goal.until, load.goal.is_backwards) {
            (None, _) => false,
            (Some(until), false) => key > &until[..],
            (Some(until), true) => key < &until[..],
        };
        if is_beyond || !key.starts_with(&scanned.prefix) {
            return Ok(true);
        }
        if let Some(filter) = load.goal.pending {
            let row = PendingRow::decode(value.ok_or(RowError::Damaged)?)?;
            if !filter.takes(&row, scanned.now_ms) {
                continue;
            }
        }
        add(scanned, source, load, (key, value))?;
        if load.left == 0 {
            return Ok(true);
        }
    }
    match page.next.take() {
        None => return Ok(true),
        Some(next) if load.goal.is_backwards => load.from = Bound::Excluded(next),
        Some(next) => load.from = Bound::Included(next),
    }
    Ok(false)
}

/// Adds rows of a list until they are enough: the last one without its value.
fn add_window(
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    let bytes_max = load.goal.window.unwrap_or_default();
    let mut row = Vec::new();
    for index in 0..page.len() {
        let (key, value) = page.entry(index);
        if !key.starts_with(&scanned.prefix) {
            return Ok(true);
        }
        let length = match value {
            Some(value) => Polled::Ready(Some(value.len())),
            None => source.length(scanned.members, key, &mut row)?,
        };
        let length = match length {
            Polled::Ready(length) => length.ok_or(Interrupted::Torn)?,
            Polled::Pending(pending) => {
                load.from = Bound::Included(key.to_vec());
                return Err(Interrupted::Pending(pending));
            }
        };
        if load.left == 1 || load.strings.bytes() + length > bytes_max {
            load.add(key, &[])?;
            load.left = 0;
            return Ok(true);
        }
        add(scanned, source, load, (key, value))?;
    }
    match page.next.take() {
        None => return Ok(true),
        Some(next) if load.goal.is_backwards => load.from = Bound::Excluded(next),
        Some(next) => load.from = Bound::Included(next),
    }
    Ok(false)
}

/// Adds members that lie where the goal wants them, until they are enough, or one lies behind the
/// end.
fn add_around(
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    let (Some(around), Some(until)) = (load.goal.around, load.goal.until.clone()) else {
        return Ok(true);
    };
    for index in 0..page.len() {
        let (key, value) = page.entry(index);
        if load.strings.len() / 2 >= around.enough
            || key > &until[..]
            || !key.starts_with(&scanned.prefix)
        {
            return Ok(true);
        }
        let Some(distance) = around.distance(elements::score_of(key)?) else {
            continue;
        };
        let Some(order) = around.order else {
            add(scanned, source, load, (key, value))?;
            continue;
        };
        let last = load.last_distance;
        if last.is_none_or(|last| order.compare(distance, last).is_lt()) {
            add(scanned, source, load, (key, value))?;
            if order.is_to_be_cut(load.strings.len() / 2) {
                load.cut_to((&around, order))?;
            }
        }
    }
    match page.next.take() {
        None => return Ok(true),
        Some(next) => load.from = Bound::Included(next),
    }
    Ok(false)
}

/// Adds elements to an iteration until it has enough, and all of its last place.
fn add_iterated(
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    page: &mut ScanPage,
) -> Result<bool, Interrupted> {
    for index in 0..page.len() {
        let (key, value) = page.entry(index);
        if !key.starts_with(&scanned.prefix) {
            load.cursor = 0;
            return Ok(true);
        }
        let cursor = elements::hash_of(key) >> CURSOR_SHIFT;
        if load.left == 0 && cursor != load.cursor {
            load.cursor = cursor;
            return Ok(true);
        }
        add(scanned, source, load, (key, value))?;
        load.cursor = cursor;
        if load.strings.bytes() > scanned.bytes_max {
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
    scanned: &Scanned<'_>,
    source: &mut Source<'_>,
    load: &mut Load,
    (key, value): (&[u8], Option<&[u8]>),
) -> Run {
    if load.goal.kind.is_plain() && !load.goal.has_values {
        return Ok(load.add(key, &[])?);
    }
    if let Some(value) = value {
        return Ok(load.add_living((key, value), scanned.now_ms)?);
    }
    let mut row = Vec::new();
    match source.get(scanned.members, key, &mut row)? {
        Polled::Pending(pending) => {
            load.from = Bound::Included(key.to_vec());
            Err(Interrupted::Pending(pending))
        }
        Polled::Ready(false) => Err(Interrupted::Torn),
        // A leaf may name many long values.
        Polled::Ready(true) if load.strings.bytes() + row.len() > scanned.load_bytes_max => {
            Err(replies::TOO_LONG_TO_LOAD.into())
        }
        Polled::Ready(true) => Ok(load.add_living((key, &row), scanned.now_ms)?),
    }
}
