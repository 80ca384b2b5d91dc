//! Strings in chunks: as arguments, as parts of replies, and as values to be written (decision
//! 029).

use std::ops::Range;

use pando_resp::Writer;
use pandodb::nonblocking::{EditOld, Fingerprint, NewBytes};
use pandodb::{LargeValue, ValueStream};

use super::edits::Source;
use super::parts::{Gathered, Take};
use super::reply_source::ReplySource;
use super::string_source::StringSource;
use super::{Chunked, Context, Former, Found, Interrupted, NewString, Run};
use crate::data::keyspace::{Times, ValueType, encode, encode_head, head_bytes};
use crate::data::piece_head::PieceHead;

impl<'a> Context<'a> {
    /// Returns argument `index` as a string to be stored, whatever its length.
    #[inline]
    pub(crate) fn string(&self, index: usize) -> NewString<'a> {
        let mut staged = self.staged.iter();
        match staged.find(|staged| staged.index == index) {
            Some(staged) => NewString::Large(&staged.value),
            None => NewString::Bytes(self.argument(index)),
        }
    }

    /// Opens an argument that was too long to be held in memory.
    pub(crate) fn opened_argument(&self, value: &LargeValue) -> Result<Chunked, Interrupted> {
        Ok(Chunked {
            stream: self.engine().db.value_reader(value)?,
            patches: None,
        })
    }

    /// Returns the string that is the bytes at `range` of an argument that was too long to be held
    /// in memory, for `key`.
    pub(crate) fn part_of_staged(
        &mut self,
        key: &[u8],
        value: &LargeValue,
        range: Range<u64>,
    ) -> Result<LargeValue, Interrupted> {
        let new = NewBytes::Part(value.clone(), range);
        self.made(key, EditOld::Value(Vec::new()), (0, new), None)
    }

    /// Returns true if a string of `bytes` bytes is not too long.
    #[inline]
    pub(crate) fn fits(&self, bytes: u64) -> bool {
        bytes <= self.engine().string_bytes_max
    }

    /// Returns true if a string of `bytes` bytes at `key` lies in pages.
    #[inline]
    pub(crate) fn lies_in_pages(&self, key: &[u8], bytes: u64) -> bool {
        let engine = self.engine();
        let whole_key = engine.folder.folds(key).then_some(key);
        bytes.saturating_add(head_bytes(whole_key) as u64) <= engine.row_bytes_max as u64
    }

    /// Returns the number of bytes of the string in the row that was read last; 0 if there is none.
    #[inline]
    pub(crate) fn string_bytes(&mut self, found: &Found) -> u64 {
        match (&found.large, &found.pieces, found.row) {
            (Some(chunked), ..) => chunked.len(),
            (None, Some(head), _) => head.length.into(),
            (None, None, Some(row)) => (self.payload(row).len() + found.cut) as u64,
            (None, None, None) => 0,
        }
    }

    /// Replies with the bytes at `range` of a string in chunks; `range` must be within it. They are
    /// read once everything before them has been sent.
    pub(crate) fn reply_part(&mut self, chunked: &Chunked, range: Range<u64>) -> Run {
        self.reply_part_between(chunked, range, (b"", b""))
    }

    /// As [`Context::reply_part`], of a reply that has these bytes before and behind them.
    pub(crate) fn reply_part_between(
        &mut self,
        chunked: &Chunked,
        range: Range<u64>,
        (before, behind): (&[u8], &[u8]),
    ) -> Run {
        if self.progress.replies_in_memory {
            return self.reply_gathered(chunked, range, (before, behind));
        }
        let patches = self.patches_at(chunked, &range)?;
        let length = usize::try_from(range.end - range.start).expect("strings fit into memory");
        let mut reply = self.reply();
        reply.bulk_header(before.len() + length + behind.len());
        reply.raw(before);
        if length > 0 {
            let stream = &chunked.stream;
            let memory = patches.as_ref().map_or(0, |patches| patches.memory());
            let source = StringSource::new(stream.reopen(), &range, patches);
            assert_eq!(source.left(), length as u64, "what is announced comes");
            let offset = self.out.len() - self.reply_start;
            self.progress
                .streams
                .push((offset, ReplySource::String(source)));
            self.progress.stream_bytes += stream.idle_bytes() + memory;
        }
        let mut reply = self.reply();
        reply.raw(behind);
        reply.raw(b"\r\n");
        self.check_reply()
    }

    /// Replies with these bytes once all of them are in memory, since a script wants to see them.
    /// The command fails if all that its script reads so is too much for the memory.
    #[cold]
    fn reply_gathered(
        &mut self,
        chunked: &Chunked,
        range: Range<u64>,
        (before, behind): (&[u8], &[u8]),
    ) -> Run {
        let most = self.engine().reply_bytes_max as u64 / 2;
        if self.progress.parts.held() + (range.end - range.start) > most {
            return Err(Interrupted::TooManyLong);
        }
        let patches = self.patches_at(chunked, &range)?;
        let stored = self.data().scratch.stored.clone();
        let of = (self.session.database, &stored[..], self.exec_index);
        let mut add = |gathered: &mut Gathered, _, piece: &[u8]| {
            gathered.bytes.extend_from_slice(piece);
            false
        };
        let parts = &mut self.progress.parts;
        let gathered = parts.gather(of, (chunked, patches, range), self.waker, &mut add)?;
        let mut reply = Writer::new(self.out, self.session.version);
        reply.bulk_header(before.len() + gathered.bytes.len() + behind.len());
        reply.raw(before);
        reply.raw(&gathered.bytes);
        reply.raw(behind);
        reply.raw(b"\r\n");
        self.check_reply()
    }

    /// Returns the string that was read last, with `new` written at `offset`; a gap is filled with
    /// zeros. For strings that lie in chunks before or after the change.
    pub(crate) fn spliced(
        &mut self,
        key: &[u8],
        found: &Found,
        offset: u64,
        new: NewString<'_>,
    ) -> Result<LargeValue, Interrupted> {
        if let NewString::Large(value) = new
            && offset == 0
            && value.len() >= self.string_bytes(found)
        {
            return Ok(value.clone());
        }
        assert_eq!(found.cut, 0, "the whole string is edited");
        let old = match (&found.large, found.row) {
            (Some(chunked), _) => EditOld::Large(chunked.stream.reopen()),
            (None, Some(row)) => EditOld::Value(self.payload(row).to_vec()),
            (None, None) => EditOld::Value(Vec::new()),
        };
        self.made(key, old, (offset, new.to_new_bytes()), None)
    }

    /// Returns a copy of a string in chunks, for `key`: chunks belong to one key.
    #[cold]
    pub(crate) fn copied(
        &mut self,
        key: &[u8],
        stream: &ValueStream,
    ) -> Result<LargeValue, Interrupted> {
        let copied = stream.fingerprint();
        match stream.with_head(Vec::new()) {
            Ok(value) => {
                let (old, new) = (EditOld::Value(Vec::new()), NewBytes::Large(value));
                self.made(key, old, (0, new), copied)
            }
            // Of a value of a kept checkpoint an edit copies all chunks.
            Err(pandodb::Error::SnapshotEnded) => {
                let end = stream.len() - stream.head().len() as u64;
                let new = NewBytes::Bytes(Vec::new());
                self.made(key, EditOld::Large(stream.reopen()), (end, new), copied)
            }
            Err(error) => Err(Interrupted::Engine(error)),
        }
    }

    pub(super) fn made(
        &mut self,
        key: &[u8],
        old: EditOld,
        (offset, new): (u64, NewBytes),
        copied: Option<Fingerprint>,
    ) -> Result<LargeValue, Interrupted> {
        if self.is_together {
            return Err(Interrupted::Yield);
        }
        let mut stored = Vec::new();
        self.engine().folder.store(key, &mut stored);
        let source = Source {
            key: (self.session.database, &stored),
            old,
            offset,
            new,
            copied,
        };
        let db = &self.engine().db;
        self.progress.edits.make(db, source, self.waker)
    }

    /// Writes a string that does not lie in pages.
    #[cold]
    pub(super) fn put_chunks(
        &mut self,
        key: &[u8],
        string: NewString<'_>,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        let value = match string {
            NewString::Large(value) => value.clone(),
            NewString::Bytes(_) => {
                let new = (0, string.to_new_bytes());
                self.made(key, EditOld::Value(Vec::new()), new, None)?
            }
        };
        self.put_with_head(key, None, (deadline, former), |head| value.with_head(head))
    }

    /// Changes the deadline of a string in chunks; writes no chunk.
    #[cold]
    pub(super) fn put_head(
        &mut self,
        key: &[u8],
        Chunked { stream, patches }: &Chunked,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        let times = (deadline, former);
        self.put_with_head(key, patches.as_ref(), times, |head| stream.with_head(head))
    }

    /// Writes a string in chunks, with the head of what lies over them if anything does.
    pub(super) fn put_with_head(
        &mut self,
        key: &[u8],
        patches: Option<&PieceHead>,
        (deadline, former): (Option<u64>, Former),
        value: impl FnOnce(Vec<u8>) -> pandodb::Result<LargeValue>,
    ) -> Run {
        self.check_lock(key)?;
        let expiry = self.replace_former(key, Times::of(deadline), former)?;
        self.event_of_new(key, former);
        let whole_key = self.engine().folder.folds(key).then_some(key);
        let mut head = Vec::new();
        match patches {
            None => encode_head(&mut head, ValueType::String, whole_key, expiry),
            Some(patches) => {
                let mut payload = Vec::new();
                patches.encode(&mut payload);
                encode(&mut head, ValueType::Patched, whole_key, expiry, &payload);
            }
        }
        let value = value(head)?;
        self.note_written(key);
        let number = self.session.database;
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("commands that write have a transaction");
        batch.put_large(&database.keys, &scratch.stored, value)?;
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.put(number, &scratch.stored, key);
        }
        Ok(())
    }
}

