//! Rows of a new collection that are too many for a batch: they are written before the head that
//! names them.

use std::ops::Bound;

use pando_sync::atomic::{AtomicBool, Ordering};
use pandodb::{Db, Durability, Table, TransactionOptions};

use super::combination::Merged;
use super::elements::given_up_key;
use super::packed::Strings;

/// Bytes of the rows of a transaction, about.
const BATCH_BYTES: usize = 128 * 1024;
/// Bytes of the id that keys begin with.
const ID_BYTES: usize = 8;
/// Bytes of the log for a row besides the row, about.
const ROW_BYTES: usize = 32;

fn options() -> TransactionOptions {
    TransactionOptions::default().durability(Durability::None)
}

/// Rows of one collection, some of which are in memory at a time.
pub(crate) trait NewRows: Send {
    /// Adds the next ones to `rows`: about as many as a transaction has, or fewer if they take long
    /// to be found. Returns false if they were the last ones. Blocks.
    ///
    /// # Errors
    /// Those of the engine, as a text for the client.
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String>;

    /// Returns what was learnt of the collection while its rows were made, if it was not known
    /// before; to be asked behind the last one.
    fn merged(&mut self) -> Option<Merged> {
        None
    }
}

/// Rows of a transaction.
#[derive(Debug, Default)]
pub(crate) struct NextRows {
    /// Key and value in turns.
    rows: Strings,
    bytes: usize,
}

impl NextRows {
    /// Adds a row. Returns false if that is enough for a transaction.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.rows.push(key);
        self.rows.push(value);
        self.bytes += key.len() + value.len() + ROW_BYTES;
        self.bytes < BATCH_BYTES
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.bytes = 0;
    }
}

/// Writes all rows, in many transactions, while `is_wanted`. The collection `id` is one that was
/// given up, as long as nobody names it: after a crash the cleaner removes what was written. If the
/// database is emptied or changes places with another one meanwhile, that row is gone, and nothing
/// more is written.
///
/// Waits for room and for pages, and not for the disk: whoever names the collection commits later,
/// and so is durable later.
///
/// # Errors
/// Those of the engine.
pub(crate) fn write(
    new_rows: &mut dyn NewRows,
    db: &Db,
    (members, id): (&Table, u64),
    is_wanted: &AtomicBool,
) -> Result<(), String> {
    let mut given_up = Vec::new();
    given_up_key(id, &mut given_up);
    db.transact_with(options(), |transaction| {
        transaction.put(members, &given_up, b"")
    })
    .map_err(|error| error.to_string())?;
    let mut next = NextRows::default();
    // Relaxed: who sees it late writes some rows more.
    let mut has_more = true;
    while has_more && is_wanted.load(Ordering::Relaxed) {
        next.clear();
        has_more = new_rows.next(&mut next)?;
        if next.rows.len() > 0 {
            has_more &= write_some(&next.rows, db, (members, &given_up))?;
        }
    }
    Ok(())
}

/// Writes the rows of one transaction, if the row at `given_up` is there. Returns whether it is.
fn write_some(
    rows: &Strings,
    db: &Db,
    (members, given_up): (&Table, &[u8]),
) -> Result<bool, String> {
    let written = db.transact_with(options(), |transaction| {
        if !transaction.contains(members, given_up)? {
            return Ok(false);
        }
        for place in (0..rows.len()).step_by(2) {
            transaction.put(members, rows.at(place), rows.at(place + 1))?;
        }
        Ok(true)
    });
    written.map_err(|error| error.to_string())
}

/// Rows that were made before.
#[derive(Debug, Default)]
pub(crate) struct MadeRows {
    /// Key and value in turns.
    rows: Strings,
    /// Where those begin that were not asked for yet.
    from: usize,
}

impl MadeRows {
    /// Adds a row.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.rows.push(key);
        self.rows.push(value);
    }
}

impl NewRows for MadeRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        while self.from < self.rows.len() {
            let (key, value) = (self.rows.at(self.from), self.rows.at(self.from + 1));
            self.from += 2;
            if !rows.push(key, value) {
                break;
            }
        }
        Ok(self.from < self.rows.len())
    }
}

