//! What a serializable transaction has read, as spans of keys: its commit succeeds only if nobody
//! has written into one of them since (decision 068).
//!
//! The set has a bound in bytes. Beyond it neighbouring spans are joined: what lies between them
//! then counts as read, too, which may cause conflicts, but misses none.
//!
//! Most transactions read a few keys and commit. So single keys are first appended to a buffer, as
//! they come. They are sorted in among the spans, each once, when there are many of them.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

use pando_sync::Arc;
use pando_tree::Tree;

use crate::tables::state::TableState;
use crate::writes::stripes::{StripeIndex, Stripes};

/// Bytes that a span takes besides its keys.
const SPAN_BYTES: usize = 64;
/// Bytes that a recent key takes besides its own.
const KEY_BYTES: usize = size_of::<usize>() + size_of::<StripeIndex>();
/// Most recent keys of one table.
const RECENT_MAX: usize = 1024;

/// The spans that one transaction has read. Reusable: [`ReadSet::empty`] keeps the memory.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    tables: Vec<TableReads>,
    /// First table of the previous use, without reads. Taking this handle again does not write its
    /// reference count, which all threads share.
    last_table: Option<TableReads>,
    /// Bytes of all spans.
    bytes: usize,
    /// Upper bound of `bytes`, unless each table has a single span.
    limit: usize,
    /// The range that an iterator reads, or read last.
    passing: Option<Box<Passing>>,
}

/// The spans of one table.
#[derive(Debug)]
pub(crate) struct TableReads {
    pub(crate) state: Arc<TableState>,
    /// The tree that was read.
    pub(crate) tree: Tree,
    /// By the least key of each span. They neither overlap nor touch, except that single keys may
    /// touch others.
    spans: BTreeMap<Vec<u8>, SpanEnd>,
    recent: RecentKeys,
}

/// Keys in the order in which they were read, some perhaps more than once.
#[derive(Debug, Default)]
struct RecentKeys {
    bytes: Vec<u8>,
    /// Where each key ends in `bytes`.
    ends: Vec<usize>,
    /// The stripe of each key.
    stripes: Vec<StripeIndex>,
}

impl RecentKeys {
    fn push(&mut self, key: &[u8], stripe: StripeIndex) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        self.stripes.push(stripe);
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ends = self.ends.iter().copied();
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    /// Bytes that are kept for the next use.
    fn capacity(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * KEY_BYTES
    }

    /// Forgets the keys.
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.stripes.clear();
    }
}

/// Where a span ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SpanEnd {
    /// It has only the key that it begins with.
    Key,
    /// It has the keys below this one.
    Before(Vec<u8>),
    /// It has all keys from its first on.
    Unbounded,
}

impl SpanEnd {
    fn bytes(&self) -> usize {
        match self {
            Self::Key | Self::Unbounded => 0,
            Self::Before(key) => key.len(),
        }
    }

    /// Returns whether a span from `start`, which is at most `key`, has `key`.
    fn has(&self, start: &[u8], key: &[u8]) -> bool {
        match self {
            Self::Key => start == key,
            Self::Before(end) => key < &end[..],
            Self::Unbounded => true,
        }
    }

    /// Returns the end in the form of a range.
    fn of_range(self, start: &[u8]) -> Self {
        match self {
            Self::Key => Self::Before(successor(start)),
            other => other,
        }
    }

    /// Compares two ends of ranges.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Before(one), Self::Before(other)) => one.cmp(other),
            (Self::Unbounded, Self::Unbounded) => Ordering::Equal,
            (Self::Unbounded, _) => Ordering::Greater,
            (_, Self::Unbounded) => Ordering::Less,
            (Self::Key, _) | (_, Self::Key) => unreachable!("both are ends of ranges"),
        }
    }
}

