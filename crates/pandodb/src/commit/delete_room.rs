//! Room for deletes on a full disk: a delete waits for the checkpoint that makes it (decision 058).
//!
//! The pages that deletes change go to free blocks, and what they lie in now is free with the next
//! checkpoint only. So many deletes in a row use the reserve up, and a checkpoint fills it again. A
//! delete is refused when that does not help: the checkpoint itself waits for room, or some have
//! ended in a row and no delete has found room meanwhile.

use crate::engine::Engine;
use crate::wait::reason::{Unfinished, WaitReason};

/// Checkpoints in a row after which no delete has found room: it is not to be had.
const FRUITLESS_MAX: u32 = 2;

/// For what a delete waits, over all of its attempts.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct DeleteWait {
    /// The checkpoint that was asked for, if one was.
    checkpoint: Option<u64>,
    /// Deletes that had found room on the full disk when it was.
    served: u64,
    /// Checkpoints since one of them has.
    fruitless: u32,
}

impl Engine {
    /// The checkpoint that deletes which have found no room still wait for: until it has ended,
    /// another try would only ask the disk for what it has not.
    pub(crate) fn awaited_room(&self, wait: &DeleteWait) -> Option<WaitReason> {
        let checkpoint = wait.checkpoint?;
        let waits = !self.checkpoint.has_finished(checkpoint)
            && self.store.space.is_full()
            && !self.store.life.is_checkpoint_stalled();
        waits.then_some(WaitReason::Checkpoint(checkpoint))
    }

    /// Why a commit that found no blocks on a full disk does not go on. `wait` is that of a batch
    /// of deletes; any other is refused.
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
            "another one is waited for"
        );
        wait.checkpoint = Some(checkpoint);
        wait.served = served;
        WaitReason::Checkpoint(checkpoint).into()
    }
}
