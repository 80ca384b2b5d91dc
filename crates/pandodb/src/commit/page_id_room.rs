//! Page ids for the new chunks of a commit, and room for a mapping of that many pages
//! (decision 065).

use crate::blobs::value::LargeValue;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::space::growth::MadeRoom;
use crate::space::reservations::IdReservation;
use crate::writes::set::WriteSet;

impl Engine {
    /// Reserves ids for the new chunks of a batch, whose blocks were taken when the chunks were
    /// written.
    ///
    /// # Errors
    /// [`Error::Full`] when fewer ids are left than all reservations together need.
    pub(crate) fn reserve_ids(&self, set: &WriteSet, urgent: bool) -> Result<IdReservation<'_>> {
        self.reserve_page_ids(set.large().map(LargeValue::new_chunks).sum(), urgent)
    }

    /// Reserves `count` page ids, in addition to those of pages whose blocks are reserved. An
    /// `urgent` caller, a delete, may take ids for which a merge of the mapping has no room.
    ///
    /// # Errors
    /// As [`Engine::reserve_ids`], and when a merge would have no room on a full disk.
    pub(crate) fn reserve_page_ids(&self, count: u64, urgent: bool) -> Result<IdReservation<'_>> {
        let reserve = &self.store.mapping_reserve;
        let ids = self.store.pool.page_ids();
        let try_reserve = |without_room: u64| {
            let available = || ids.available().saturating_sub(without_room);
            self.store.space.try_reserve_ids(count, available)
        };
        let without_room = reserve.ids_without_room() * u64::from(!urgent);
        if let Some(reservation) = try_reserve(without_room) {
            return Ok(reservation);
        }
        if urgent || without_room == 0 {
            return Err(self.page_ids_error());
        }
        loop {
            // Background work makes room ahead of time; here it was too slow.
            self.store.keep_mapping_room();
            if let Some(reservation) = try_reserve(reserve.ids_without_room()) {
                return Ok(reservation);
            }
            if try_reserve(0).is_none() {
                return Err(self.page_ids_error());
            }
            // A kept checkpoint has a mapping of its own.
            if self.make_room(true) != MadeRoom::Now {
                return Err(Error::Full {
                    what: "there is no room for a mapping of more pages; delete keys or make room"
                        .into(),
                });
            }
        }
    }

    /// The error for a store that has run out of page ids.
    pub(crate) fn page_ids_error(&self) -> Error {
        let what = format!(
            "{} pages are as many as the page table of max_memory {} holds; raise max_memory to {}",
            self.store.pool.page_ids().high_water(),
            self.options.max_memory,
            self.options.max_memory * 2
        );
        Error::Full { what }
    }
}
