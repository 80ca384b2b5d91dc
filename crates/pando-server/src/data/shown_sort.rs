//! The elements of a large collection in another order, encoded for a reply piece by piece, as of
//! one moment (decision 131).
//!
//! As `data/shown_rows.rs`, not for event loops.

use std::collections::VecDeque;
use std::ops::Range;

use pando_resp::{Version, Writer};
use pando_sync::Arc;
use pandodb::{Lsn, Snapshot};

use super::element_rows::ElementRows;
use super::elements::{self, ElementKeys};
use super::keyspace::{KeyFolder, RowError};
use super::named_values::{LongString, Named, NamedValues};
use super::scratch::Scratch;
use super::shown_rows::{Broken, Request, RowsRequest, Shows};
use super::sorter::{Sorted, Sorter};
use super::tree_head::TreeHead;

/// Elements that are taken in one turn, at most.
const STEPS: usize = 4096;
/// Values that are looked up in one turn, at most: each may have to be read.
const LOOK_UPS: usize = 512;
/// Elements whose values are looked up at the same time, and bytes of them, about, since they may
/// be long.
const AHEAD: usize = 128;
const AHEAD_BYTES: usize = 64 << 10;
/// Elements whose values are looked up without reading ahead after it was found to be of no use.
const CACHED: usize = 8 * AHEAD;
/// Bytes that are given to the sorter in one turn, about, since elements and texts may be long.
const BYTES: usize = 4 << 20;

/// What has a value for each element.
#[derive(Debug, Clone, Hash)]
pub(crate) enum Pattern {
    /// The element itself.
    Element,
    /// There is none.
    Nothing,
    /// The string at a key, or a field of the hash there. The element comes between both parts.
    Key {
        before: Vec<u8>,
        after: Vec<u8>,
        field: Option<Vec<u8>>,
    },
}

impl Pattern {
    /// The key where the value of `element` is, if it is looked up.
    fn key(&self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Element | Self::Nothing => None,
            Self::Key { before, after, .. } => Some([&before[..], element, after].concat()),
        }
    }
}

/// How elements are ordered.
#[derive(Debug, Clone, Hash)]
pub(crate) enum SortOrder {
    /// As the collection has them.
    AsIs,
    /// As the collection has them, the last one first.
    Reversed,
    /// By numbers, which this reads: those of values, or of the elements; and then by the elements.
    Numbers(Option<Pattern>, fn(&[u8]) -> Option<f64>),
    /// By texts: values, of which none is the first one, or the elements.
    Texts(Option<Pattern>),
}

/// What is shown, and in which order.
#[derive(Debug, Clone, Hash)]
pub(crate) struct SortHow {
    pub(crate) order: SortOrder,
    pub(crate) is_descending: bool,
    /// See [`limited`].
    pub(crate) limit: (i64, i64),
    /// What is shown of each element; itself if there are none.
    pub(crate) shown: Vec<Pattern>,
}

impl SortHow {
    /// Returns true if values are looked up.
    pub(crate) fn looks_up(&self) -> bool {
        let by = match &self.order {
            SortOrder::Numbers(by, _) | SortOrder::Texts(by) => by.as_ref(),
            SortOrder::AsIs | SortOrder::Reversed => None,
        };
        by.is_some() || self.looks_up_to_show()
    }

    fn looks_up_to_show(&self) -> bool {
        let is_key = |pattern: &Pattern| matches!(pattern, Pattern::Key { .. });
        self.shown.iter().any(is_key)
    }
}

/// What SORT asks for.
#[derive(Debug, Clone)]
pub(crate) struct SortRequest {
    /// The collection: a list, a set or a sorted set.
    pub(crate) rows: RowsRequest,
    pub(crate) how: SortHow,
    pub(crate) element_keys: ElementKeys,
    pub(crate) folder: KeyFolder,
    /// Longest text by which elements are sorted.
    pub(crate) text_bytes_max: usize,
    pub(crate) scratch: Arc<Scratch>,
}

/// Returns the range that LIMIT selects among `length` elements; a negative count selects all.
pub(crate) fn limited((offset, count): (i64, i64), length: usize) -> Range<usize> {
    let start = usize::try_from(offset.max(0)).unwrap_or(usize::MAX);
    let start = start.min(length);
    let end = match usize::try_from(count) {
        Ok(count) => start.saturating_add(count).min(length),
        Err(_) => length,
    };
    start..end
}

