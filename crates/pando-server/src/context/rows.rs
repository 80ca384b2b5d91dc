//! Reading and writing rows: the only place where commands access the tables of keys.

use pando_resp::Writer;
use pandodb::nonblocking::{Opened, Polled, Reads};
use pandodb::{Error, ValueStream};

use super::{Chunked, Context, Flags, Former, Found, Interrupted, NewString, Run};
use crate::client::waiters::queue_of;
use crate::context::replies;
use crate::context::strings::FormerState;
use crate::data::keyspace::{Expiry, Row, RowError, Times, ValueType};
use crate::data::keyspace::{encode_head, entry_key, plain_head, telling_bytes};
use crate::data::piece_head::PieceHead;
use crate::data::tree_head::tree_of;

impl Context<'_> {
    /// Reads the row of `key`: through the batch if the command has one, else its current state.
    #[inline]
    pub(crate) fn find(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_bytes(key, None)?;
        self.check_type(&found)?;
        match found.pieces {
            Some(_) => self.with_pieces(found),
            None => Ok(found),
        }
    }

    /// As [`Context::find`], but reads no bytes of a string in pieces.
    pub(crate) fn find_partly(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_bytes(key, None)?;
        self.check_type(&found)?;
        Ok(found)
    }

    /// As [`Context::find_partly`], for a command that may change a part of the string. One in a
    /// single piece is read whole, and looks as if it lay in its row: what is written of it goes
    /// there, or to several pieces.
    pub(crate) fn find_to_change(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_partly(key)?;
        match &found.pieces {
            Some(head) if head.is_in_one_piece() => {
                let found = self.with_pieces(found)?;
                Ok(Found {
                    pieces: None,
                    ..found
                })
            }
            _ => Ok(found),
        }
    }

    /// Reads the string in pieces that was found last.
    #[cold]
    fn with_pieces(&mut self, found: Found) -> Result<Found, Interrupted> {
        let (Some(row), Some(head)) = (found.row, &found.pieces) else {
            return Ok(found);
        };
        if head.is_in_one_piece() {
            self.read_one_piece(head, row)?;
            return Ok(Found { cut: 0, ..found });
        }
        let mut value = std::mem::take(&mut self.data().scratch.value);
        let read = self.bytes_in_pieces(head, &(0..u64::from(head.length)));
        value.truncate(row.payload);
        if let Ok(bytes) = &read {
            value.extend_from_slice(bytes.as_slice());
        }
        self.data().scratch.value = value;
        read?;
        Ok(Found { cut: 0, ..found })
    }

    /// As [`Context::find`], for a command that needs no more than the head of the row, whose value
    /// may have any type.
    pub(crate) fn find_any_head(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let whole_key = self.engine().folder.folds(key).then_some(key);
        self.find_bytes(key, Some(telling_bytes(whole_key)))
    }

    /// Refuses the command if the value has another type than the command takes.
    #[inline]
    fn check_type(&self, found: &Found) -> Run {
        match (found.row, self.command.value_type) {
            (Some(row), Some(wanted)) if row.value_type != wanted => {
                Err(Interrupted::from(replies::WRONG_TYPE))
            }
            _ => Ok(()),
        }
    }

    /// As [`Context::find`], for a command that needs no more than the head of the row and the
    /// length of its string: if that is long, its payload is cut.
    pub(crate) fn find_head(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_any_head(key)?;
        self.check_type(&found)?;
        Ok(found)
    }

    /// Reads the row of `key`; if it is long, no more than its first `head` bytes.
    #[expect(
        clippy::inline_always,
        reason = "else what it finds goes through memory, twice, on the way to each command"
    )]
    #[inline(always)]
    fn find_bytes(&mut self, key: &[u8], head: Option<usize>) -> Result<Found, Interrupted> {
        if self.progress.kept_head.is_some() {
            self.write_kept_head()?;
        }
        if self.progress.read_stretch.is_some() {
            return self.find_in_stretch(key);
        }
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        scratch.value.clear();
        let (stored, value) = (&scratch.stored[..], &mut scratch.value);
        let mut shown_from = None;
        let attempt = match (data.batch.as_deref_mut(), head) {
            (Some(batch), None) => {
                let attempt = batch.get(&database.keys, stored, value);
                attempt.map(|found| found.map(|found| found.then_some(value.len())))
            }
            (Some(batch), Some(head)) => batch.get_head(&database.keys, stored, head, value),
            (None, head) => {
                let (reads, foreseen) = (Reads::of(&database.keys), &mut scratch.foreseen);
                let what = (stored, head.unwrap_or(usize::MAX));
                let found = reads.get_foreseen(foreseen, what, value, &mut shown_from);
                match (found, head) {
                    (Some(found), _) => Ok(Polled::Ready(found)),
                    (None, None) => {
                        let attempt = reads.get(stored, value, &mut shown_from);
                        attempt.map(|found| found.map(|found| found.then_some(value.len())))
                    }
                    (None, Some(head)) => reads.get_head(stored, head, value, &mut shown_from),
                }
            }
        };
        let (mut large, mut cut) = (None, 0);
        match attempt {
            Ok(Polled::Pending(pending)) => return Err(Interrupted::Pending(pending)),
            Ok(Polled::Ready(found)) => {
                cut = found.map_or(0, |len| len - value.len());
                self.progress.show_from(shown_from);
                if found.is_none() {
                    return Ok(Found::default());
                }
            }
            Err(Error::InChunks) if self.is_together => return Err(Interrupted::Yield),
            Err(Error::InChunks) => match self.open()? {
                Opened::Absent => return Ok(Found::default()),
                Opened::Value => {}
                Opened::Large(stream) => large = Some(stream),
            },
            Err(error) => return Err(Interrupted::Engine(error)),
        }
        self.found(key, large, cut)
    }

    /// Has a command that may show all of a large collection run alone.
    #[inline]
    pub(super) fn leave_to_itself(&self) -> Run {
        match self.is_together && self.command.shows_all() {
            true => Err(Interrupted::Yield),
            false => Ok(()),
        }
    }

    /// Describes the row of `key`, which is in the scratch.
    #[expect(clippy::inline_always, reason = "as for find_bytes")]
    #[inline(always)]
    fn found(
        &mut self,
        key: &[u8],
        large: Option<ValueStream>,
        mut cut: usize,
    ) -> Result<Found, Interrupted> {
        let now_ms = self.now_ms;
        let scratch = &*self.data().scratch;
        let mut row = Row::decode(&scratch.stored, &scratch.value)?;
        let patches = match (&large, row.value_type) {
            (Some(stream), ValueType::Patched) => {
                let head = PieceHead::decode_patched(&scratch.value[row.payload..])?;
                let length = stream.len() - stream.head().len() as u64;
                if u64::from(head.length) != length {
                    return Err(Interrupted::Row(RowError::Damaged));
                }
                Some(head)
            }
            (Some(_), ValueType::String) => None,
            (Some(_), _) | (None, ValueType::Patched) => {
                return Err(Interrupted::Row(RowError::Damaged));
            }
            (None, _) => None,
        };
        if row.user_key(&scratch.stored, &scratch.value) != key {
            return Err(Interrupted::Row(RowError::OtherKey));
        }
        let lives = !row.is_over(now_ms);
        let former = Former {
            entry: row.expiry.map(|expiry| expiry.entry),
            tree: tree_of(&row, &scratch.value)?,
            state: match lives {
                true => FormerState::Lives,
                false if row.times().is_over_itself(now_ms) => FormerState::Over,
                false => FormerState::FieldsOver,
            },
        };
        let mut pieces = None;
        if row.value_type == ValueType::Pieces {
            let head = PieceHead::decode(&scratch.value[row.payload..])?;
            row.value_type = ValueType::String;
            if lives {
                cut = head.length as usize;
                pieces = Some(Box::new(head));
            }
        }
        if patches.is_some() {
            // As of any string in chunks: its bytes are not in the row.
            row.value_type = ValueType::String;
            row.payload = scratch.value.len();
        }
        let large = large.filter(|_| lives);
        let large = large.map(|stream| Box::new(Chunked { stream, patches }));
        if former.tree.is_some() {
            self.leave_to_itself()?;
            self.note_tree();
        }
        Ok(Found {
            row: lives.then_some(row),
            former,
            large,
            pieces,
            cut,
        })
    }

    /// Describes the row of `key`, which is in the scratch, all of it.
    pub(super) fn found_plain(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        self.found(key, None, 0)
    }

    /// Prepares for what is read or written behind the head of a large collection, which was read.
    fn note_tree(&mut self) {
        if self.data().batch.is_none() {
            // Behind the head: if a swap came before this, and no other one comes, the head is
            // found to have changed.
            let last_swap = self.last_swap();
            self.progress.beside_swap.get_or_insert(last_swap);
        }
    }

    /// Opens the value whose stored key is in the scratch, and which is known to lie in chunks.
    #[cold]
    fn open(&mut self) -> Result<Opened, Interrupted> {
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        let attempt = match data.batch.as_deref_mut() {
            Some(batch) => batch.open(&database.keys, &scratch.stored, &mut scratch.value)?,
            None => {
                let mut shown_from = None;
                let attempt = Reads::of(&database.keys).open(
                    &scratch.stored,
                    &mut scratch.value,
                    &mut shown_from,
                );
                self.progress.show_from(shown_from);
                attempt?
            }
        };
        match attempt {
            Polled::Ready(opened) => Ok(opened),
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
        }
    }

    /// Like [`Context::find`], for a command that replies with what it finds: counts hits and
    /// misses.
    #[inline]
    pub(crate) fn read(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find(key);
        self.count_look_up(key, &found);
        found
    }

    /// Like [`Context::read`], for what [`Context::find_partly`] finds.
    pub(crate) fn read_partly(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_partly(key);
        self.count_look_up(key, &found);
        found
    }

    /// Like [`Context::read`], for what [`Context::find_head`] finds.
    pub(crate) fn read_head(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        let found = self.find_head(key);
        self.count_look_up(key, &found);
        found
    }

    #[inline]
    fn count_look_up(&mut self, key: &[u8], found: &Result<Found, Interrupted>) {
        match found {
            Ok(Found { row: Some(_), .. }) => self.progress.hits += 1,
            Ok(_) => {
                self.progress.misses += 1;
                self.event_of_miss(key);
            }
            // It has found a value of another type.
            Err(Interrupted::Refused(text)) if text == replies::WRONG_TYPE => {
                self.progress.hits += 1;
            }
            Err(_) => {}
        }
    }

    /// Returns the string of the row that was read last, as far as it was read; empty if it lies in
    /// chunks. Of one in pieces that was not read it is the head.
    #[inline]
    pub(crate) fn payload(&mut self, row: Row) -> &[u8] {
        &self.data().scratch.value[row.payload..]
    }

    /// Replies with the string of the row that was read last, or with null.
    #[inline]
    pub(crate) fn reply_found(&mut self, found: &Found) -> Run {
        assert_eq!(found.cut, 0, "a reply has the whole string");
        if let Some(chunked) = &found.large {
            return self.reply_part(chunked, 0..chunked.len());
        }
        let version = self.session.version;
        let data = self.data.as_ref();
        let scratch = &*data.expect("a row was read").scratch;
        let mut writer = Writer::new(self.out, version);
        match found.row {
            Some(row) => writer.bulk(&scratch.value[row.payload..]),
            None => writer.null(),
        }
        self.check_reply()
    }

    /// Writes a string; `former` is what the key has now.
    #[inline]
    pub(crate) fn put(
        &mut self,
        key: &[u8],
        string: NewString<'_>,
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        match string {
            NewString::Bytes(payload) if self.lies_in_pages(key, payload.len() as u64) => {
                self.put_value(key, (ValueType::String, payload), deadline, former)
            }
            _ => self.put_chunks(key, string, deadline, former),
        }
    }

    /// Writes a value that lies in pages: its type and its payload.
    pub(crate) fn put_value(
        &mut self,
        key: &[u8],
        (value_type, payload): (ValueType, &[u8]),
        deadline: Option<u64>,
        former: Former,
    ) -> Run {
        self.put_row(key, (value_type, payload), Times::of(deadline), former)
    }

    /// As [`Context::put_value`], with all its times.
    pub(crate) fn put_row(
        &mut self,
        key: &[u8],
        (value_type, payload): (ValueType, &[u8]),
        times: Times,
        former: Former,
    ) -> Run {
        let is_awaited = matches!(
            value_type,
            ValueType::List | ValueType::SortedSet | ValueType::Stream
        );
        if is_awaited {
            let queue = queue_of(self.session.database, value_type);
            self.progress.pushed.add(queue, key);
        }
        self.put_unawaited(key, (value_type, payload), times, former)
    }

    /// As [`Context::put_row`], of a change for which nobody waits.
    #[inline]
    pub(super) fn put_unawaited(
        &mut self,
        key: &[u8],
        value: (ValueType, &[u8]),
        times: Times,
        former: Former,
    ) -> Run {
        self.note_written(key);
        self.put_untold(key, value, times, former)
    }

    /// As [`Context::put_unawaited`], of a change of which those who have read the value need not
    /// hear.
    pub(super) fn put_untold(
        &mut self,
        key: &[u8],
        (value_type, payload): (ValueType, &[u8]),
        times: Times,
        former: Former,
    ) -> Run {
        self.check_lock(key)?;
        let expiry = match former.owns_nothing() && times.due().is_none() {
            true => None,
            false => self.replace_former(key, times, former)?,
        };
        self.event_of_new(key, former);
        let whole_key = self.engine().folder.folds(key).then_some(key);
        if expiry.is_none() && whole_key.is_none() {
            return self.put_encoded(key, (&plain_head(value_type), payload));
        }
        let scratch = &mut *self.data().scratch;
        let mut head = std::mem::take(&mut scratch.encoded);
        encode_head(&mut head, value_type, whole_key, expiry);
        let result = self.put_encoded(key, (&head, payload));
        self.data().scratch.encoded = head;
        result
    }

    /// Changes the deadline of the value that was read last.
    pub(crate) fn put_deadline(&mut self, key: &[u8], found: &Found, deadline: Option<u64>) -> Run {
        if let Some(chunked) = &found.large {
            return self.put_head(key, chunked, deadline, found.former.but_tree());
        }
        if let Some(head) = &found.pieces {
            return self.put_piece_head(key, head, deadline, found.former.but_tree());
        }
        let row = found.row.expect("only a value that lives gets a deadline");
        assert_eq!(found.cut, 0, "the whole string is written again");
        let value = std::mem::take(&mut self.data().scratch.value);
        let payload = (row.value_type, &value[row.payload..]);
        let fields = row.times().fields;
        let times = Times { deadline, fields };
        let moves = row.times().deadline.is_some() && deadline.is_some();
        let result = match moves && self.is_better_in_one_piece(payload) {
            true => self.put_in_one_piece(key, payload.1, times, found.former),
            false => self.put_row(key, payload, times, found.former.but_tree()),
        };
        self.data().scratch.value = value;
        result
    }

    /// Notes that the value at `key` changes, for the clients that have read it.
    #[inline]
    pub(super) fn note_written(&mut self, key: &[u8]) {
        match self.shared.tracking.is_watching() {
            true => self.progress.written.add(key),
            false => self.progress.written.add_unseen(),
        }
    }

    /// Puts a row that consists of a head and a payload.
    #[inline]
    fn put_encoded(&mut self, key: &[u8], row: (&[u8], &[u8])) -> Run {
        let number = self.session.database;
        let database = self.database();
        let frees_room = self.command.flags.has(Flags::REMOVES);
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("commands that write have a transaction");
        match frees_room {
            false => batch.put_joined(&database.keys, &scratch.stored, row)?,
            true => batch.put_freeing(&database.keys, &scratch.stored, row)?,
        }
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.put(number, &scratch.stored, key);
        }
        Ok(())
    }

    /// Deletes the row that `found` describes at `key`, its expiry entry, and its elements if they
    /// have rows of their own.
    pub(crate) fn remove(&mut self, key: &[u8], found: &Found) -> Run {
        self.remove_row(key, found.former)
    }

    /// Deletes the row at `key`, and what goes with it.
    pub(crate) fn remove_row(&mut self, key: &[u8], former: Former) -> Run {
        self.check_lock(key)?;
        self.note_written(key);
        let number = self.session.database;
        let database = self.database();
        self.replace_former(key, Times::default(), former)?;
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("commands that write have a transaction");
        batch.delete(&database.keys, &scratch.stored);
        if let Some(overlay) = data.overlay.as_deref_mut() {
            overlay.delete(number, &scratch.stored);
        }
        Ok(())
    }

    /// Makes sure that the key's only expiry entry is not later than the times, and gives up the
    /// collection that the key has had.
    pub(super) fn replace_former(
        &mut self,
        key: &[u8],
        times: Times,
        former: Former,
    ) -> Result<Option<Expiry>, Interrupted> {
        self.event_of_former(key, former);
        if let Some(id) = former.tree {
            self.give_up(id)?;
            self.wake_readers(key);
        }
        self.move_entry(key, times, former.entry)
    }

    /// Who waits for the stream at `key` looks again once the command has committed.
    pub(crate) fn wake_readers(&mut self, key: &[u8]) {
        let queue = queue_of(self.session.database, ValueType::Stream);
        self.progress.pushed.add(queue, key);
    }

    /// Makes sure that the key's only expiry entry is not later than the times.
    fn move_entry(
        &mut self,
        key: &[u8],
        times: Times,
        entry: Option<u64>,
    ) -> Result<Option<Expiry>, Interrupted> {
        let due = times.due();
        if let (Some(due), Some(entry)) = (due, entry)
            // One that has come due may be gone.
            && (self.now_ms..=due).contains(&entry)
        {
            return Ok(Some(Expiry { times, entry }));
        }
        if due.is_none() && entry.is_none() {
            return Ok(None);
        }
        let database = self.database();
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(key, &mut scratch.stored);
        let batch = data.batch.as_deref_mut();
        let batch = batch.expect("commands that write have a transaction");
        if let Some(entry) = entry {
            entry_key(&mut scratch.encoded, entry, &scratch.stored);
            batch.delete(&database.elements, &scratch.encoded);
        }
        let Some(entry) = due else {
            return Ok(None);
        };
        entry_key(&mut scratch.encoded, entry, &scratch.stored);
        batch.put(&database.elements, &scratch.encoded, b"")?;
        Ok(Some(Expiry { times, entry }))
    }
}
