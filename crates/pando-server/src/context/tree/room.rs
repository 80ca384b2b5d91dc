//! Room between the rows of a list: the positions of rows that are put between two others.
//!
//! Such a position lies halfway between those of its neighbours, so it gets a bit longer with each
//! row that is put at the same place. Before positions become long, the rows around get new ones,
//! at equal distances between their outer neighbours (decision 118): a window of few rows, and
//! twice as many as long as that leaves them nearly as long. What the rows have is not looked at.

use std::borrow::Cow;
use std::ops::Bound;

use pandodb::nonblocking::{Polled, ScanPage};

use super::part::{Goal, Load, Loaded};
use super::position::{Opening, Places, Spread, between, spread};
use crate::context::{Context, Interrupted};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::ValueType;
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

/// The rows around get new positions before one has more bytes than this, or this and a number of
/// steps. So if there was no room in any window, the next try is not at once.
const LEVEL_BYTES: usize = 48;
const STEP_BYTES: usize = 16;
/// Positions of so many bytes have room for many others between them.
const ROOMY_BYTES: usize = 24;
/// By how much the new ones must be shorter, if possible, and at least.
const GAIN_BYTES: usize = 8;
const GAIN_BYTES_MIN: usize = 2;
/// Most bytes of a position: with it, the longest block lies in its leaf, also in pages of 4 KiB.
/// One that lies elsewhere would weigh 1 (decision 117).
const POSITION_BYTES_MAX: usize = 768;
/// Rows of the first window on each side of the place, and of the last one.
const ROWS_MIN: usize = 8;
const ROWS_MAX: usize = 512;
/// Most bytes of a window.
const WINDOW_BYTES: usize = 1024 * 1024;
/// Positions with more bytes are near their end: a window may have more.
const LAST_BYTES: usize = POSITION_BYTES_MAX / 2;
/// The reply if the positions between two rows are used up. Nobody comes that far unless most rows
/// are too long to be moved (decision 118).
const CROWDED: &str = "ERR too many elements were inserted at this place of the list: copy it with \
                       COPY, and go on with the copy";

/// Positions in their order.
type Positions = Vec<Vec<u8>>;

/// Rows that got other positions: the old and the new one of each, in their order.
type Moved = Vec<(Vec<u8>, Vec<u8>)>;

/// Rows around a place, in their order.
trait Window {
    /// Returns the positions between which they lie.
    fn outer(&self) -> (&[u8], &[u8]);
    /// Returns how many lie below the place, and above it.
    fn counts(&self) -> [usize; 2];
    /// Returns true if a larger one may have more rows.
    fn may_grow(&self) -> bool;
}

/// Returns the bytes that no position has yet if one between these is to have some more: the rows
/// around are to get new ones then.
fn level_of(below: &[u8], above: &[u8], added: &[Vec<u8>]) -> Option<usize> {
    let longest = added.iter().map(Vec::len).max()?;
    if longest > POSITION_BYTES_MAX {
        return Some(POSITION_BYTES_MAX);
    }
    let level = (longest.max(1) - 1) / STEP_BYTES * STEP_BYTES;
    let is_first = below.len() <= level && above.len() <= level;
    (level >= LEVEL_BYTES && is_first).then_some(level)
}

/// Returns a window of rows, and new positions for them; `None` if none makes these shorter than
/// `level`. `load` returns one of so many rows on each side.
///
/// If they are not short, it is one of which the double has not much more room: else the rows that
/// were put here lie on both sides of its end, and with them most of the room.
fn roomy<W: Window, E>(
    level: usize,
    mut load: impl FnMut(usize) -> Result<W, E>,
) -> Result<Option<(W, Positions)>, E> {
    let (mut rows, mut smaller) = (ROWS_MIN, None::<(W, Spread)>);
    let longest = |of: &Spread| of.positions.iter().map(Vec::len).max().unwrap_or(level);
    loop {
        let window = load(rows)?;
        let (low, high) = window.outer();
        let Some(spread) = spread(low, high, window.counts()) else {
            return Ok(None);
        };
        if longest(&spread) <= ROOMY_BYTES {
            return Ok(Some((window, spread.positions)));
        }
        if let Some((smaller, of)) = smaller.take()
            && longest(&of) + GAIN_BYTES <= level
            && of.zeros <= spread.zeros
        {
            return Ok(Some((smaller, of.positions)));
        }
        if !window.may_grow() || rows >= ROWS_MAX {
            let gains = longest(&spread) + GAIN_BYTES_MIN <= level;
            return Ok(gains.then_some((window, spread.positions)));
        }
        smaller = Some((window, spread));
        rows *= 2;
    }
}