/// The rows of another collection or of a stream, with another id. They are those of one moment if
/// the head of that is the same before they are read and when the new one is named.
#[derive(Debug)]
pub(crate) struct CopiedRows {
    members: Table,
    /// Where those begin that were not read yet; `None` behind the last one.
    from: Option<Bound<Vec<u8>>>,
    /// Where those of the next collection begin.
    end: [u8; ID_BYTES],
    id: u64,
}

impl CopiedRows {
    /// Returns the rows of the collection `from`, as those of the collection `id`.
    pub(crate) fn new(members: Table, from: u64, id: u64) -> Self {
        Self {
            members,
            from: Some(Bound::Included(from.to_be_bytes().to_vec())),
            end: (from + 1).to_be_bytes(),
            id,
        }
    }
}

impl NewRows for CopiedRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        let Some(from) = self.from.take() else {
            return Ok(false);
        };
        let from = from.as_ref().map(|key| &key[..]);
        let mut left = self.members.range((from, Bound::Excluded(&self.end[..])));
        let mut copied = Vec::new();
        while let Some(row) = left.next_ref() {
            let (key, value) = row.map_err(|error| error.to_string())?;
            copied.clear();
            copied.extend_from_slice(&self.id.to_be_bytes());
            copied.extend_from_slice(key.get(ID_BYTES..).ok_or("a key is damaged")?);
            if !rows.push(&copied, value) {
                self.from = Some(Bound::Excluded(key.to_vec()));
                break;
            }
        }
        Ok(self.from.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given_up(id: u64) -> Vec<u8> {
        let mut key = Vec::new();
        given_up_key(id, &mut key);
        key
    }

    #[test]
    fn nothing_is_written_once_the_table_was_emptied() {
        let db = Db::builder().open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let mut rows = MadeRows::default();
        for number in 0..10_000_u64 {
            rows.push(&(number + 100).to_be_bytes(), &[7; 30]);
        }
        let wanted = AtomicBool::new(true);
        write(&mut rows, &db, (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 10_001);
        rows.from = 0;
        let mut next = NextRows::default();
        rows.next(&mut next).unwrap();
        let key = given_up(5);
        let written = write_some(&next.rows, &db, (&members, &key));
        assert_eq!((written, next.rows.len()), (Ok(true), rows.from));
        assert!(rows.from < 10_000, "{} strings in a batch", rows.from);
        db.clear_tables(&[&members]).unwrap();
        let written = write_some(&next.rows, &db, (&members, &key));
        assert_eq!((written, members.len()), (Ok(false), 0));
        // One that nobody wants any more gets nothing but the row for the cleaner.
        wanted.store(false, Ordering::Relaxed);
        write(&mut rows, &db, (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 1);
    }

    #[test]
    fn all_rows_of_a_collection_are_copied_and_no_others() {
        let db = Db::builder().open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let key = |id: u64, rest: u32| [&id.to_be_bytes()[..], &rest.to_be_bytes()].concat();
        for id in [6, 7, 8] {
            for rest in 0..9_000_u32 {
                let value = rest.to_le_bytes().repeat(rest as usize % 20);
                members.put(&key(id, rest), &value).unwrap();
            }
        }
        members.put(&key(7, 9_000), &vec![3; 300_000]).unwrap();
        /// Sees that the rows of one transaction are no longer there at the next one.
        struct Bounded(CopiedRows);
        impl NewRows for Bounded {
            fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
                assert_eq!((rows.rows.bytes(), rows.bytes), (0, 0));
                self.0.next(rows)
            }
        }
        let mut rows = Bounded(CopiedRows::new(members.clone(), 7, 20));
        let wanted = AtomicBool::new(true);
        write(&mut rows, &db, (&members, 20), &wanted).unwrap();
        assert_eq!(members.len(), 3 * 9_000 + 1 + 9_001 + 1);
        for rest in 0..=9_000 {
            let (old, new) = (members.get(&key(7, rest)), members.get(&key(20, rest)));
            assert_eq!(old.unwrap(), new.unwrap(), "{rest}");
        }
    }
}
