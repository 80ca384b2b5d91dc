//! Large values for event loops: no call blocks. An engine thread reads, writes and syncs, one
//! chunk at a time, and wakes whoever waits.

use std::ops::Range;
use std::task::{Poll, Waker};

use pando_format::Lsn;
use pando_format::chunks::{BlobRef, ChunkRef, ChunkShape};
use pando_sync::Arc;

use crate::api::db::Db;
use crate::api::table::Table;
use crate::blobs::staged::StagedBlob;
use crate::blobs::value::LargeValue;
use crate::engine::Shared;
use crate::error::{Error, Result};
use crate::event_loop::polled::{Polled, polled};
use crate::event_loop::table::Reads;
use crate::event_loop::transaction::Transaction;
use crate::event_loop::validated_batch::ValidatedBatch;
use crate::read::buffers::with_reader;
use crate::state::helper::Answer;
use crate::state::read_bounds::Debt;
use crate::streams::edit::NewBytes;
use crate::streams::look::{Found, FoundThen};
use crate::streams::old_bytes::OldBytes;
use crate::streams::stream::ValueStream;
use crate::streams::writer::ValueWriter;
use crate::wait::reason::{Step, Unfinished, WaitReason};
use crate::writes::read_log::{Played, WHOLE};
use crate::writes::set::Own;

/// What a key was found to have.
#[derive(Debug)]
pub enum Opened {
    /// Nothing.
    Absent,
    /// A value in pages: it was copied.
    Value,
    /// A large value; its head was copied.
    Large(ValueStream),
}

impl Opened {
    fn of(engine: &Shared, found: FoundThen, out: &mut Vec<u8>) -> Self {
        let stream = match found {
            FoundThen::Here(Found::Nothing) => {
                out.clear();
                return Self::Absent;
            }
            FoundThen::Here(Found::Value) => return Self::Value,
            FoundThen::Here(Found::Chunks(blob, registration)) => {
                ValueStream::of_chunks(engine, blob, registration)
            }
            FoundThen::Kept(kept) => ValueStream::of_kept(engine, kept),
        };
        out.clear();
        out.extend_from_slice(stream.head());
        Self::Large(stream)
    }

    /// Opens what a batch itself has done to a key; None if it knows nothing of the key.
    fn own(engine: &Shared, own: Own<'_>, out: &mut Vec<u8>) -> Option<Self> {
        match own {
            Own::Value(value) => {
                out.extend_from_slice(value);
                Some(Self::Value)
            }
            Own::Large(value) => {
                let stream = ValueStream::of_handed(engine, value);
                out.extend_from_slice(stream.head());
                Some(Self::Large(stream))
            }
            Own::Gone => Some(Self::Absent),
            Own::Unknown => None,
        }
    }
}

impl Reads<'_> {
    /// Reads `key` into `out`, as [`Reads::get`] does, or opens its value if it is a large one.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn open(
        self,
        key: &[u8],
        out: &mut Vec<u8>,
        shown_from: &mut Option<Lsn>,
    ) -> Result<Polled<Opened>> {
        let engine = self.table.db.engine();
        with_reader(|reader| {
            let step = engine.try_look(&self.table.state, key, reader, out);
            let step = step.map(|(found, debt)| {
                *shown_from = (*shown_from).max(debt.lsn());
                engine.count_get();
                Opened::of(engine, found.into(), out)
            });
            polled(step, &mut reader.wanted)
        })
    }
}

