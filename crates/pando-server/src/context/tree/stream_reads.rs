//! Reads of single rows of streams, which may lie apart: pages that are missing are read together.

use pandodb::nonblocking::{Pending, Polled, Reads};

use super::stream::Stream;
use crate::context::{Context, Data, Interrupted, Run};
use crate::data::keyspace::RowError;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::entry_key;

/// Number of rows that are looked for behind one whose page is missing.
const ROWS_AHEAD: usize = 128;
/// Bytes that a row takes in memory besides its own, about.
const ROW_BYTES: usize = 32;

impl Context<'_> {
    /// Returns what `decode` makes of the value of the row at `key`, if there is one; it counts as
    /// those of [`Context::stream_rows_at`].
    pub(crate) fn stream_row<T>(
        &mut self,
        key: &[u8],
        decode: impl FnOnce(&[u8]) -> Result<T, RowError>,
    ) -> Result<Option<T>, Interrupted> {
        let members = self.members()?;
        let (most, held) = (self.engine().reply_bytes_max, self.progress.held_bytes);
        let Data { batch, scratch, .. } = self.data();
        let Some(batch) = batch.as_deref_mut() else {
            return Err(Interrupted::ReadsMany);
        };
        let row = &mut scratch.element_row;
        let found = match batch.get(members, key, row)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(found) => found,
        };
        let bytes = held + ROW_BYTES + if found { row.len() } else { 0 };
        if bytes > most {
            return Err(Interrupted::ReplyTooLong);
        }
        let decoded = found.then(|| decode(row)).transpose()?;
        self.progress.held_bytes = bytes;
        Ok(decoded)
    }

    /// Returns the values of the rows at `keys`, as far as there are some. Refuses the command if
    /// all that it reads so is longer together than a reply may be.
    pub(crate) fn stream_rows_at<K: AsRef<[u8]>>(
        &mut self,
        keys: impl Iterator<Item = K>,
    ) -> Result<Vec<Option<Vec<u8>>>, Interrupted> {
        self.decoded_rows_at(keys, |row| Ok(row.to_vec()))
    }

    /// As [`Context::stream_rows_at`], but returns what `decode` makes of the values.
    pub(crate) fn decoded_rows_at<K: AsRef<[u8]>, T>(
        &mut self,
        keys: impl Iterator<Item = K>,
        decode: impl Fn(&[u8]) -> Result<T, RowError>,
    ) -> Result<Vec<Option<T>>, Interrupted> {
        let most = self.engine().reply_bytes_max;
        let (mut rows, mut bytes) = (Vec::new(), self.progress.held_bytes);
        self.read_each(keys, usize::MAX, &mut |row| {
            bytes += ROW_BYTES + row.map_or(0, <[u8]>::len);
            rows.push(row.map(&decode).transpose()?);
            match bytes > most {
                true => Err(Interrupted::ReplyTooLong),
                false => Ok(()),
            }
        })?;
        self.progress.held_bytes = bytes;
        Ok(rows)
    }

    /// Returns the values of the entries with these IDs, likewise.
    pub(crate) fn entries_at(
        &mut self,
        stream: &Stream,
        ids: &[StreamId],
    ) -> Result<Vec<Option<Vec<u8>>>, Interrupted> {
        let id = stream.head.id;
        self.stream_rows_at(ids.iter().map(|at| entry_key(id, *at)))
    }

    /// Returns which of these entries are there; reads nothing of long ones.
    pub(crate) fn has_entries(
        &mut self,
        stream: &Stream,
        ids: &[StreamId],
    ) -> Result<Vec<bool>, Interrupted> {
        let id = stream.head.id;
        let keys = ids.iter().map(|at| entry_key(id, *at));
        let mut are_there = Vec::with_capacity(ids.len());
        self.read_each(keys, 0, &mut |row| {
            are_there.push(row.is_some());
            Ok(())
        })?;
        Ok(are_there)
    }

    /// Shows at least the first `bytes_max` bytes of each row to `found`, or that there is none. If
    /// a page is missing, those of the next rows are requested, too.
    fn read_each<K: AsRef<[u8]>>(
        &mut self,
        keys: impl Iterator<Item = K>,
        bytes_max: usize,
        found: &mut dyn FnMut(Option<&[u8]>) -> Run,
    ) -> Run {
        let members = self.members()?;
        let (mut missing, mut ahead) = (None::<Pending>, 0);
        let mut row = Vec::new();
        for key in keys {
            let Some(pending) = &mut missing else {
                let batch = self.batch()?;
                match batch.get_head(members, key.as_ref(), bytes_max, &mut row)? {
                    Polled::Pending(pending) => missing = Some(pending),
                    Polled::Ready(len) => found(len.map(|_| &row[..]))?,
                }
                continue;
            };
            if ahead == ROWS_AHEAD {
                break;
            }
            ahead += 1;
            let looked = Reads::of(members).prefetch(key.as_ref(), bytes_max, &mut row)?;
            if let Polled::Pending(other) = looked {
                pending.beside(other);
            }
        }
        missing.map_or(Ok(()), |pending| Err(Interrupted::Pending(pending)))
    }
}