/// A range of which an iterator has passed a part at each end.
#[derive(Debug)]
struct Passing {
    state: Arc<TableState>,
    tree: Tree,
    low: Bound<Vec<u8>>,
    high: Bound<Vec<u8>>,
    /// The last key that was passed, from either end.
    front: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
    /// The ends have met.
    is_whole: bool,
}

/// A span, as a check sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span<'r> {
    Key(&'r [u8]),
    /// From the first key on, to the keys below the second, or to the end.
    Range(&'r [u8], Option<&'r [u8]>),
}

impl ReadSet {
    /// Has the set, which is empty, take at most about `limit` bytes.
    pub(crate) fn begin(&mut self, limit: usize) {
        debug_assert!(self.tables.is_empty() && self.bytes == 0, "reads of others");
        self.limit = limit;
    }

    /// Forgets everything but the memory, and a handle of the first table. Returns false if it has
    /// grown beyond `bytes_max`.
    pub(crate) fn empty(&mut self, bytes_max: usize) -> bool {
        self.passing = None;
        self.bytes = 0;
        if let Some(mut table) = self.tables.drain(..).next() {
            table.spans.clear();
            table.recent.clear();
            self.last_table = Some(table);
        }
        let last = self.last_table.as_ref();
        last.is_none_or(|table| table.recent.capacity() <= bytes_max)
    }

    /// Returns the position of a table of which something was read before.
    #[inline]
    pub(crate) fn position(&self, state: &Arc<TableState>) -> Option<usize> {
        let mut tables = self.tables.iter();
        tables.position(|reads| Arc::ptr_eq(&reads.state, state))
    }

    /// Adds a key of the table at `table`, which was read in the tree that the table had at the
    /// snapshot.
    #[inline]
    pub(crate) fn add_key(&mut self, table: usize, key: &[u8], stripes: &Stripes) {
        self.settle();
        let reads = &mut self.tables[table];
        reads.recent.push(key, stripes.of(reads.tree.id, key));
        self.bytes += key.len() + KEY_BYTES;
        if reads.recent.ends.len() >= RECENT_MAX || self.bytes > self.limit {
            self.make_small();
        }
    }

    /// Sorts the recent keys in, and joins neighbours until the set is within its bound.
    #[cold]
    fn make_small(&mut self) {
        self.bytes = self.tables.iter_mut().map(TableReads::sort_in).sum();
        self.join_beyond_limit();
    }

    /// Notes that an iterator over a range of `tree` has begun. It tells with the three calls below
    /// how far it has come.
    pub(crate) fn begin_range(
        &mut self,
        (state, tree): (&Arc<TableState>, Tree),
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) {
        self.settle();
        self.passing = Some(Box::new(Passing {
            state: state.clone(),
            tree,
            low,
            high,
            front: None,
            back: None,
            is_whole: false,
        }));
    }

    /// Notes that the iterator has read all keys of its range up to `key`.
    pub(crate) fn pass_front(&mut self, key: &[u8]) {
        if let Some(passing) = &mut self.passing {
            debug_assert!(
                passing.front.as_deref().is_none_or(|last| last < key),
                "an iterator goes forward at its front"
            );
            replace(&mut passing.front, key);
        }
    }

    /// Notes that the iterator has read all keys of its range from `key` on.
    pub(crate) fn pass_back(&mut self, key: &[u8]) {
        if let Some(passing) = &mut self.passing {
            debug_assert!(
                passing.back.as_deref().is_none_or(|last| last > key),
                "an iterator goes backward at its back"
            );
            replace(&mut passing.back, key);
        }
    }

    /// Notes that the iterator has read its whole range.
    pub(crate) fn pass_all(&mut self) {
        if let Some(passing) = &mut self.passing {
            passing.is_whole = true;
        }
    }