/// Rows that were read in both directions from a place on; the last one on each side may be the
/// outer neighbour of the others.
struct Read {
    sides: [pando_sync::Arc<Load>; 2],
    /// Of rows that are not there: what lies beyond all of a list.
    beyond: [[u8; 8]; 2],
}

impl Read {
    /// Returns true if there are further rows on that side.
    fn has_outer(&self, side: usize) -> bool {
        self.sides[side].left == 0
    }

    /// Returns positions and values.
    fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let [before, after] = self.counts();
        let row = |side: usize, place: usize| {
            let strings = &self.sides[side].strings;
            (strings.at(2 * place), strings.at(2 * place + 1))
        };
        // The outer one is the first one below, and the last one above.
        let skipped = usize::from(self.has_outer(0));
        let before = (skipped..skipped + before).map(move |place| row(0, place));
        before.chain((0..after).map(move |place| row(1, place)))
    }
}

impl Window for Read {
    fn outer(&self) -> (&[u8], &[u8]) {
        let strings = [0, 1].map(|side| &self.sides[side].strings);
        let low = match self.has_outer(0) {
            true => strings[0].at(0),
            false => &self.beyond[0],
        };
        let high = match self.has_outer(1) {
            true => strings[1].at(strings[1].len() - 2),
            false => &self.beyond[1],
        };
        (low, high)
    }

    fn counts(&self) -> [usize; 2] {
        let count = |side: usize| self.sides[side].strings.len() / 2;
        [0, 1].map(|side| count(side) - usize::from(self.has_outer(side)))
    }

    fn may_grow(&self) -> bool {
        let is_full = |load: &Load| load.strings.len() / 2 == load.goal.count;
        self.sides.iter().any(|load| is_full(load))
    }
}

impl Context<'_> {
    /// Returns positions for rows that are put between others of a list with this head, and have
    /// `added` bytes. Gives the rows around new ones if there is no room.
    pub(super) fn places<'l>(
        &mut self,
        head: &mut TreeHead,
        loaded: &'l Loaded,
        (openings, added): (&[Opening], usize),
    ) -> Result<Places<'l>, Interrupted> {
        let mut places = Places::new(&loaded.load.positions, Vec::new());
        let mut all = Vec::new();
        for opening in openings {
            let (mut positions, level) = self.halfway(head.id, &places.loaded, *opening)?;
            if let Some(level) = level
                && let below = places.loaded.at(opening.below).to_vec()
                && let Some(moved) = self.make_way(head, &below, (level, added))?
            {
                rename(places.loaded.to_mut(), &moved);
                (positions, _) = self.halfway(head.id, &places.loaded, *opening)?;
            }
            if positions.iter().any(|of| of.len() > POSITION_BYTES_MAX) {
                return Err(CROWDED.into());
            }
            all.append(&mut positions);
        }
        head.is_numbered &= all.is_empty();
        places.between = all.into_iter();
        Ok(places)
    }

    /// Returns positions for the rows of an opening, each halfway between the one before and the
    /// row above, and whether the rows around are to get new ones, as [`level_of`].
    fn halfway(
        &mut self,
        id: u64,
        loaded: &Strings,
        opening: Opening,
    ) -> Result<(Vec<Vec<u8>>, Option<usize>), Interrupted> {
        let below = loaded.at(opening.below);
        let above = match opening.below + 1 < loaded.len() {
            true => Cow::Borrowed(loaded.at(opening.below + 1)),
            false => Cow::Owned(self.position_above(id, below)?),
        };
        let mut all: Vec<Vec<u8>> = Vec::with_capacity(opening.missing);
        for _ in 0..opening.missing {
            let position = between(all.last().map_or(below, Vec::as_slice), &above);
            all.push(position);
        }
        let level = level_of(below, &above, &all);
        Ok((all, level))
    }

    /// Gives rows around the one at `below` new positions, if that makes them shorter than `level`.
    fn make_way(
        &mut self,
        head: &mut TreeHead,
        below: &[u8],
        (level, added): (usize, usize),
    ) -> Result<Option<Moved>, Interrupted> {
        let written = self.batch()?.written_bytes();
        let left = self.engine().row_bytes_max.saturating_sub(written + added);
        // Beside what the command writes, and those behind it in an EXEC.
        let bytes = match level < LAST_BYTES {
            true => WINDOW_BYTES.min(left / 4),
            false => left / 2,
        };
        let memory = self
            .engine()
            .reply_bytes_max
            .saturating_sub(self.loaded_bytes());
        let bytes = bytes.min(memory / 4);
        let read = |rows| self.read_around(head, below, (rows, bytes / 2));
        let Some((window, positions)) = roomy(level, read)? else {
            return Ok(None);
        };
        let lowest = u64::from(!window.has_outer(0));
        let rows = || window.rows().zip(&positions);
        let mut changes = self.changes(head)?;
        // All of them first: the new position of a row may be the old one of another.
        rows().for_each(|((old, _), _)| changes.delete_element(head.id, old));
        for ((_, value), new) in rows() {
            elements::position_key(head.id, new, &mut changes.key);
            changes.row.clear();
            changes.row.extend_from_slice(value);
            changes.put_at_position()?;
        }
        let buffers = changes.finish(head);
        self.give_back(buffers);
        head.low -= lowest;
        head.is_numbered = false;
        let moved = rows().map(|((old, _), new)| (old.to_vec(), new.clone()));
        Ok(Some(moved.collect()))
    }

    /// Reads up to so many rows, and so many bytes of them, on each side of the gap above `below`.
    fn read_around(
        &mut self,
        head: &TreeHead,
        below: &[u8],
        (rows, bytes): (usize, usize),
    ) -> Result<Read, Interrupted> {
        let members = self.members()?;
        let mut key = Vec::new();
        elements::position_key(head.id, below, &mut key);
        let goal = |context: &Self, from, is_backwards| Goal {
            from,
            is_backwards,
            // One more: the outer neighbour.
            count: rows + 1,
            window: Some(bytes),
            ..context.goal(ValueType::List, *head)
        };
        let before = goal(self, Bound::Included(key.clone()), true);
        let before = self.load_window(members, before)?;
        // Excludes the row itself: no key lies between.
        key.push(0);
        let after = goal(self, Bound::Included(key), false);
        let after = self.load_window(members, after)?;
        Ok(Read {
            sides: [before, after],
            beyond: [head.low - 1, head.high + 1].map(u64::to_be_bytes),
        })
    }

    /// Returns the position of the row behind that at `position`.
    fn position_above(&mut self, id: u64, position: &[u8]) -> Result<Vec<u8>, Interrupted> {
        let prefix = elements::start(id, Kind::Position);
        let end = elements::behind(id, Kind::Position);
        let mut from = Vec::new();
        elements::position_key(id, position, &mut from);
        from.push(0);
        let members = self.members()?;
        let mut page = ScanPage::default();
        loop {
            let range = (Bound::Included(&from[..]), Bound::Excluded(&end[..]));
            if let Polled::Pending(pending) = self.batch()?.scan(members, range, 1, &mut page)? {
                return Err(Interrupted::Pending(pending));
            }
            if !page.is_empty() {
                let (key, _) = page.entry(0);
                let position = key.strip_prefix(&prefix[..]);
                return position.map(<[u8]>::to_vec).ok_or(Interrupted::Torn);
            }
            from = page.next.take().ok_or(Interrupted::Torn)?;
        }
    }
}

