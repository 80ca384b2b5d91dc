//! Rows of a new collection that are too many for a batch: they are written before the head that
//! names them.

use std::ops::Bound;

use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, Ordering};
use pandodb::{Db, Durability, Table, TransactionOptions};

use super::combination::Merged;
use super::elements::given_up_key;
use super::packed::Strings;
use super::scratch::Scratch;
use super::sorter::{Sorted, Sorter};

/// Bytes of the rows of a transaction, about, at least and at most.
const BATCH_BYTES_MIN: usize = 16 * 1024;
const BATCH_BYTES_MAX: usize = 128 * 1024;
/// Bytes of the id that keys begin with.
const ID_BYTES: usize = 8;
/// Bytes of the log for a row besides the row, about.
const ROW_BYTES: usize = 32;
/// Rows that are sorted in one turn, about.
const SORTED_AT_ONCE: usize = 16 << 10;

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

/// Rows of a transaction, and those that are written behind all others.
#[derive(Debug)]
pub(crate) struct NextRows {
    /// Key and value in turns.
    rows: Strings,
    /// Bytes of what was added for this transaction, also behind all others.
    bytes: usize,
    bytes_max: usize,
    later: Sorter,
}

impl NextRows {
    /// Returns no rows, for transactions of about so many bytes; what is written behind all others
    /// is sorted in `scratch`.
    pub(crate) fn new(scratch: Arc<Scratch>, bytes_max: usize) -> Self {
        Self {
            rows: Strings::default(),
            bytes: 0,
            bytes_max,
            later: Sorter::new(scratch, false),
        }
    }

    /// Adds a row. Returns false if that is enough for a transaction.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.rows.push(key);
        self.rows.push(value);
        self.count(key, value)
    }

    /// Adds a row that is written behind all others, in the order of their keys: those whose keys
    /// come in no order would each be in another page, which is read and written for it if there
    /// are more pages than memory. Returns false if that is enough for now. May block.
    pub(crate) fn push_later(&mut self, key: &[u8], value: &[u8]) -> Result<bool, String> {
        self.later.push(&[key], value)?;
        Ok(self.count(key, value))
    }

    fn count(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.bytes += key.len() + value.len() + ROW_BYTES;
        self.bytes < self.bytes_max
    }

    /// Adds rows that were sorted. Returns false if there are none.
    fn take_from(&mut self, sorted: &mut Sorted) -> Result<bool, String> {
        while let Some((key, value)) = sorted.next()? {
            if !self.push(key, value) {
                break;
            }
        }
        Ok(self.rows.len() > 0)
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
    (db, scratch): (&Db, Arc<Scratch>),
    (members, id): (&Table, u64),
    is_wanted: &AtomicBool,
) -> Result<(), String> {
    let mut given_up = Vec::new();
    given_up_key(id, &mut given_up);
    db.transact_with(options(), |transaction| {
        transaction.put(members, &given_up, b"")
    })
    .map_err(|error| error.to_string())?;
    // A transaction of more keys than the versions of old values have room for ends what others
    // read.
    let room = db.memory().old_versions.budget_bytes / 16;
    let bytes_max = usize::try_from(room).unwrap_or(usize::MAX);
    let bytes_max = bytes_max.clamp(BATCH_BYTES_MIN, BATCH_BYTES_MAX);
    let mut next = NextRows::new(scratch, bytes_max);
    let mut has_more = true;
    let mut sorted = None;
    // Relaxed: who sees it late writes some rows more.
    while is_wanted.load(Ordering::Relaxed) {
        next.clear();
        if has_more {
            has_more = new_rows.next(&mut next)?;
        } else if let Some(sorted) = &mut sorted {
            if !next.take_from(sorted)? {
                break;
            }
        } else {
            sorted = next.later.settle(SORTED_AT_ONCE)?;
        }
        if next.rows.len() > 0 && !write_some(&next.rows, db, (members, &given_up))? {
            break;
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
        write(&mut rows, (&db, Scratch::new("")), (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 10_001);
        rows.from = 0;
        let mut next = NextRows::new(Scratch::new(""), BATCH_BYTES_MAX);
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
        write(&mut rows, (&db, Scratch::new("")), (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 1);
    }

    /// Rows in the order of their keys, and others in the opposite one.
    struct BothWays {
        left: u32,
    }

    impl NewRows for BothWays {
        fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
            let mut has_room = true;
            while has_room && self.left > 0 {
                let key = (7_u32 << 24 | self.left).to_be_bytes();
                self.left -= 1;
                has_room = rows.push_later(&key, &[3; 40])?;
                rows.push(&self.left.to_be_bytes(), &[5; 40]);
            }
            Ok(self.left > 0)
        }
    }

    #[test]
    fn rows_for_later_are_written_in_order_behind_all_others() {
        const COUNT: u32 = 200_000;
        let db = Db::builder().open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let wanted = AtomicBool::new(true);
        let scratch = Scratch::new("");
        let mut rows = BothWays { left: COUNT };
        write(&mut rows, (&db, scratch.clone()), (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 2 * u64::from(COUNT) + 1);
        assert_eq!(scratch.bytes(), 0);
        for number in 1..=COUNT {
            let key = (7 << 24 | number).to_be_bytes();
            assert_eq!(members.get(&key).unwrap().unwrap(), [3; 40]);
        }

        let mut next = NextRows::new(scratch.clone(), BATCH_BYTES_MAX);
        let mut rows = BothWays { left: COUNT };
        while rows.next(&mut next).unwrap() {
            assert!(next.bytes < 2 * BATCH_BYTES_MAX, "{}", next.bytes);
            next.clear();
        }
        let mut sorted = loop {
            if let Some(sorted) = next.later.settle(SORTED_AT_ONCE).unwrap() {
                break sorted;
            }
        };
        assert!(
            scratch.bytes() > u64::from(COUNT) * 44,
            "they are in a file"
        );
        let mut number = 0_u32;
        next.clear();
        while next.take_from(&mut sorted).unwrap() {
            assert!(next.bytes < 2 * BATCH_BYTES_MAX, "{}", next.bytes);
            for place in (0..next.rows.len()).step_by(2) {
                number += 1;
                assert_eq!(next.rows.at(place), (7 << 24 | number).to_be_bytes());
            }
            next.clear();
        }
        assert_eq!(number, COUNT);
    }

    /// Who waits for a result may leave while its rows are sorted.
    #[test]
    fn rows_for_later_are_not_written_for_nobody() {
        /// Ends the wish with the last row.
        struct Left<'a>(BothWays, &'a AtomicBool);
        impl NewRows for Left<'_> {
            fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
                let has_more = self.0.next(rows)?;
                self.1.store(has_more, Ordering::Relaxed);
                Ok(has_more)
            }
        }
        let db = Db::builder().open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let wanted = AtomicBool::new(true);
        let mut rows = Left(BothWays { left: 9_000 }, &wanted);
        let scratch = Scratch::new("");
        write(&mut rows, (&db, scratch), (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 9_001);
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
        write(&mut rows, (&db, Scratch::new("")), (&members, 20), &wanted).unwrap();
        assert_eq!(members.len(), 3 * 9_000 + 1 + 9_001 + 1);
        for rest in 0..=9_000 {
            let (old, new) = (members.get(&key(7, rest)), members.get(&key(20, rest)));
            assert_eq!(old.unwrap(), new.unwrap(), "{rest}");
        }
    }
}
