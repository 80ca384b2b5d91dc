//! Applying a write to the pages of its tree inside the gate, for commits and for replay.

use pando_format::Lsn;
use pando_format::chunks::BlobRef;
use pando_format::lost::AsideChange;
use pando_pool::{ApplyToken, Marks};
use pando_stats::Ticker;
use pando_tree::{LeafFill, Place, Scratch, Tree};

use crate::error::Result;
use crate::pages::store::Store;

impl Store {
    /// Applies one write to a tree. Returns the change of the number of entries, and how full a
    /// removal left its leaf. Blocks.
    pub(crate) fn apply(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        marks: Marks,
        key: &[u8],
        value: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let place = Place::default();
        self.apply_at(token, tree, marks, (key, &place), value, scratch)
    }

    /// As [`Store::apply`], for a key that was found at a place.
    pub(crate) fn apply_at(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        marks: Marks,
        (key, place): (&[u8], &Place),
        value: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let (ticker, bytes) = match value {
            Some(value) => (Ticker::Puts, key.len() + value.len()),
            None => (Ticker::Deletes, key.len()),
        };
        self.statistics.tick(ticker, 1);
        self.statistics.tick(Ticker::WriteBytes, bytes as u64);
        let done = loop {
            let error = match self.try_apply(token, tree, marks, (key, place), value, scratch) {
                Ok(done) => break done,
                Err(error) => error,
            };
            if self.give_page_up(token, tree, &error)? {
                let change = value.map_or(AsideChange::Delete, AsideChange::Put);
                self.put_aside(token, tree, marks.lsn, (key, change), &error, scratch)?;
                return Ok((0, LeafFill::Enough));
            }
        };
        self.end_change(token, tree, marks.lsn, None, scratch)?;
        Ok(done)
    }

    fn try_apply(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        marks: Marks,
        at: (&[u8], &Place),
        value: Option<&[u8]>,
        scratch: &mut Scratch,
    ) -> Result<(i64, LeafFill)> {
        let Some(value) = value else {
            let removed = self.change(scratch, |scratch| {
                tree.try_remove_at(&self.pool, token, marks, at, scratch)
            })?;
            if removed.existed {
                self.freed_room.note();
            }
            return Ok((-i64::from(removed.existed), removed.leaf_fill));
        };
        let inserted = self.change(scratch, |scratch| {
            tree.try_insert_at(&self.pool, token, marks, at, value, scratch)
        })?;
        Ok((i64::from(!inserted.replaced), LeafFill::Enough))
    }

    /// Ends a change that replaced or removed a value of `tree`: frees what the old value had,
    /// except the chunks that `new` still names.
    pub(crate) fn end_change(
        &self,
        token: &ApplyToken<'_>,
        tree: Tree,
        lsn: Lsn,
        new: Option<&BlobRef>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        self.drive(|| scratch.try_finish(&self.pool, token))?;
        let leaks = scratch.take_leaks();
        let unnamed = self.enqueue_garbage(token, lsn, new, scratch)?;
        debug_assert!(scratch.is_finished(), "a part of a change is left");
        self.note_leaks(token, tree.id, leaks + unnamed, scratch)
    }
}