impl Request for SortRequest {
    fn sorts(&self) -> bool {
        matches!(
            self.how.order,
            SortOrder::Numbers(..) | SortOrder::Texts(..)
        )
    }

    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
        let snapshot = self.rows.keys.db().snapshot()?;
        let head = self.rows.head_at(&snapshot)?;
        Ok(head.map(|head| Box::new(self.sorted(snapshot, head)) as Box<dyn Shows>))
    }
}

impl SortRequest {
    /// Begins to sort the collection with this head, as of the moment of `snapshot`.
    pub(super) fn sorted(&self, snapshot: Snapshot, head: TreeHead) -> ShownSort {
        let rows = &self.rows;
        let sorter = Sorter::new(self.scratch.clone(), self.how.is_descending);
        let is_backwards = matches!(self.how.order, SortOrder::Reversed);
        let elements = ElementRows::new(rows, &snapshot, head, is_backwards);
        ShownSort {
            lsn: snapshot.lsn(),
            version: rows.version,
            how: self.how.clone(),
            text_bytes_max: self.text_bytes_max,
            source: Source::Elements(Box::new(elements)),
            sorter: self.sorts().then_some(sorter),
            values: self.how.looks_up().then(|| NamedValues {
                snapshot,
                keys: rows.keys.clone(),
                members: rows.members.clone(),
                element_keys: self.element_keys,
                folder: self.folder,
                now_ms: rows.now_ms,
            }),
            all: head.len(),
            passed: 0,
            left: 0,
            ahead: VecDeque::new(),
            prefetched: 0,
            element: Vec::new(),
            next: 0,
            open: None,
        }
    }
}

/// Where the next element is.
#[derive(Debug)]
enum Source {
    Elements(Box<ElementRows>),
    Sorted(Sorted),
    /// All were given to the sorter.
    Sorting,
}

impl Source {
    /// Replaces `out` by the next element. Returns false if there is none.
    fn next(&mut self, order: &SortOrder, out: &mut Vec<u8>) -> Result<bool, Broken> {
        let sorted = match self {
            Self::Elements(rows) => return rows.next(out),
            Self::Sorting => return Ok(false),
            Self::Sorted(sorted) => sorted,
        };
        let Some((key, payload)) = sorted.next().map_err(Broken::Text)? else {
            return Ok(false);
        };
        let element = match order {
            SortOrder::Numbers(..) => &key[size_of::<u64>()..],
            SortOrder::Texts(Some(_)) => payload,
            _ => key,
        };
        out.clear();
        out.extend_from_slice(element);
        Ok(true)
    }
}

/// The elements that are left of a reply, or of a list.
#[derive(Debug)]
pub(super) struct ShownSort {
    lsn: Lsn,
    version: Version,
    how: SortHow,
    text_bytes_max: usize,
    source: Source,
    sorter: Option<Sorter>,
    /// Not there once nothing is looked up any more.
    values: Option<NamedValues>,
    /// Number of all elements, of those that were taken and are not shown, and of those that are
    /// left to be shown.
    all: usize,
    passed: usize,
    left: usize,
    /// Elements that come next, and how many of these and of later ones need not be read ahead for.
    ahead: VecDeque<Vec<u8>>,
    prefetched: usize,
    /// The element that is shown, and which of its values comes next.
    element: Vec<u8>,
    next: usize,
    /// A value of which a part was shown.
    open: Option<LongString>,
}

impl Shows for ShownSort {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        self.counted()
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        for _ in 0..self.steps() {
            if let Some(open) = &mut self.open {
                open.read(piece)?;
                if open.left() > 0 {
                    break;
                }
                piece.extend_from_slice(b"\r\n");
                self.open = None;
            }
            if self.left == 0 || piece.len() >= bytes {
                break;
            }
            self.show(piece)?;
        }
        Ok(self.left > 0 || self.open.is_some())
    }
}

impl ShownSort {
    /// See [`Shows::count`].
    pub(super) fn counted(&mut self) -> Result<Option<usize>, Broken> {
        if self.sorter.is_some() && !self.sort()? {
            return Ok(None);
        }
        let selected = limited(self.how.limit, self.all);
        for _ in 0..STEPS {
            if self.passed == selected.start || selected.is_empty() {
                self.left = selected.len();
                return Ok(Some(self.left));
            }
            if !self.source.next(&self.how.order, &mut self.element)? {
                return Err(RowError::Damaged.into());
            }
            self.passed += 1;
        }
        Ok(None)
    }