impl Transaction {
    /// Reads `key` into `out`, as [`Transaction::get`] does, or opens its value if it is a large
    /// one.
    ///
    /// # Errors
    /// As [`crate::Transaction::get_into`].
    pub fn open(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<Opened>> {
        self.inner.check_store(table)?;
        self.inner.check_usable()?;
        let engine = table.db.engine();
        out.clear();
        let set = &mut self.inner.set;
        let index = set.table(&table.state);
        if let Some(opened) = Opened::own(engine, set.own(index, key), out) {
            return Ok(Polled::Ready(opened));
        }
        let step = self.look(table, key, out);
        let step = step.map(|(found, debt)| {
            self.owe(debt);
            engine.count_get();
            Opened::of(engine, found, out)
        });
        polled(step, &mut self.work.reader.wanted)
    }

    /// Makes one attempt to open the value of `key`, which is not one of its own writes.
    fn look(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Step<(FoundThen, Debt)> {
        let _own = self.own_reads();
        let Self { inner, work, .. } = self;
        inner.check_store(table)?;
        inner.check_usable()?;
        inner.try_take_snapshot()?;
        let engine = table.db.engine();
        let Some(snapshot) = &inner.snapshot else {
            let looked = engine.try_look(&table.state, key, &mut work.reader, out);
            return looked.map(|(found, debt)| (found.into(), debt));
        };
        let looked = engine.try_look_then(snapshot.registration(), &table.state, key, work, out);
        let looked = looked.map_err(|stopped| inner.why_not_read(table, stopped));
        if matches!(looked, Err(Unfinished::Wait(WaitReason::Settled))) {
            let found = self.open_on_disk(table, key, out)?;
            return Ok((found.into(), Debt::NONE));
        }
        let (found, debt) = looked?;
        inner.note_read(table, key)?;
        Ok((found.into(), debt))
    }
}

impl ValidatedBatch {
    /// Reads `key` into `out`, as [`ValidatedBatch::get`] does, or opens its value if it is a large
    /// one.
    ///
    /// # Errors
    /// As [`Table::get_into`].
    pub fn open(&mut self, table: &Table, key: &[u8], out: &mut Vec<u8>) -> Result<Polled<Opened>> {
        let index = self.index_of(table)?;
        out.clear();
        let mut own = self.set.own(index, key);
        if let (Own::Unknown, Some(transaction)) = (&own, &mut self.within) {
            let set = &mut transaction.inner.set;
            let index = set.table(&table.state);
            own = set.own(index, key);
        }
        if let Some(opened) = Opened::own(&self.engine, own, out) {
            return Ok(Polled::Ready(opened));
        }
        let is_new = match self.log.play(index, (key, WHOLE), out) {
            Played::Read(Some(_)) => return Ok(Polled::Ready(Opened::Value)),
            Played::Read(None) => return Ok(Polled::Ready(Opened::Absent)),
            Played::Unknown { is_new } => is_new,
        };
        let step = match &mut self.within {
            Some(transaction) => {
                let looked = transaction.look(table, key, out);
                transaction.move_wanted(&mut self.reader.wanted);
                looked
            }
            None => {
                let engine = &self.engine;
                let step = engine.try_look_stamped(&table.state, key, &mut self.reader, out);
                step.map(|(found, debt, stamp)| {
                    self.set.reads.push(stamp);
                    (found.into(), debt)
                })
            }
        };
        let step = step.map(|(found, debt)| {
            self.set.debt.add(debt);
            self.engine.count_get();
            let opened = Opened::of(&self.engine, found, out);
            let read = self.last_read();
            match opened {
                _ if !is_new => self.pass_long(),
                Opened::Large(_) => self.log.note_long(read, index, key),
                Opened::Value => self.log.note(read, index, key, Some((out, out.len()))),
                Opened::Absent => self.log.note(read, index, key, None),
            }
            opened
        });
        polled(step, &mut self.reader.wanted)
    }

    /// Sets `key` to a value that was handed over before.
    ///
    /// # Errors
    /// [`Error::KeyTooLong`], [`Error::OtherStore`].
    pub fn put_large(&mut self, table: &Table, key: &[u8], value: LargeValue) -> Result<()> {
        self.engine.check_key(key)?;
        let index = self.index_of(table)?;
        self.set.write_large(index, key, value);
        self.scratch.reset();
        Ok(())
    }
}

/// A large value on its way in: its bytes are handed over piece by piece.
#[derive(Debug)]
pub struct ValueSink {
    engine: Shared,
    state: SinkState,
}

#[derive(Debug)]
enum SinkState {
    Open(ValueWriter),
    /// A chunk is being written, by the engine thread.
    Storing(Arc<Answer<ValueWriter>>),
    /// The last chunk is written; the sync is under way.
    Finishing(Arc<Answer<LargeValue>>),
    /// It has ended or failed.
    Ended,
}

impl ValueSink {
    /// Begins a value of `bytes` bytes.
    ///
    /// # Errors
    /// As [`Db::value_writer`].
    pub fn new(db: &Db, bytes: u64) -> Result<Self> {
        Ok(Self {
            engine: db.engine().clone(),
            state: SinkState::Open(db.value_writer(bytes)?),
        })
    }

    /// Takes bytes of the value, as many as it can, and returns how many. If it takes none, `waker`
    /// is woken when there is room. It takes no more bytes than were announced.
    ///
    /// # Errors
    /// As [`ValueWriter::write`]; then the value is lost.
    pub fn write(&mut self, bytes: &[u8], waker: &Waker) -> Result<usize> {
        let Poll::Ready(writer) = self.poll_open(waker)? else {
            return Ok(0);
        };
        if bytes.is_empty() || !writer.poll_room(waker) {
            return Ok(0);
        }
        let count = writer.take(bytes);
        self.store_if_full();
        Ok(count)
    }

    /// Makes the value durable, once all its bytes were taken. `None`: `waker` is woken when it is.
    ///
    /// # Errors
    /// As [`ValueWriter::finish`].
    pub fn finish(&mut self, waker: &Waker) -> Result<Option<LargeValue>> {
        if !matches!(self.state, SinkState::Finishing(_)) {
            if self.poll_open(waker)?.is_pending() {
                return Ok(None);
            }
            let SinkState::Open(writer) = std::mem::replace(&mut self.state, SinkState::Ended)
            else {
                unreachable!("it is open");
            };
            let answer = self.engine.streams.ask(move |_| writer.finish());
            self.state = SinkState::Finishing(answer);
        }
        let SinkState::Finishing(answer) = &self.state else {
            unreachable!("it is finishing");
        };
        let Poll::Ready(value) = answer.poll(waker) else {
            return Ok(None);
        };
        self.state = SinkState::Ended;
        value.map(Some)
    }

    /// Returns the writer, if no chunk of it is being written.
    fn poll_open(&mut self, waker: &Waker) -> Result<Poll<&mut ValueWriter>> {
        if let SinkState::Storing(answer) = &self.state {
            let Poll::Ready(writer) = answer.poll(waker) else {
                return Ok(Poll::Pending);
            };
            self.state = SinkState::Ended;
            self.state = SinkState::Open(writer?);
        }
        match &mut self.state {
            SinkState::Open(writer) => Ok(Poll::Ready(writer)),
            _ => Err(Error::InvalidValue {
                what: "it has ended, or failed, before".into(),
            }),
        }
    }

    /// Has a chunk that is full written by the engine thread.
    fn store_if_full(&mut self) {
        if !matches!(&self.state, SinkState::Open(writer) if writer.is_full()) {
            return;
        }
        if let SinkState::Open(mut writer) = std::mem::replace(&mut self.state, SinkState::Ended) {
            let answer = self.engine.streams.ask(move |_| {
                writer.store()?;
                Ok(writer)
            });
            self.state = SinkState::Storing(answer);
        }
    }
}

/// A part of a value on its way out.
#[derive(Debug)]
pub struct ValueSource {
    engine: Shared,
    state: SourceState,
    range: Range<u64>,
}

#[derive(Debug)]
enum SourceState {
    Idle(ValueStream),
    /// A chunk is being read, by the engine thread.
    Loading(Arc<Answer<ValueStream>>),
    /// It has failed.
    Ended,
}

impl ValueSource {
    /// Makes the source of the bytes of `stream` at `range`, which is cut to the bytes that exist.
    pub fn new(stream: ValueStream, range: Range<u64>) -> Self {
        let end = range.end.min(stream.len());
        Self {
            engine: stream.engine().clone(),
            range: range.start.min(end)..end,
            state: SourceState::Idle(stream),
        }
    }

    /// Number of bytes still to come.
    pub fn left(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the next bytes that are in memory. If it returns none although some are left,
    /// `waker` is woken when there are.
    ///
    /// # Errors
    /// [`Error::CorruptPage`].
    pub fn piece(&mut self, waker: &Waker) -> Result<&[u8]> {
        let offset = self.range.start;
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(&[]);
        }
        if let SourceState::Idle(stream) = &mut self.state
            && !stream.has_piece(offset)
            && !stream.poll_room(waker)
        {
            return Ok(&[]);
        }
        if matches!(&self.state, SourceState::Idle(stream) if !stream.has_piece(offset))
            && let SourceState::Idle(mut stream) =
                std::mem::replace(&mut self.state, SourceState::Ended)
        {
            let most = self.range.end - offset;
            let answer = self.engine.streams.ask(move |_| {
                stream.piece_of(offset, most)?;
                Ok(stream)
            });
            self.state = SourceState::Loading(answer);
        }
        if let SourceState::Loading(answer) = &self.state {
            let Poll::Ready(stream) = answer.poll(waker) else {
                return Ok(&[]);
            };
            self.state = SourceState::Ended;
            self.state = SourceState::Idle(stream?);
        }
        let SourceState::Idle(stream) = &mut self.state else {
            return Err(Error::InvalidValue {
                what: "it has failed before".into(),
            });
        };
        let piece = stream.piece_at(offset)?;
        Ok(&piece[..piece.len().min(left)])
    }

    /// Returns the stream that it reads, with the chunk that it has read last; `None` while it
    /// reads, or if it has failed.
    pub fn into_stream(self) -> Option<ValueStream> {
        match self.state {
            SourceState::Idle(stream) => Some(stream),
            SourceState::Loading(_) | SourceState::Ended => None,
        }
    }

    /// Consumes `count` bytes: of the last piece, or others, which then are not read.
    pub fn consume(&mut self, count: usize) {
        self.range.start += count as u64;
        assert!(self.range.start <= self.range.end, "only what was there");
    }
}

/// Identifies the content of a large value: equal fingerprints mean that it has not changed.
#[derive(Debug, Clone)]
pub struct Fingerprint(Identity);

/// What a fingerprint compares.
#[derive(Debug, Clone)]
enum Identity {
    Stored(ChunkShape, Vec<ChunkRef>),
    /// The reference keeps it alive while somebody compares, so no other one gets its address.
    Handed(Arc<StagedBlob>),
}

impl PartialEq for Fingerprint {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Identity::Stored(shape, chunks), Identity::Stored(of, others)) => {
                shape == of && chunks == others
            }
            (Identity::Handed(staged), Identity::Handed(other)) => Arc::ptr_eq(staged, other),
            _ => false,
        }
    }
}