/// Gives positions that were moved their new names; both are in their order.
fn rename(positions: &mut Strings, moved: &[(Vec<u8>, Vec<u8>)]) {
    for place in 0..positions.len() {
        let found = moved.binary_search_by(|(old, _)| old[..].cmp(positions.at(place)));
        if let Ok(found) = found {
            positions.set(place, &moved[found].1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use fastrand::Rng;

    /// A list in memory: the positions of its rows.
    struct Rows {
        positions: Vec<Vec<u8>>,
        low: u64,
        high: u64,
        /// Number of rows that got new positions, and rows of the largest window.
        moved: usize,
        largest: usize,
        /// Most rows of a window on each side.
        rows_max: usize,
    }

    struct Around<'r> {
        rows: &'r [Vec<u8>],
        outer: (Vec<u8>, Vec<u8>),
        may_grow: bool,
        from: usize,
        before: usize,
    }

    impl Window for Around<'_> {
        fn outer(&self) -> (&[u8], &[u8]) {
            (&self.outer.0, &self.outer.1)
        }

        fn counts(&self) -> [usize; 2] {
            [self.before, self.rows.len() - self.before]
        }

        fn may_grow(&self) -> bool {
            self.may_grow
        }
    }

    impl Rows {
        fn new(count: u64, rows_max: usize) -> Self {
            let (low, high) = (1 << 62, (1 << 62) + count - 1);
            Self {
                positions: (low..=high).map(|of| of.to_be_bytes().to_vec()).collect(),
                low,
                high,
                moved: 0,
                largest: 0,
                rows_max,
            }
        }

        fn around(&self, below: usize, rows: usize) -> Around<'_> {
            let all = &self.positions;
            let rows = rows.min(self.rows_max);
            let from = (below + 1).saturating_sub(rows);
            let to = (below + 1 + rows).min(all.len());
            let beyond = [self.low - 1, self.high + 1].map(|of| of.to_be_bytes().to_vec());
            let [low, high] = beyond;
            let before = from.checked_sub(1).map(|at| all[at].clone());
            Around {
                rows: &all[from..to],
                outer: (before.unwrap_or(low), all.get(to).cloned().unwrap_or(high)),
                may_grow: (from > 0 || to < all.len()) && rows < self.rows_max,
                from,
                before: below + 1 - from,
            }
        }

        /// Puts a row behind the one at `below`. Returns the length of its position.
        fn insert(&mut self, below: usize) -> usize {
            let halfway = |all: &[Vec<u8>]| between(&all[below], &all[below + 1]);
            let mut position = halfway(&self.positions);
            let (low, high) = (&self.positions[below], &self.positions[below + 1]);
            if let Some(level) = level_of(low, high, std::slice::from_ref(&position)) {
                let load = |rows| Ok::<_, Infallible>(self.around(below, rows));
                let found = roomy(level, load).unwrap();
                if let Some((from, new)) = found.map(|(of, new)| (of.from, new)) {
                    self.low -= u64::from(from == 0);
                    self.moved += new.len();
                    self.largest = self.largest.max(new.len());
                    self.positions.splice(from..from + new.len(), new);
                    position = halfway(&self.positions);
                }
            }
            let length = position.len();
            self.positions.insert(below + 1, position);
            length
        }

        fn check(&self) {
            assert!(self.positions.is_sorted_by(|one, other| one < other));
            let first = self.positions.first().unwrap();
            assert!(first[..] >= self.low.to_be_bytes()[..]);
        }
    }

    /// What insertions have taken: the longest position, and rows that were moved for each 1,000.
    #[derive(Debug)]
    struct Taken {
        longest: usize,
        moved: usize,
        largest: usize,
    }

    const COUNT: usize = 10_000;

    /// Inserts rows where `place` says, by the number of the row and that of all.
    fn insert_at(rows_max: usize, mut place: impl FnMut(usize, usize) -> usize) -> Taken {
        let (mut rows, mut longest) = (Rows::new(400, rows_max), 0);
        for number in 0..COUNT {
            let below = place(number, rows.positions.len());
            longest = longest.max(rows.insert(below.min(rows.positions.len() - 2)));
        }
        rows.check();
        let moved = rows.moved * 1000 / COUNT;
        Taken {
            longest,
            moved,
            largest: rows.largest,
        }
    }

    #[test]
    fn positions_stay_short_wherever_rows_are_inserted() {
        let mut random = Rng::with_seed(1);
        let mut sides = Rng::with_seed(2);
        type Place<'p> = Box<dyn FnMut(usize, usize) -> usize + 'p>;
        let runs = |number: usize, length: usize| match number / length % 2 {
            0 => 200 + number / (2 * length) * length,
            _ => 200 + number / (2 * length) * length + number % (2 * length),
        };
        let places: [(&str, Place<'_>); 12] = [
            ("behind one", Box::new(|_, _| 200)),
            (
                "each behind the last one",
                Box::new(|number, _| 200 + number),
            ),
            ("at the beginning", Box::new(|_, _| 0)),
            ("before the last one", Box::new(|_, all| all - 2)),
            ("in turns", Box::new(|number, _| 200 + number / 2)),
            (
                "one of three on one side",
                Box::new(|number, _| 200 + number.div_ceil(3)),
            ),
            (
                "one of five on one side",
                Box::new(|number, _| 200 + number.div_ceil(5)),
            ),
            (
                "on either side",
                Box::new(|number, _| 200 + number / 2 + sides.usize(..2)),
            ),
            ("in runs of 7", Box::new(|number, _| runs(number, 7))),
            ("in runs of 20", Box::new(|number, _| runs(number, 20))),
            (
                "at changing places",
                Box::new(|number, all| number / 500 * 7919 % (all - 1)),
            ),
            ("anywhere", Box::new(|_, all| random.usize(..all - 1))),
        ];
        for (name, place) in places {
            let taken = insert_at(ROWS_MAX, place);
            assert!(taken.longest <= LEVEL_BYTES, "{name}: {taken:?}");
            assert!(taken.moved <= 2000, "{name}: {taken:?}");
            assert!(taken.largest <= 2 * ROWS_MAX, "{name}: {taken:?}");
        }
    }

    /// Of rows that are long a window has few: eight on each side do if all come behind one row, 32
    /// if they come in turns.
    #[test]
    fn windows_of_few_rows_are_enough() {
        let behind = insert_at(8, |_, _| 200);
        assert!(behind.longest <= LEVEL_BYTES, "{behind:?}");
        for (rows_max, longest) in [(0, 1258), (8, 1258), (32, 48)] {
            let taken = insert_at(rows_max, |number, _| 200 + number / 2);
            assert_eq!(taken.longest, longest, "{rows_max}: {taken:?}");
        }
    }
}