    /// Replaces `out` by the next value, which is empty if there is none, and has at most `most`
    /// bytes. Returns false behind the last one.
    pub(super) fn next_value(&mut self, most: usize, out: &mut Vec<u8>) -> Result<bool, Broken> {
        if self.left == 0 {
            return Ok(false);
        }
        if self.next == 0 {
            self.take()?;
        }
        out.clear();
        match self.how.shown.get(self.next) {
            None => out.extend_from_slice(&self.element),
            Some(pattern) => match self.value(pattern, &self.element)? {
                None => {}
                Some(Named::Bytes(bytes)) => *out = bytes,
                Some(Named::Long(long)) => {
                    let bytes = long.left();
                    let whole = long.whole(most)?;
                    *out = whole.ok_or_else(|| too_long(bytes, most))?;
                }
            },
        }
        self.pass_value();
        Ok(true)
    }

    /// Goes behind a value that was shown.
    fn pass_value(&mut self) {
        self.next += 1;
        if self.next >= self.how.shown.len() {
            self.next = 0;
            self.left -= 1;
        }
    }

    /// Returns how many elements are taken in one turn.
    fn steps(&self) -> usize {
        match self.values {
            Some(_) => LOOK_UPS,
            None => STEPS,
        }
    }

    /// Makes a turn of sorting. Returns true once everything is sorted.
    fn sort(&mut self) -> Result<bool, Broken> {
        if !matches!(self.source, Source::Sorting) {
            let mut bytes = 0;
            for _ in 0..self.steps() {
                if !self.next()? {
                    self.source = Source::Sorting;
                    break;
                }
                bytes += self.push()?;
                if bytes >= BYTES {
                    break;
                }
            }
            return Ok(false);
        }
        let Some(sorter) = &mut self.sorter else {
            return Ok(true);
        };
        let Some(sorted) = sorter.settle(STEPS).map_err(Broken::Text)? else {
            return Ok(false);
        };
        if sorter.len() != self.all {
            return Err(RowError::Damaged.into());
        }
        (self.source, self.sorter) = (Source::Sorted(sorted), None);
        // Other keys are looked up from here on.
        self.prefetched = 0;
        if !self.how.looks_up_to_show() {
            // With them, the snapshot is given back.
            self.values = None;
        }
        Ok(true)
    }

    /// Gives the element to the sorter. Returns how many bytes, about.
    fn push(&mut self) -> Result<usize, Broken> {
        let element = &self.element[..];
        let mut text = None;
        if let SortOrder::Numbers(Some(by), _) | SortOrder::Texts(Some(by)) = &self.how.order {
            let most = self.text_bytes_max;
            text = match self.value(by, element)? {
                None => None,
                Some(Named::Bytes(bytes)) => Some(bytes),
                Some(Named::Long(long)) => {
                    let bytes = long.left();
                    Some(long.whole(most)?.ok_or_else(|| too_long(bytes, most))?)
                }
            };
        }
        let bytes = element.len() + text.as_ref().map_or(0, Vec::len);
        let Some(sorter) = &mut self.sorter else {
            return Ok(bytes);
        };
        let pushed = match (&self.how.order, text) {
            (SortOrder::Numbers(by, number), text) => {
                let own = by.is_none().then_some(element);
                let text = text.as_deref().or(own);
                let Some(number) = text.map_or(Some(0.0), number) else {
                    return Err(Broken::Refused(NO_NUMBER.to_owned()));
                };
                sorter.push(&[&elements::ordered(number), element], &[])
            }
            (SortOrder::Texts(None), _) => sorter.push(&[element], &[]),
            (_, Some(text)) => sorter.push(&[&[1], &text], element),
            (_, None) => sorter.push(&[&[0]], element),
        };
        pushed.map(|()| bytes).map_err(Broken::Text)
    }

    fn value(&self, pattern: &Pattern, element: &[u8]) -> Result<Option<Named>, Broken> {
        match pattern {
            Pattern::Element => Ok(Some(Named::Bytes(element.to_vec()))),
            Pattern::Nothing => Ok(None),
            Pattern::Key { field, .. } => {
                let values = self.values.as_ref().ok_or(RowError::Damaged)?;
                let key = pattern.key(element).unwrap_or_default();
                match field {
                    None => values.string(&key),
                    Some(field) => values.field(&key, field),
                }
            }
        }
    }