impl Context<'_> {
    /// Returns what `take` gathers of the bytes at `range` of the string that `found` describes,
    /// which was read last; `range` must be within it.
    pub(crate) fn gather(
        &mut self,
        key: &[u8],
        found: &Found,
        range: Range<u64>,
        take: Take<'_>,
    ) -> Result<Gathered, Interrupted> {
        let Some(chunked) = &found.large else {
            let mut gathered = Gathered::default();
            if let Some(head) = found.pieces.as_deref().filter(|_| found.cut > 0) {
                let piece = self.bytes_in_pieces(head, &range)?;
                take(&mut gathered, range.start, &piece);
                return Ok(gathered);
            }
            assert_eq!(found.cut, 0, "the whole string can be read");
            if let Some(row) = found.row {
                let within = |at: u64| usize::try_from(at).expect("it is in memory");
                let piece = &self.payload(row)[within(range.start)..within(range.end)];
                take(&mut gathered, range.start, piece);
            }
            return Ok(gathered);
        };
        self.gather_chunked(key, chunked, range, take)
    }

    /// As [`Context::gather`], of a string in chunks.
    pub(crate) fn gather_chunked(
        &mut self,
        key: &[u8],
        chunked: &Chunked,
        range: Range<u64>,
        take: Take<'_>,
    ) -> Result<Gathered, Interrupted> {
        let patches = self.patches_at(chunked, &range)?;
        let of = (self.session.database, key, self.exec_index);
        let parts = &mut self.progress.parts;
        let gathered = parts.gather(of, (chunked, patches, range), self.waker, take);
        let gathered = gathered.cloned();
        // A reader beside writers goes on at a snapshot, as one of a large collection.
        self.progress.restarts += self.progress.parts.take_restarts();
        gathered
    }

    /// Returns the bytes at `range` of the string that `found` describes, which was read last, as
    /// far as it has them. The command fails if all that it asks for is too much for the memory.
    pub(crate) fn part(
        &mut self,
        key: &[u8],
        found: &Found,
        range: Range<u64>,
    ) -> Result<Vec<u8>, Interrupted> {
        let length = self.string_bytes(found);
        let range = range.start.min(length)..range.end.min(length);
        let most = self.engine().reply_bytes_max as u64 / 2;
        if found.large.is_some() && self.progress.parts.held() + (range.end - range.start) > most {
            return Err(Interrupted::TooManyLong);
        }
        let mut add = |gathered: &mut Gathered, _, piece: &[u8]| {
            gathered.bytes.extend_from_slice(piece);
            false
        };
        Ok(self.gather(key, found, range, &mut add)?.bytes)
    }
}