impl Eq for Fingerprint {}

impl ValueStream {
    /// Returns the fingerprint of a large value, without its head; None if it is not a large one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        if let Some(staged) = self.handed() {
            // One that was given another head has the chunks of the value before, and each run of a
            // command makes it anew.
            let identity = match staged.all_kept() {
                Some(chunks) => Identity::Stored(staged.shape, chunks),
                None => Identity::Handed(staged.clone()),
            };
            return Some(Fingerprint(identity));
        }
        let stored = |blob: &BlobRef| Identity::Stored(blob.shape, blob.chunks.clone());
        self.blob_ref().map(stored).map(Fingerprint)
    }

    /// Makes a large value of the same chunks with another head, for the same key.
    ///
    /// # Errors
    /// As [`LargeValue::with_head`]; [`Error::InvalidValue`] if this is no large value;
    /// [`Error::SnapshotEnded`] if it was opened at a snapshot that had gone on on disk.
    pub fn with_head(&self, head: Vec<u8>) -> Result<LargeValue> {
        if let Some(staged) = self.handed() {
            let value = LargeValue {
                staged: staged.clone(),
                head: Vec::new(),
            };
            return value.with_head(head);
        }
        if self.is_chunked() && self.blob_ref().is_none() {
            // Only a kept checkpoint still knows its chunks by name.
            return Err(Error::SnapshotEnded);
        }
        let (Some(blob), Some(registration)) = (self.blob_ref(), self.registration()) else {
            return Err(Error::InvalidValue {
                what: "it is no large value".into(),
            });
        };
        let mut staged = StagedBlob::new(&self.engine().store.space, blob.shape);
        for chunk in &blob.chunks {
            staged.keep(*chunk, registration);
        }
        let value = LargeValue {
            staged: Arc::new(staged),
            head: Vec::new(),
        };
        value.with_head(head)
    }
}

/// A large value that is being made of an old value, with other bytes in a part of it.
#[derive(Debug)]
pub struct PendingEdit {
    answer: Arc<Answer<LargeValue>>,
}

impl PendingEdit {
    /// Begins it: `bytes` go to `offset` of `old`, which counts without its head. An old value in
    /// pages is given by its bytes.
    pub fn new(db: &Db, old: EditOld, offset: u64, bytes: NewBytes) -> Self {
        let shared = db.engine().clone();
        let answer = db.engine().streams.ask(move |_| {
            let old = match old {
                EditOld::Value(value) => OldBytes::Value(value),
                EditOld::Large(stream) => stream.into_old(),
            };
            bytes.put_into(&shared, &old, offset)
        });
        Self { answer }
    }

    /// Returns the value, once. It refers to the unchanged chunks by their places in the old value,
    /// so it can only be put while its key still has that value.
    pub fn poll(&self, waker: &Waker) -> Poll<Result<LargeValue>> {
        self.answer.poll(waker)
    }
}

/// The value of which a part is changed.
#[derive(Debug)]
pub enum EditOld {
    /// A value in pages, or none.
    Value(Vec<u8>),
    /// A large value.
    Large(ValueStream),
}
