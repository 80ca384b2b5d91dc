//! Streams: a head in the row of the key (`data/stream_head.rs`), and rows in the table of elements
//! (`data/stream_rows.rs`), whatever the size (decision 087).
//!
//! What holds for large collections holds for them: whoever changes a row writes the head, so what
//! a command has read is one state if the head is unchanged at its commit. What was loaded is kept
//! by the head.

use std::ops::Bound;

use pando_sync::Arc;
use pandodb::nonblocking::Polled;

use super::edition::Edition;
use super::part::{Goal, Load};
use crate::context::{Context, Former, Found, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{Row, RowError, Times, ValueType};
use crate::data::stream_head::StreamHead;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{PendingFilter, entry_key, id_key};
use crate::data::tree_head::TreeHead;

/// Bytes that a row may be longer than what is known of it.
const ROW_BYTES: usize = 16;
/// Bytes of the number of a group or consumer in a key.
const NUMBER_BYTES: usize = 8;
/// All kinds of rows that a stream has, but for the one that says that it has its id.
const KINDS: [Kind; 6] = [
    Kind::Consumer,
    Kind::Group,
    Kind::ConsumerName,
    Kind::Pending,
    Kind::Owned,
    Kind::Entry,
];

/// A stream; an empty one if the key has none.
#[derive(Debug)]
pub(crate) struct Stream {
    found: Found,
    pub(crate) head: StreamHead,
    /// Of all that was written.
    edition: Option<Edition>,
}

impl Stream {
    /// Returns true if the key has it.
    pub(crate) fn exists(&self) -> bool {
        self.found.row.is_some()
    }

    /// Returns the time at which it expires.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.found.deadline()
    }
}

/// Neighbouring rows of a stream or of a string in pieces, in ascending order.
#[derive(Debug, Clone)]
pub(crate) struct Rows(Arc<Load>);

impl Rows {
    pub(crate) fn len(&self) -> usize {
        self.0.strings.len() / self.0.goal.strings_of_one()
    }

    /// Returns the key of the row at `place`, without the id of the stream and the kind.
    pub(crate) fn key(&self, place: usize) -> &[u8] {
        self.0.strings.at(place * self.0.goal.strings_of_one())
    }

    /// Returns the value of the row at `place`; empty if only keys were wanted.
    pub(crate) fn value(&self, place: usize) -> &[u8] {
        match self.0.goal.has_values {
            true => self.0.strings.at(place * 2 + 1),
            false => &[],
        }
    }

    /// Returns the ID that the key of the row at `place` ends with.
    pub(crate) fn id(&self, place: usize) -> Result<StreamId, RowError> {
        let before = match self.0.goal.kind {
            Kind::Entry => 0,
            Kind::Pending => NUMBER_BYTES,
            Kind::Owned => 2 * NUMBER_BYTES,
            _ => return Err(RowError::Damaged),
        };
        match self.key(place).get(before..).and_then(StreamId::split) {
            // Keys of one length, with the same beginning, are in the order of their IDs.
            Some((id, [])) => Ok(id),
            _ => Err(RowError::Damaged),
        }
    }

    /// Returns the IDs of all of them.
    pub(crate) fn ids(&self) -> Result<Vec<StreamId>, RowError> {
        (0..self.len()).map(|place| self.id(place)).collect()
    }
}

/// Returns the head of a stream as that of a collection, for what reads rows.
fn as_tree(head: &StreamHead) -> TreeHead {
    TreeHead {
        edition: head.edition,
        count: head.length,
        ..TreeHead::new(head.id)
    }
}

/// Which rows are wanted: from a key to a key, both included, and how many at most.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: Kind,
    pub(crate) from: Vec<u8>,
    pub(crate) to: Vec<u8>,
    pub(crate) count: usize,
    /// The last ones, if they are more.
    pub(crate) is_backwards: bool,
    /// Not their keys alone.
    pub(crate) has_values: bool,
    /// Of pending entries: which ones.
    pub(crate) pending: Option<PendingFilter>,
}

impl Wanted {
    /// All rows of a kind between two keys, with their values.
    pub(crate) fn all(kind: Kind, from: Vec<u8>, to: Vec<u8>) -> Self {
        Self {
            kind,
            from,
            to,
            count: usize::MAX,
            is_backwards: false,
            has_values: true,
            pending: None,
        }
    }
}