    /// Adds what the last iterator has passed.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if let Some(passing) = self.passing.take() {
            self.settle_range(*passing);
        }
    }

    fn settle_range(&mut self, passing: Passing) {
        let Passing {
            state,
            tree,
            low,
            high,
            front,
            back,
            is_whole,
        } = passing;
        if is_whole {
            return self.add_range((&state, tree), low, high);
        }
        if let Some(front) = front {
            self.add_range((&state, tree), low, Bound::Included(front));
        }
        if let Some(back) = back {
            self.add_range((&state, tree), Bound::Included(back), high);
        }
    }

    fn add_range(
        &mut self,
        (state, tree): (&Arc<TableState>, Tree),
        low: Bound<Vec<u8>>,
        high: Bound<Vec<u8>>,
    ) {
        let start = match low {
            Bound::Included(key) => key,
            Bound::Excluded(key) => successor(&key),
            Bound::Unbounded => Vec::new(),
        };
        let end = match high {
            Bound::Included(key) => SpanEnd::Before(successor(&key)),
            Bound::Excluded(key) => SpanEnd::Before(key),
            Bound::Unbounded => SpanEnd::Unbounded,
        };
        if let SpanEnd::Before(end) = &end {
            if *end <= start {
                return;
            }
            if *end == successor(&start) {
                let table = self.table(state, tree);
                self.bytes += self.tables[table].insert_key(&start);
                return self.join_beyond_limit();
            }
        }
        let table = self.table(state, tree);
        self.bytes = self.tables[table].insert(start, end, self.bytes);
        self.join_beyond_limit();
    }

    /// Returns the position of a table, and adds it if it is new. `tree` is what it has at the
    /// snapshot.
    pub(crate) fn table(&mut self, state: &Arc<TableState>, tree: Tree) -> usize {
        let known = self.position(state);
        assert!(
            known.is_none_or(|at| self.tables[at].tree == tree),
            "a table has one tree at a snapshot"
        );
        known.unwrap_or_else(|| {
            let last = self.last_table.take();
            let again = last.filter(|last| Arc::ptr_eq(&last.state, state));
            let new = || TableReads {
                state: state.clone(),
                tree,
                spans: BTreeMap::new(),
                recent: RecentKeys::default(),
            };
            let again = again.map(|last| TableReads { tree, ..last });
            self.tables.push(again.unwrap_or_else(new));
            self.tables.len() - 1
        })
    }

    /// Bytes of all spans, about.
    pub(crate) fn memory(&self) -> usize {
        self.bytes
    }

    /// Has it take half as much as it does now, and not more from now on.
    pub(crate) fn halve(&mut self) {
        self.limit = self.bytes / 2;
        self.join_beyond_limit();
    }

    /// Joins neighbours until the set is within its bound.
    fn join_beyond_limit(&mut self) {
        if self.bytes > self.limit {
            self.bytes = self.tables.iter_mut().map(TableReads::sort_in).sum();
        }
        while self.bytes > self.limit && self.tables.iter().any(|table| table.spans.len() > 1) {
            self.bytes = self.tables.iter_mut().map(TableReads::join_pairs).sum();
        }
    }

    /// Returns the reads of each table. What the last iterator has passed was settled before.
    pub(crate) fn tables(&self) -> &[TableReads] {
        assert!(self.passing.is_none(), "reads that were not settled");
        &self.tables
    }

    /// Returns whether nothing was read.
    pub(crate) fn is_empty(&self) -> bool {
        let mut tables = self.tables().iter();
        tables.all(|table| table.spans.is_empty() && table.recent.ends.is_empty())
    }

    /// Returns the number of keys, if there are no ranges. A key that was read several times may
    /// count as several.
    pub(crate) fn count_of_keys(&self) -> Option<usize> {
        let mut count = 0;
        for table in self.tables() {
            if table.spans.values().any(|end| *end != SpanEnd::Key) {
                return None;
            }
            count += table.spans.len() + table.recent.ends.len();
        }
        Some(count)
    }
}

