//! Extents for chunks: so many free blocks in a row, waited for while that helps.

use pando_format::Extent;

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::pages::store::pause;
use crate::wait::reason::{Step, WaitReason};

/// Checkpoints that are waited for when the disk is full: the first makes room of what is retired,
/// the second of what was freed meanwhile.
const CHECKPOINTS_MAX: u32 = 2;

/// How long garbage is waited for on a full disk: a few tenths of a second.
const GARBAGE_TURNS: u32 = 4096;

impl Engine {
    /// So many free blocks in a row. Blocks until there are.
    pub(crate) fn run_of_blocks(&self, blocks: u32) -> Result<Extent> {
        let mut checkpoints = 0;
        loop {
            match self.block(|_| self.try_run_of_blocks(blocks)) {
                Err(full @ Error::Full { .. }) if checkpoints < CHECKPOINTS_MAX => {
                    checkpoints += 1;
                    self.wait_for_garbage();
                    // Other values are read and written by the same thread.
                    if !self.checkpoint_if_room()? {
                        return Err(full);
                    }
                }
                other => return other,
            }
        }
    }

    /// Lets the maintenance thread free what nobody reads, for a while: then it is retired, and the
    /// next checkpoint gives it back.
    fn wait_for_garbage(&self) {
        let mut turns = 0;
        while self.store.registry.is_wanted()
            && turns < GARBAGE_TURNS
            && !self.store.life.is_ended()
        {
            pause(&mut turns);
        }
    }

    pub(crate) fn try_run_of_blocks(&self, blocks: u32) -> Step<Extent> {
        self.check_writable()?;
        match self
            .store
            .space
            .try_take_run(blocks, || self.store.committed_blocks())
        {
            Some(Some(extent)) => Ok(extent),
            _ if self.store.space.is_full() => Err(self.store.space.full_error().into()),
            Some(None) => Err(WaitReason::Run(blocks).into()),
            None => Err(WaitReason::Blocks(blocks.into()).into()),
        }
    }
}