impl Context<'_> {
    /// Reads the stream at `key`, to be changed.
    pub(crate) fn stream(&mut self, key: &[u8]) -> Result<Stream, Interrupted> {
        let found = self.find(key)?;
        self.decoded_stream(found)
    }

    /// Reads the stream at `key` for a reply: counts hits and misses.
    pub(crate) fn read_stream(&mut self, key: &[u8]) -> Result<Stream, Interrupted> {
        let found = self.read(key)?;
        self.decoded_stream(found)
    }

    fn decoded_stream(&mut self, found: Found) -> Result<Stream, Interrupted> {
        let head = match found.row {
            Some(row) => StreamHead::decode(self.payload(row))?,
            None => StreamHead::new(0),
        };
        Ok(Stream {
            found,
            head,
            edition: None,
        })
    }

    /// Begins a stream of a key that has none. To be called before anything of it is written.
    pub(crate) fn create_stream(&mut self, stream: &mut Stream) -> Run {
        self.make_members()?;
        stream.head = StreamHead::new(self.database().members.new_id());
        let key = id_key(stream.head.id);
        self.put_stream_row(stream, &key, &[])
    }

    /// Writes the head of the stream, once for all changes of its rows. Who waits for the stream
    /// looks again.
    pub(crate) fn put_stream(&mut self, key: &[u8], stream: Stream) -> Run {
        self.wake_readers(key);
        self.put_unawaited_stream(key, stream)
    }

    /// As [`Context::put_stream`], of a change for which nobody waits: no entry has come, and no
    /// group has come, gone, or another ID.
    pub(crate) fn put_unawaited_stream(&mut self, key: &[u8], stream: Stream) -> Run {
        self.note_written(key);
        self.put_group(key, stream)
    }

    /// As [`Context::put_stream`], of a change of groups or of the last ID: those who have read the
    /// stream are not told.
    pub(crate) fn put_awaited_group(&mut self, key: &[u8], stream: Stream) -> Run {
        self.wake_readers(key);
        self.put_group(key, stream)
    }

    /// As [`Context::put_awaited_group`], of a change for which nobody waits.
    pub(crate) fn put_group(&mut self, key: &[u8], mut stream: Stream) -> Run {
        stream.head.edition = self.edition_of(&mut stream).finish();
        let former = match stream.exists() {
            true => stream.found.former.but_tree(),
            false => stream.found.former,
        };
        let deadline = stream.deadline();
        self.put_stream_head(key, &stream.head, deadline, former)
    }

    pub(super) fn put_stream_head(
        &mut self,
        key: &[u8],
        head: &StreamHead,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        let mut payload = std::mem::take(&mut self.data().scratch.value);
        head.encode(&mut payload);
        let value = (ValueType::Stream, &payload[..]);
        let result = self.put_untold(key, value, Times::of(deadline), former);
        self.data().scratch.value = payload;
        result
    }

    fn edition_of<'s>(&mut self, stream: &'s mut Stream) -> &'s mut Edition {
        let (seed, before) = (self.progress.seed(), stream.head.edition);
        let edition = &mut stream.edition;
        edition.get_or_insert_with(|| Edition::behind(before, seed))
    }

    /// Writes a row of the stream.
    pub(crate) fn put_stream_row(&mut self, stream: &mut Stream, key: &[u8], row: &[u8]) -> Run {
        self.edition_of(stream).add(key, Some(row));
        let members = self.members()?;
        Ok(self.batch()?.put(members, key, row)?)
    }

    /// Deletes a row of the stream.
    pub(crate) fn delete_stream_row(&mut self, stream: &mut Stream, key: &[u8]) -> Run {
        self.edition_of(stream).add(key, None);
        let members = self.members()?;
        self.batch()?.delete(members, key);
        Ok(())
    }

    /// Reads neighbouring rows of the stream.
    pub(crate) fn stream_rows(
        &mut self,
        stream: &Stream,
        wanted: Wanted,
    ) -> Result<Rows, Interrupted> {
        self.rows_of(as_tree(&stream.head), wanted)
    }

    /// Reads neighbouring rows of the stream or string with this head.
    pub(super) fn rows_of(&mut self, head: TreeHead, wanted: Wanted) -> Result<Rows, Interrupted> {
        // What is not validated by itself belongs to the head, which the transaction has read.
        self.batch()?;
        let (from, until) = match wanted.is_backwards {
            false => (wanted.from, wanted.to),
            true => (wanted.to, wanted.from),
        };
        let goal = Goal {
            exec_index: self.exec_index,
            database: self.session.database,
            last_swap: self.last_swap(),
            head,
            kind: wanted.kind,
            has_values: wanted.has_values,
            from: Bound::Included(from),
            until: Some(until),
            is_backwards: wanted.is_backwards,
            skipped: 0,
            count: wanted.count,
            living: None,
            passes_removed: false,
            pending: wanted.pending,
            around: None,
            window: None,
            names: None,
        };
        // A key without a stream may be in a database that has no table of elements.
        match wanted.count {
            0 => Ok(Rows(Arc::new(Load::new(goal)))),
            _ => {
                let members = self.members()?;
                Ok(Rows(self.load_rows(members, goal)?))
            }
        }
    }

    /// Reads at most `count` entries between two IDs, both included; the last ones if
    /// `is_backwards`.
    pub(crate) fn entries(
        &mut self,
        stream: &Stream,
        range: (StreamId, StreamId),
        count: usize,
        is_backwards: bool,
    ) -> Result<Rows, Interrupted> {
        self.entries_between(stream, range, (count, is_backwards, true))
    }

    /// As [`Context::entries`], but reads their IDs alone.
    pub(crate) fn entry_ids(
        &mut self,
        stream: &Stream,
        range: (StreamId, StreamId),
        count: usize,
        is_backwards: bool,
    ) -> Result<Rows, Interrupted> {
        self.entries_between(stream, range, (count, is_backwards, false))
    }

    /// Returns how many entries have IDs in `from..=to`; `None` if that cannot be told without
    /// reading them.
    pub(crate) fn entry_count(
        &mut self,
        stream: &Stream,
        (from, to): (StreamId, StreamId),
    ) -> Result<Option<u64>, Interrupted> {
        let head = &stream.head;
        if from > to || head.length == 0 || from > head.last {
            return Ok(Some(0));
        }
        let (members, id) = (self.members()?, head.id);
        let (from, to) = (entry_key(id, from), entry_key(id, to));
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        if let Some(batch) = self.data().batch.as_deref_mut()
            && (batch.transaction().is_some() || batch.writes_between(members, bounds.0, bounds.1))
        {
            return Ok(None);
        }
        match self.source().count(members, bounds)? {
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
            Polled::Ready(count) => Ok(Some(count)),
        }
    }

    fn entries_between(
        &mut self,
        stream: &Stream,
        (from, to): (StreamId, StreamId),
        (count, is_backwards, has_values): (usize, bool, bool),
    ) -> Result<Rows, Interrupted> {
        let id = stream.head.id;
        // A stream without entries, an empty range, and what comes have no rows to look for.
        let is_empty = from > to || stream.head.length == 0 || from > stream.head.last;
        let wanted = Wanted {
            count: if is_empty { 0 } else { count },
            is_backwards,
            has_values,
            ..Wanted::all(
                Kind::Entry,
                entry_key(id, from).to_vec(),
                entry_key(id, to).to_vec(),
            )
        };
        self.stream_rows(stream, wanted)
    }

    /// Returns the ID of the first entry from `from` on, or the last one.
    pub(crate) fn edge(
        &mut self,
        stream: &Stream,
        from: StreamId,
        is_last: bool,
    ) -> Result<Option<StreamId>, Interrupted> {
        let rows = self.entry_ids(stream, (from, StreamId::MAX), 1, is_last)?;
        match rows.len() {
            0 => Ok(None),
            _ => Ok(Some(rows.id(0)?)),
        }
    }

    /// Refuses what is too long for a row of a stream.
    pub(crate) fn check_row(&self, what: &str, bytes: usize) -> Run {
        let most = self.engine().row_bytes_max.saturating_sub(ROW_BYTES);
        match bytes > most {
            true => Err(replies::too_long(what, bytes, most).into()),
            false => Ok(()),
        }
    }
}