    /// Takes the next element, which is there.
    fn take(&mut self) -> Result<(), Broken> {
        match self.next()? {
            true => Ok(()),
            false => Err(RowError::Damaged.into()),
        }
    }

    /// Takes the next element. Returns false if there is none.
    fn next(&mut self) -> Result<bool, Broken> {
        if self.values.is_none() {
            return self.source.next(&self.how.order, &mut self.element);
        }
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        if self.prefetched == 0 {
            self.prefetch()?;
        }
        let Some(element) = self.ahead.pop_front() else {
            return Ok(false);
        };
        self.element = element;
        self.prefetched = self.prefetched.saturating_sub(1);
        Ok(true)
    }

    /// Takes elements whose values are looked up next.
    fn read_ahead(&mut self) -> Result<(), Broken> {
        let most = match self.sorter {
            Some(_) => AHEAD,
            None => AHEAD.min(self.left),
        };
        let mut bytes = 0;
        while self.ahead.len() < most && bytes < AHEAD_BYTES {
            let mut element = Vec::new();
            if !self.source.next(&self.how.order, &mut element)? {
                break;
            }
            bytes += element.len();
            self.ahead.push_back(element);
        }
        Ok(())
    }

    /// Reads the pages of what is looked up for the next elements, all at the same time.
    fn prefetch(&mut self) -> Result<(), Broken> {
        let patterns = match (&self.sorter, &self.how.order) {
            (None, _) => &self.how.shown[..],
            (Some(_), SortOrder::Numbers(by, _) | SortOrder::Texts(by)) => by.as_slice(),
            (Some(_), SortOrder::AsIs | SortOrder::Reversed) => &[],
        };
        let (mut keys, mut bytes) = (Vec::new(), 0);
        let mut count = 0;
        for element in &self.ahead {
            let of_it = patterns.iter().filter_map(|pattern| pattern.key(element));
            keys.extend(of_it.inspect(|key| bytes += key.len()));
            count += 1;
            if bytes >= AHEAD_BYTES {
                break;
            }
        }
        self.prefetched = count;
        if let Some(values) = &self.values
            && !keys.is_empty()
        {
            let of_each = keys.len() / count;
            let read = values.prefetch(&keys)?;
            self.prefetched = match read.missing {
                0 => CACHED,
                _ => read.keys.div_ceil(of_each),
            };
        }
        Ok(())
    }

    /// Appends the next value to `piece`, or its length if it is long.
    fn show(&mut self, piece: &mut Vec<u8>) -> Result<(), Broken> {
        if self.next == 0 {
            self.take()?;
        }
        let mut reply = Writer::new(piece, self.version);
        match self.how.shown.get(self.next) {
            None => reply.bulk(&self.element),
            Some(pattern) => match self.value(pattern, &self.element)? {
                None => reply.null(),
                Some(Named::Bytes(bytes)) => reply.bulk(&bytes),
                Some(Named::Long(long)) => {
                    let length = usize::try_from(long.left());
                    reply.bulk_header(length.expect("strings fit into memory"));
                    self.open = Some(long);
                }
            },
        }
        self.pass_value();
        Ok(())
    }
}

fn too_long(bytes: u64, most: usize) -> Broken {
    let text = format!("ERR a string of {bytes} bytes is too long for SORT: the most is {most}");
    Broken::Refused(text)
}

const NO_NUMBER: &str = "ERR One or more scores can't be converted into double";

#[cfg(test)]
mod tests {
    use super::limited;

    #[test]
    fn limits_are_those_of_redis() {
        assert_eq!(limited((0, -1), 5), 0..5);
        assert_eq!(limited((1, 2), 5), 1..3);
        assert_eq!(limited((4, 9), 5), 4..5);
        assert_eq!(limited((5, 1), 5), 5..5);
        assert_eq!(limited((-3, 2), 5), 0..2);
        assert_eq!(limited((2, 0), 5), 2..2);
        assert_eq!(limited((i64::MAX, i64::MAX), 5), 5..5);
        assert_eq!(limited((1, i64::MAX), 5), 1..5);
        assert_eq!(limited((i64::MIN, i64::MIN), 5), 0..5);
    }
}