impl TableReads {
    /// Returns the spans, but for the recent keys.
    pub(crate) fn spans(&self) -> impl Iterator<Item = Span<'_>> {
        self.spans.iter().map(|(start, end)| match end {
            SpanEnd::Key => Span::Key(start),
            SpanEnd::Before(end) => Span::Range(start, Some(end)),
            SpanEnd::Unbounded => Span::Range(start, None),
        })
    }

    /// Returns the recent keys. Some may be within spans.
    pub(crate) fn recent(&self) -> impl Iterator<Item = (&[u8], StripeIndex)> {
        self.recent.iter().zip(self.recent.stripes.iter().copied())
    }

    /// Returns the stripes of the recent keys.
    pub(crate) fn recent_stripes(&self) -> &[StripeIndex] {
        &self.recent.stripes
    }

    /// Sorts the recent keys in among the spans. Returns the bytes of all.
    fn sort_in(&mut self) -> usize {
        let recent = std::mem::take(&mut self.recent);
        for key in recent.iter() {
            self.insert_key(key);
        }
        let of_span = |(start, end): (&Vec<u8>, &SpanEnd)| start.len() + end.bytes() + SPAN_BYTES;
        self.spans.iter().map(of_span).sum()
    }

    /// Inserts a single key. Returns the bytes that it takes.
    fn insert_key(&mut self, key: &[u8]) -> usize {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let before = self.spans.range::<[u8], _>(up_to).next_back();
        if before.is_some_and(|(start, end)| end.has(start, key)) {
            return 0;
        }
        self.spans.insert(key.to_vec(), SpanEnd::Key);
        key.len() + SPAN_BYTES
    }

    /// Inserts a range, and joins it with those that it meets. `bytes` is what the whole set takes;
    /// returns what it takes then.
    fn insert(&mut self, mut start: Vec<u8>, mut end: SpanEnd, mut bytes: usize) -> usize {
        let up_to = (Bound::Unbounded, Bound::Included(&start[..]));
        let before = self.spans.range::<[u8], _>(up_to).next_back();
        let meets = |(from, to): (&Vec<u8>, &SpanEnd)| match to.clone().of_range(from) {
            SpanEnd::Before(to) => to >= start,
            SpanEnd::Unbounded | SpanEnd::Key => true,
        };
        if let Some((from, _)) = before.filter(|span| meets(*span)) {
            start = from.clone();
        }
        loop {
            let from_start = (Bound::Included(&start[..]), Bound::Unbounded);
            let next = self.spans.range::<[u8], _>(from_start).next();
            let Some((from, _)) = next else { break };
            if matches!(&end, SpanEnd::Before(end) if end < from) {
                break;
            }
            let from = from.clone();
            let to = self.spans.remove(&from).expect("it was just found");
            bytes -= from.len() + to.bytes() + SPAN_BYTES;
            let to = to.of_range(&from);
            if to.compare(&end).is_gt() {
                end = to;
            }
        }
        bytes += start.len() + end.bytes() + SPAN_BYTES;
        self.spans.insert(start, end);
        bytes
    }

    /// Joins each second span with the one before it. Returns the bytes of all.
    fn join_pairs(&mut self) -> usize {
        let mut bytes = 0;
        let mut spans = std::mem::take(&mut self.spans).into_iter();
        while let Some((start, mut end)) = spans.next() {
            if let Some((from, to)) = spans.next() {
                end = to.of_range(&from);
            }
            bytes += start.len() + end.bytes() + SPAN_BYTES;
            self.spans.insert(start, end);
        }
        bytes
    }
}

