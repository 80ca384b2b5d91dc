//! Room for deletes on a full disk: a delete waits for the checkpoint that makes room
//! (decision 058).
//!
//! The pages that deletes change are written to free blocks, and the blocks where they lie now only
//! become free with the next checkpoint. So many deletes in a row use up the reserve, and a
//! checkpoint refills it. A delete is refused if that does not help: if the checkpoint itself waits
//! for room, or if several checkpoints in a row finished and no delete found room in between.

use crate::engine::Engine;
use crate::wait::reason::{Unfinished, WaitReason};

/// After this many checkpoints in a row without any delete finding room, a delete is refused.
const FRUITLESS_MAX: u32 = 2;

/// What one delete waits for, over all of its attempts.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DeleteWait {
    /// Number of the checkpoint that it asked for, if it did.
    checkpoint: Option<u64>,
    /// Number of deletes that had found room on the full disk when it asked.
    served: u64,
    /// Number of checkpoints in a row after which no delete had found room.
    fruitless: u32,
}

impl Engine {
    /// Returns the checkpoint that deletes without room still wait for: until it has finished,
    /// another attempt would only search the disk for blocks that it does not have.
    pub(crate) fn awaited_room(&self, wait: &DeleteWait) -> Option<WaitReason> {
        let checkpoint = wait.checkpoint?;
        let waits = !self.checkpoint.has_finished(checkpoint)
            && self.store.space.is_full()
            && !self.store.life.is_checkpoint_stalled();
        waits.then_some(WaitReason::Checkpoint(checkpoint))
    }

    /// Returns why a commit that found no blocks on a full disk cannot continue. `wait` is passed
    /// for a batch of deletes; any other batch is refused.
    pub(crate) fn without_room(&self, wait: Option<&mut DeleteWait>) -> Unfinished {
        let (Some(wait), false) = (wait, self.store.life.is_checkpoint_stalled()) else {
            self.checkpoint.request();
            return self.store.space.full_error().into();
        };
        let served = self.store.space.deletes_served();
        assert!(served >= wait.served, "fewer have found room than before");
        if let Some(checkpoint) = wait.checkpoint {
            if !self.checkpoint.has_finished(checkpoint) {
                return WaitReason::Checkpoint(checkpoint).into();
            }
            wait.fruitless = match wait.served == served {
                true => wait.fruitless + 1,
                false => 0,
            };
        }
        if wait.fruitless >= FRUITLESS_MAX {
            *wait = DeleteWait::default();
            return self.store.space.full_error().into();
        }
        let checkpoint = self.checkpoint.ask();
        assert!(
            wait.checkpoint < Some(checkpoint),
            "it waits for a newer one already"
        );
        wait.checkpoint = Some(checkpoint);
        wait.served = served;
        WaitReason::Checkpoint(checkpoint).into()
    }
}