/// A stream with all of its rows, on its way to another key.
#[derive(Debug)]
pub(crate) struct StreamCopy {
    head: StreamHead,
    rows: Vec<(Kind, Rows)>,
}

impl Context<'_> {
    /// Takes all of the stream that was read last.
    pub(crate) fn copied_stream(&mut self, row: Row) -> Result<StreamCopy, Interrupted> {
        let head = StreamHead::decode(self.payload(row))?;
        let mut rows = Vec::new();
        for kind in KINDS {
            rows.push((kind, self.all_rows(&head, kind)?));
        }
        Ok(StreamCopy { head, rows })
    }

    /// Returns true if its rows may be too many for a batch, or would hold the loop for long.
    pub(crate) fn is_long_stream(&self, copy: &StreamCopy) -> bool {
        let rows = copy.rows.iter().map(|(_, rows)| rows.len()).sum();
        let bytes = copy.rows.iter().map(|(_, rows)| rows.0.strings.bytes());
        self.is_long_batch(rows, bytes.sum())
    }

    /// Reads all rows of one kind.
    pub(super) fn all_rows(&mut self, head: &StreamHead, kind: Kind) -> Result<Rows, Interrupted> {
        let (from, to) = (
            elements::start(head.id, kind),
            elements::behind(head.id, kind),
        );
        let wanted = Wanted::all(kind, from.to_vec(), to.to_vec());
        self.rows_of(as_tree(head), wanted)
    }

    /// Writes it at `key` of the selected database, which has had `former`.
    pub(crate) fn put_stream_copy(
        &mut self,
        key: &[u8],
        copy: &StreamCopy,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        let members = self.make_members()?;
        let mut head = copy.head;
        head.id = self.database().members.new_id();
        head.edition ^= self.progress.seed();
        self.batch()?.put(members, &id_key(head.id), &[])?;
        for (kind, rows) in &copy.rows {
            let start = elements::start(head.id, *kind);
            for place in 0..rows.len() {
                let key = [&start[..], rows.key(place)].concat();
                self.batch()?.put(members, &key, rows.value(place))?;
            }
        }
        self.wake_readers(key);
        self.note_written(key);
        self.put_stream_head(key, &head, deadline, former)
    }
}
