//! Rows of a new collection that are too many for a batch: they are written before the head that
//! names them.

use pando_sync::atomic::{AtomicBool, Ordering};
use pandodb::{Db, Durability, Table, TransactionOptions};

use super::elements::given_up_key;
use super::packed::Strings;

/// Bytes of the rows of a transaction, about.
const BATCH_BYTES: usize = 128 * 1024;
/// Bytes of the log for a row besides the row, about.
const ROW_BYTES: usize = 32;

fn options() -> TransactionOptions {
    TransactionOptions::default().durability(Durability::None)
}

/// Rows of one collection.
#[derive(Debug, Default)]
pub(crate) struct NewRows {
    /// Key and value in turns.
    rows: Strings,
}

impl NewRows {
    /// Adds a row.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) {
        self.rows.push(key);
        self.rows.push(value);
    }

    /// Writes all of them, in many transactions, while `is_wanted`. The collection `id` is one that
    /// was given up, as long as nobody names it: after a crash the cleaner removes what was
    /// written. If the database is emptied or changes places with another one meanwhile, that row
    /// is gone, and nothing more is written.
    ///
    /// Waits for room and for pages, and not for the disk: whoever names the collection commits
    /// later, and so is durable later.
    ///
    /// # Errors
    /// Those of the engine.
    pub(crate) fn write(
        &self,
        db: &Db,
        (members, id): (&Table, u64),
        is_wanted: &AtomicBool,
    ) -> pandodb::Result<()> {
        let mut given_up = Vec::new();
        given_up_key(id, &mut given_up);
        db.transact_with(options(), |transaction| {
            transaction.put(members, &given_up, b"")
        })?;
        let mut next = Some(0);
        // Relaxed: who sees it late writes some rows more.
        while let Some(from) = next
            && is_wanted.load(Ordering::Relaxed)
        {
            next = self.write_some(db, (members, &given_up), from)?;
        }
        Ok(())
    }

    /// Writes those of one transaction, from the place `from` on, if the row at `given_up` is
    /// there. Returns where the others begin, if there are any, and they are to be written.
    fn write_some(
        &self,
        db: &Db,
        (members, given_up): (&Table, &[u8]),
        from: usize,
    ) -> pandodb::Result<Option<usize>> {
        let end = self.batch_end(from);
        let is_there = db.transact_with(options(), |transaction| {
            if !transaction.contains(members, given_up)? {
                return Ok(false);
            }
            for place in (from..end).step_by(2) {
                transaction.put(members, self.rows.at(place), self.rows.at(place + 1))?;
            }
            Ok(true)
        })?;
        Ok((is_there && end < self.rows.len()).then_some(end))
    }

    /// Returns the place behind the rows of a transaction that begins at `from`.
    fn batch_end(&self, from: usize) -> usize {
        let mut bytes = 0;
        let mut end = from;
        while end < self.rows.len() && bytes < BATCH_BYTES {
            bytes += self.rows.at(end).len() + self.rows.at(end + 1).len() + ROW_BYTES;
            end += 2;
        }
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_written_once_the_table_was_emptied() {
        let db = Db::builder().open_in_memory().unwrap();
        let members = db.table("members").unwrap();
        let mut rows = NewRows::default();
        for number in 0..10_000_u64 {
            rows.push(&(number + 100).to_be_bytes(), &[7; 30]);
        }
        let wanted = AtomicBool::new(true);
        rows.write(&db, (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 10_001);
        let mut given_up = Vec::new();
        given_up_key(5, &mut given_up);
        let next = rows.write_some(&db, (&members, &given_up), 0).unwrap();
        assert_eq!(next, Some(rows.batch_end(0)));
        db.clear_tables(&[&members]).unwrap();
        let next = rows.write_some(&db, (&members, &given_up), 0).unwrap();
        assert_eq!((next, members.len()), (None, 0));
        // One that nobody wants any more gets nothing but the row for the cleaner.
        wanted.store(false, Ordering::Relaxed);
        rows.write(&db, (&members, 5), &wanted).unwrap();
        assert_eq!(members.len(), 1);
    }
}
