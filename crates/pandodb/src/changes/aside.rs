//! Writes that are in the log but cannot be applied, because the page of their key cannot be read
//! (decision 061).
//!
//! A commit makes sure of its pages before its record is written, so this is for pages that turn
//! bad after that, and for replay. The page is put *out of reach*: if it became readable later, the
//! write would be missing from it. The write is put *aside*, as rows of the garbage table, which
//! get into the checkpoint that frees its record. The rest of its batch is applied, and the store
//! continues: reads of the page's range get an error, and writes to it are refused before they are
//! logged.

use pando_format::catalogue::{FIRST_USER_TREE, GarbageRow};
use pando_format::lost::{
    AsideChange, AsideWrite, aside_key, aside_pieces, encode_leaks, encode_piece, leak_key,
};
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{ApplyToken, Attempt, Marks};
use pando_stats::Ticker;
use pando_sync::atomic::Ordering;
use pando_tree::{Scratch, Tree, ValueReader};

use crate::error::{Error, Result};
use crate::pages::store::Store;
use crate::tables::state::GARBAGE;

/// Failed reads of a page before it is given up: some errors are transient.
pub(crate) const READS_MAX: u32 = 4;

impl Store {
    /// Runs a change of a value until it succeeds. It does without overflow pages of the old value
    /// that cannot be read: the pages that those name are leaked. Blocks.
    pub(crate) fn change<T>(
        &self,
        scratch: &mut Scratch,
        mut step: impl FnMut(&mut Scratch) -> Attempt<T>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let error = match self.drive(|| step(scratch)) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let Error::CorruptPage { page, .. } = &error else {
                return Err(error);
            };
            tries += 1;
            if tries < READS_MAX {
                continue;
            }
            if !scratch.do_without(*page) {
                return Err(error);
            }
            tries = 0;
            tracing::error!(%error, "a part of a value that is replaced is leaked");
        }
    }

    /// Counts the pages that changes of `tree` have leaked since the last call, in a row of the
    /// garbage table.
    pub(crate) fn note_leaks(
        &self,
        token: &ApplyToken<'_>,
        tree: TreeId,
        leaks: u64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        if leaks == 0 {
            return Ok(());
        }
        self.statistics.tick(Ticker::Leaks, leaks);
        self.count_leaks(token, tree, leaks, scratch)
    }

    /// Counts leaks of `tree` in its row; keeps them for later if that cannot be read. Blocks.
    pub(crate) fn count_leaks(
        &self,
        token: &ApplyToken<'_>,
        tree: TreeId,
        leaks: u64,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let key = leak_key(tree);
        let noted = self.leaks_of(&key).and_then(|before| {
            let row = encode_leaks(tree, before.saturating_add(leaks));
            let marks = Marks {
                lsn: Lsn(0),
                multi_lsn: Lsn(0),
            };
            self.put_row(token, marks, &key, &row, scratch)
        });
        if is_damaged(noted, "a leak that is not counted yet")? {
            self.uncounted_leaks.add(tree, leaks);
        }
        Ok(())
    }

    /// Returns the number of leaks that the row at `key` has.
    fn leaks_of(&self, key: &[u8]) -> Result<u64> {
        let (mut reader, mut row) = (ValueReader::new(), Vec::new());
        let lookup = self.drive(|| GARBAGE.try_get(&self.pool, key, &mut reader, &mut row))?;
        Ok(match lookup.found.then(|| GarbageRow::decode(&row)) {
            Some(Ok(GarbageRow::Leaked { count, .. })) => count,
            _ => 0,
        })
    }

    /// Puts a row into the garbage table. Blocks.
    fn put_row(
        &self,
        token: &ApplyToken<'_>,
        marks: Marks,
        key: &[u8],
        row: &[u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.drive(|| GARBAGE.try_insert(&self.pool, token, marks, key, row, scratch))?;
        self.drive(|| scratch.try_finish(&self.pool, token))
    }

    /// Puts the page out of reach at which a logged write to `tree` has failed with `error`.
    /// Returns false if the page is in memory after all, or was freed: then the write may be tried
    /// again.
    ///
    /// # Errors
    /// `error`, if it is not about a page of a user table.
    pub(crate) fn give_page_up(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        error: &Error,
    ) -> Result<bool> {
        let Error::CorruptPage { page, extent, .. } = error else {
            return Err(error.clone());
        };
        if tree.id < FIRST_USER_TREE || *page == PageId::NONE {
            return Err(error.clone());
        }
        let is_out_of_reach = self.drive(|| self.pool.put_out_of_reach(token, *page))?;
        // A page in memory that is not what its tree needs stays that way: whoever descends to it
        // gets the error.
        Ok(is_out_of_reach || extent.is_none())
    }

    /// Puts a write of the batch at `lsn` aside, which has failed with `error`.
    ///
    /// # Errors
    /// If the garbage table cannot be changed.
    pub(crate) fn put_aside(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        lsn: Lsn,
        (key, change): (&[u8], AsideChange<'_>),
        error: &Error,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.drive(|| scratch.abandon(&self.pool, token))?;
        assert!(
            scratch.is_finished(),
            "nothing of the write is left half done"
        );
        self.statistics.tick(Ticker::WritesAside, 1);
        tracing::error!(%error, %lsn, tree = %tree.id, "a write is put aside, its page is out of reach");
        let write = AsideWrite {
            tree: tree.id,
            key,
            change,
        };
        let marks = Marks {
            lsn,
            multi_lsn: Lsn(0),
        };
        // Relaxed: the number only has to be unique.
        let number = self.aside_number.fetch_add(1, Ordering::Relaxed);
        for (piece, bytes) in aside_pieces(&write.encode()).enumerate() {
            let piece = u16::try_from(piece).expect("pieces of another write");
            let key = aside_key(lsn, number, piece);
            self.put_row(token, marks, &key, &encode_piece(bytes), scratch)?;
        }
        Ok(())
    }
}

/// Logs damage instead of failing, for a step that only frees space or counts. Returns whether
/// there is damage.
pub(crate) fn is_damaged(result: Result<()>, what: &'static str) -> Result<bool> {
    match result {
        Err(error) if error.is_corruption() => {
            tracing::error!(%error, "{what}");
            Ok(true)
        }
        other => other.map(|()| false),
    }
}
