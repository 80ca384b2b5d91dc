//! Operations on pages that do not read them: freeing, giving up, asking for the place.

use pando_format::cast::low_u32;
use pando_format::page::WORD_KIND;
use pando_format::{Extent, PageId, StoredKind, StoredPage, TreeId};
use pando_sync::atomic::Ordering;

use crate::apply_token::ApplyToken;
use crate::chunk::{change_place, free_place};
use crate::page_table::Place;
use crate::pool::Pool;
use crate::restart::{Attempt, Restart};

/// Message for a page that is out of reach.
pub(crate) const OUT_OF_REACH: &str =
    "is out of reach: it could not be read when a write to it was due";

/// Who frees a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FreedBy {
    /// A write that is in the log: replay frees the page, too.
    #[default]
    Record,
    /// Work of which the log says nothing: until the next checkpoint, replay keeps the page.
    BackgroundWork,
}

impl Pool {
    /// Frees a page, of a tree that is being freed, without reading it.
    ///
    /// # Errors
    /// [`Restart::Conflict`] when the page is latched or being loaded: the caller tries again
    /// later. [`Restart::Damaged`] when there is no such page, or it is one that is kept
    /// ([`Pool::keeping_below`]).
    pub fn free_unread(&self, token: &ApplyToken<'_>, page: PageId) -> Attempt<()> {
        self.free_by(token, page, FreedBy::BackgroundWork)
    }

    /// As [`Pool::free_unread`], by whom the caller says.
    ///
    /// # Errors
    /// As [`Pool::free_unread`].
    pub fn free_by(&self, token: &ApplyToken<'_>, page: PageId, by: FreedBy) -> Attempt<()> {
        if page < self.first_freed {
            return Err(Restart::Damaged(page, "is to be freed, and never is"));
        }
        let counts = by == FreedBy::BackgroundWork;
        match self.table().get(page) {
            Place::Resident(_) => {
                let mut exclusive = self.exclusive(page)?;
                exclusive.modify(token)?;
                exclusive.unwire();
                match counts {
                    true => exclusive.free(token),
                    false => exclusive.free_uncounted(token),
                }
                Ok(())
            }
            Place::Loading(_) => Err(Restart::Conflict),
            Place::Free => Err(Restart::Damaged(page, "freed twice")),
            Place::OnDisk(stored) | Place::OutOfReach(stored) => {
                if !free_place(self.table(), self.epochs(), (token.epoch(), page), stored) {
                    return Err(Restart::Conflict);
                }
                // The epoch of its image is not known without reading the page, so the extent
                // always waits for the checkpoint.
                if counts {
                    self.epochs().page_freed(token.epoch(), false);
                }
                self.epochs().retire(stored.extent, None, token.epoch());
                self.page_ids().give_back(page);
                Ok(())
            }
            Place::Chunk(stored) => self.free_chunk(token, page, stored),
        }
    }

    /// Returns whether a page or a chunk has this id.
    pub fn is_used(&self, page: PageId) -> bool {
        self.table().get(page) != Place::Free
    }

    /// Returns the tree that `page` belongs to, by its own header.
    ///
    /// # Errors
    /// As [`Pool::optimistic`].
    pub fn tree_of(&self, page: PageId) -> Attempt<TreeId> {
        let seen = self.optimistic(page, 0)?;
        let word = seen.words().slice()[WORD_KIND].load(Ordering::Relaxed);
        seen.validate()?;
        Ok(TreeId(low_u32(word)))
    }

    /// Makes sure that nobody reads `page` from now on (decision 061). The page could not be read
    /// when a write to it was due, so the write would be missing if the page became readable later.
    /// It keeps its id and extent, so that other tools can still examine it. Returns false if it is
    /// in memory or was freed meanwhile: the caller may try the write again.
    ///
    /// # Errors
    /// [`Restart::Conflict`] while somebody reads it.
    pub fn put_out_of_reach(&self, token: &ApplyToken<'_>, page: PageId) -> Attempt<bool> {
        let stored = match self.table().get(page) {
            Place::OnDisk(stored) => stored,
            Place::OutOfReach(_) => return Ok(true),
            Place::Loading(_) => return Err(Restart::Conflict),
            Place::Resident(_) | Place::Free | Place::Chunk(_) => return Ok(false),
        };
        let lost = StoredPage {
            kind: StoredKind::OutOfReach,
            ..stored
        };
        let (table, epochs) = (self.table(), self.epochs());
        match change_place(table, epochs, (token.epoch(), page), (stored, lost)) {
            true => Ok(true),
            false => Err(Restart::Conflict),
        }
    }

    /// Returns the extent of the newest complete image of `page`, for `stat`, `verify` and
    /// compaction.
    pub fn stored_extent(&self, page: PageId) -> Option<Extent> {
        match self.table().get(page) {
            Place::OnDisk(stored) | Place::Chunk(stored) | Place::OutOfReach(stored) => {
                Some(stored.extent)
            }
            Place::Resident(frame) => self.header(frame).stored().map(|stored| stored.extent),
            Place::Loading(frame) => self.header(frame).stored().map(|stored| stored.extent),
            Place::Free => None,
        }
    }
}
