//! Room in the log for the record of a commit (decisions 037, 077).

use pando_wal::LogReservation;

use crate::engine::Engine;
use crate::error::Error;
use crate::wait::reason::{Step, WaitReason};

impl Engine {
    /// Reserves room for a record with `bytes` of payload in the log. It is refused, even for
    /// deletes, if the checkpoint that would make room waits for room on the disk, or if the record
    /// is too long for the files that are there and the disk has no room for a longer one.
    pub(crate) fn reserve_log(&self, bytes: usize) -> Step<LogReservation<'_>> {
        match self.log.try_reserve(bytes) {
            Ok(Some(reservation)) => Ok(reservation),
            Ok(None)
                if self.store.life.is_checkpoint_stalled()
                    && !self.log.file_has_room(bytes)
                    && !self.log.ask_for_room(bytes) =>
            {
                let what = "the log is full, and the checkpoint that would empty it finds no room: \
                            the disk or a quota is full, or files may not be so long (ulimit -f); \
                            make room";
                Err(Error::Full { what: what.into() }.into())
            }
            Ok(None) if !self.log.fits(bytes) => {
                // The thread that makes files tries again, so that this ends when there is room.
                self.log.ask_for_room(bytes);
                let what = format!(
                    "a batch of {bytes} bytes needs a longer log: the disk or a quota is full, \
                     or files may not be so long (ulimit -f); make room"
                );
                Err(Error::Full { what }.into())
            }
            Ok(None) => Err(WaitReason::LogSpace(bytes).into()),
            Err(error) => Err(self.log_failed(error).into()),
        }
    }

    /// Appends a record, as a commit does that is cut off before it changes a page.
    #[cfg(test)]
    pub(crate) fn append_only(&self, payload: &[u8]) {
        let room = self.reserve_log(payload.len());
        let Ok(room) = room else {
            panic!("the log has room");
        };
        let acknowledge = self.acknowledge(None);
        let kind = pando_format::log::RecordKind::Batch;
        self.log.append(room, kind, acknowledge, payload);
    }
}