/// Returns the least key above `key`.
fn successor(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// Replaces a key, and reuses its memory.
fn replace(known: &mut Option<Vec<u8>>, key: &[u8]) {
    let known = known.get_or_insert_default();
    known.clear();
    known.extend_from_slice(key);
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::tables::state::Tables;

    /// Keys of one or two small bytes.
    fn keys() -> impl Iterator<Item = Vec<u8>> {
        let one = (0..40).map(|first| vec![first]);
        one.chain((0..40).flat_map(|first| (0..3).map(move |second| vec![first, second])))
    }

    fn is_within(key: &[u8], low: &Bound<Vec<u8>>, high: &Bound<Vec<u8>>) -> bool {
        use std::ops::RangeBounds;
        let bounds = (
            low.as_ref().map(|key| &key[..]),
            high.as_ref().map(|key| &key[..]),
        );
        RangeBounds::<[u8]>::contains(&bounds, key)
    }

    fn has(set: &ReadSet, key: &[u8]) -> bool {
        let spans = set.tables().iter().flat_map(|table| {
            let recent = table.recent().map(|(key, _)| Span::Key(key));
            table.spans().chain(recent)
        });
        let mut having = spans.filter(|span| match span {
            Span::Key(own) => *own == key,
            Span::Range(from, to) => *from <= key && to.is_none_or(|to| key < to),
        });
        having.next().is_some()
    }

    fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
        (0..random.usize(1..=2)).map(|_| random.u8(..40)).collect()
    }

    fn random_bound(random: &mut fastrand::Rng) -> Bound<Vec<u8>> {
        match random.u8(..8) {
            0 => Bound::Unbounded,
            1..4 => Bound::Excluded(random_key(random)),
            _ => Bound::Included(random_key(random)),
        }
    }

    /// Adds reads at random, and compares the set with a plain list of all keys. With a small limit
    /// it may have more keys than were read, and never fewer.
    #[test]
    fn a_set_has_what_was_read() {
        let tables = Tables::new(0);
        let state = tables.absent("t");
        let tree = crate::tables::state::GARBAGE;
        let mut random = fastrand::Rng::with_seed(3);
        let stripes = Stripes::new(5);
        let mut set = ReadSet::default();
        for round in 0..400 {
            let limit = if round % 2 == 0 { usize::MAX } else { 1000 };
            assert!(set.empty(usize::MAX));
            set.begin(limit);
            let mut read: Vec<Vec<u8>> = Vec::new();
            for _ in 0..round % 50 {
                if random.bool() {
                    let key = random_key(&mut random);
                    let table = set.table(&state, tree);
                    set.add_key(table, &key, &stripes);
                    read.push(key);
                    continue;
                }
                let (low, high) = (random_bound(&mut random), random_bound(&mut random));
                set.begin_range((&state, tree), low.clone(), high.clone());
                let mut within: Vec<_> = keys().filter(|key| is_within(key, &low, &high)).collect();
                within.sort();
                match random.u8(..4) {
                    0 => {
                        set.pass_all();
                        read.append(&mut within);
                    }
                    _ if within.is_empty() => {}
                    1 => {
                        let last = random.usize(..within.len());
                        set.pass_front(&within[last]);
                        read.extend(within.drain(..=last));
                    }
                    _ => {
                        let last = random.usize(..within.len());
                        set.pass_back(&within[last]);
                        read.extend(within.drain(last..));
                    }
                }
            }
            set.settle();
            for key in keys() {
                let was_read = read.contains(&key);
                match limit {
                    usize::MAX => assert_eq!(has(&set, &key), was_read, "{round} {key:?}"),
                    _ => assert!(has(&set, &key) || !was_read, "{round} {key:?}"),
                }
            }
            assert!(set.bytes <= limit || set.tables[0].spans.len() == 1);
            let of_recent = |(key, _): (&[u8], StripeIndex)| key.len() + KEY_BYTES;
            let recent = |table: &TableReads| table.recent().map(of_recent).sum::<usize>();
            let recent: usize = set.tables.iter().map(recent).sum();
            let bytes = set.bytes;
            set.tables.iter_mut().for_each(|table| {
                table.recent = RecentKeys::default();
            });
            let spans: usize = set.tables.iter_mut().map(TableReads::sort_in).sum();
            assert_eq!(bytes, spans + recent);
        }
    }
}
