//! Registers wakers for wait reasons: the waker is woken when trying again makes sense.

use std::task::Waker;

use pando_pool::{Resource, Restart};
use pando_sync::held::{Kind, assert_none};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::locks::LockWait;
use crate::space::id_turns::IdNeed;
use crate::wait::reason::WaitReason;

impl Engine {
    /// Checks that the engine still has threads that make room.
    ///
    /// # Errors
    /// If the engine is poisoned, or its threads have ended.
    fn check_served(&self) -> Result<()> {
        self.store.check_poison()?;
        match self.store.life.is_ended() {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// Registers for a free frame or image buffer, and wakes the cleaner.
    fn register_for_frames(&self, resource: Resource, waker: &Waker) -> Result<bool> {
        let is_image = resource == Resource::Images;
        match is_image {
            true => self.store.pool.image_waiters().register(waker),
            false => self.store.pool.frame_waiters().register(waker),
        }
        self.store.check_process()?;
        if self.store.life.is_poisoned() {
            // Nobody needs an image then.
            if !is_image {
                self.store.evict_clean()?;
            }
            return Ok(true);
        }
        self.store.pool.work().notify_all();
        Ok(match is_image {
            true => self.store.pool.epochs().images_total() == 0,
            false => self.store.pool.free_count() > 0,
        })
    }

    /// Registers for the end of the checkpoint `asked`, or for its waiting for room.
    fn register_for_checkpoint(&self, asked: u64, waker: &Waker) -> Result<bool> {
        self.store.room_waiters.register(waker);
        self.checkpoint.register(asked, waker);
        self.check_served()?;
        Ok(self.checkpoint.has_finished(asked) || self.store.life.is_checkpoint_stalled())
    }

    /// Registers for room for `bytes` bytes in the log, or for the checkpoint that would make it
    /// waiting for room. A longer log makes room, or a checkpoint if the log cannot get longer
    /// (decision 077).
    fn register_for_log(&self, bytes: usize, waker: &Waker) -> Result<bool> {
        self.log.space_waiters().register(waker);
        self.store.room_waiters.register(waker);
        self.check_served()?;
        // The next attempt reports the error.
        let has_room = !matches!(self.log.try_reserve(bytes), Ok(None));
        // After the try: room that is made from here on wakes. If only the buffer is full, it needs
        // a flush and no checkpoint.
        let is_file_full = !has_room && !self.log.file_has_room(bytes);
        let grows = is_file_full && self.log.ask_for_room(bytes);
        if is_file_full && !grows {
            self.checkpoint.request();
        }
        let is_stalled = !grows && self.store.life.is_checkpoint_stalled();
        Ok(has_room || is_file_full && (is_stalled || !self.log.fits(bytes)))
    }

    /// Registers for the end of a reservation, and for pages that begin to wait for room.
    fn register_for_ids(&self, need: &IdNeed, waker: &Waker) -> Result<bool> {
        self.store.space.register_for_ids(waker);
        self.store.space.waiters().register(waker);
        self.check_served()?;
        Ok(!self.store.awaits_ids(need))
    }

    /// Registers for room for versions, and wakes the thread that makes it.
    fn register_for_versions(&self, frames: u64, waker: &Waker) -> Result<bool> {
        let old = &self.old_versions;
        old.waiters.register(waker);
        self.check_served()?;
        // If the mode is off, nothing has to be saved.
        if !old.snapshots.is_on() || old.versions.could_reserve(frames) {
            return Ok(true);
        }
        old.want(frames);
        self.store.registry.work.notify_all();
        Ok(false)
    }

    /// Registers for the end of a wait for a lock; has the maintenance thread look at its deadline,
    /// and at who holds the lock for too long.
    pub(crate) fn register_for_lock(&self, wait: &LockWait, waker: &Waker) -> Result<bool> {
        let is_over = wait.register(waker);
        if self.store.life.is_ended() {
            return Err(Error::Closed);
        }
        if self.locks.is_unwatched() {
            self.store.registry.work.notify_all();
        }
        Ok(is_over)
    }

    /// Registers `waker` for the end of `reason`. Returns true if there is nothing to wait for, or
    /// no longer: then the caller tries again at once. Never blocks.
    ///
    /// # Errors
    /// If the engine is poisoned or closed, so that the wait would never end; in a forked child
    /// always.
    pub(crate) fn register(&self, reason: &WaitReason, waker: &Waker) -> Result<bool> {
        self.store.check_process()?;
        if let Some(ticker) = reason.ticker() {
            self.store.statistics.tick(ticker, 1);
        }
        // For waits that poison or the end of the threads has to end, the engine is checked after
        // the registration: a poisoning before the registration has woken nobody.
        Ok(match reason {
            WaitReason::Restart(Restart::Fault(page)) => {
                self.store.pool.wait_for_load(*page, waker)
            }
            WaitReason::Restart(Restart::Wait(
                resource @ (Resource::Frames | Resource::Images),
            )) => self.register_for_frames(*resource, waker)?,
            WaitReason::Restart(_) => true,
            WaitReason::Gate => {
                self.store.pool.gate().waiters().register(waker);
                !self.store.pool.gate().is_closed()
            }
            WaitReason::Stripe(stripe, how) => {
                self.stripes.waiters_of(*stripe).register(waker);
                self.stripes.looks_free(*stripe, *how)
            }
            WaitReason::LogSpace(bytes) => self.register_for_log(*bytes, waker)?,
            WaitReason::Blocks(blocks) => {
                self.store.space.waiters().register(waker);
                self.check_served()?;
                self.store.space.want(*blocks);
                self.store
                    .space
                    .could_reserve(*blocks, self.store.committed_blocks())
            }
            WaitReason::PageIds(need) => self.register_for_ids(need, waker)?,
            WaitReason::Run(blocks) => {
                self.store.space.waiters().register(waker);
                self.check_served()?;
                self.store.space.want_run(*blocks);
                false
            }
            WaitReason::Checkpoint(asked) => self.register_for_checkpoint(*asked, waker)?,
            WaitReason::Chunks => return Err(Error::InChunks),
            WaitReason::Settled => return Err(Error::SnapshotEnded),
            WaitReason::Answer(answer) => answer.register(waker),
            WaitReason::Dirty => {
                self.store.pool.image_waiters().register(waker);
                self.check_served()?;
                self.store.pool.work().notify_all();
                // While pages wait for room no frame becomes clean: the next attempt is refused.
                self.store.life.is_short() || !self.store.is_dirty_high()
            }
            WaitReason::Pins(frames) => {
                // Operations that have shares and wait for others would wait for each other.
                assert_none(&[Kind::PinShare]);
                self.pin_budget.waiters().register(waker);
                self.pin_budget.has_room(*frames)
            }
            WaitReason::Applied(lsn) => {
                let applied = self.log.request_applied(*lsn, waker);
                self.store.check_poison()?;
                applied.map_err(|error| self.log_failed(error))?
            }
            WaitReason::Versions(frames) => self.register_for_versions(*frames, waker)?,
            WaitReason::Durable(lsn) => self.when_durable(*lsn, waker)?,
            WaitReason::Lock(wait) => self.register_for_lock(wait, waker)?,
            WaitReason::Job(job) => job.register(waker),
        })
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle, pando_audit))))]
mod tests {
    use std::task::Wake;

    use pando_device::FaultyDevice;
    use pando_device::faulty::{Fault, FaultPlan, Operation};
    use pando_format::Lsn;
    use pando_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use pando_sync::{Arc, thread};

    use super::*;
    use crate::{Db, Durability, WriteOptions};

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Release);
        }
    }

    /// The store is closed during the wait, and the threads that would end the wait have ended.
    #[test]
    fn nobody_waits_for_a_store_that_is_closed() {
        let kinds: [fn() -> WaitReason; 3] = [
            || WaitReason::Run(1 << 20),
            || WaitReason::Blocks(1 << 40),
            || WaitReason::Checkpoint(1 << 40),
        ];
        for (turn, kind) in kinds.into_iter().cycle().take(60).enumerate() {
            let options = Db::builder().max_memory(8 << 20).log_bytes(1 << 20);
            let device = pando_device::MemoryDevice::new(32 << 20);
            let db = Db::open_device(options, device.into()).unwrap();
            let engine = db.engine().clone();
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let waker = Waker::from(woken.clone());
            let waits = thread::scope(|scope| {
                let closing = scope.spawn(|| db.close().unwrap());
                if turn % 4 < 2 {
                    // The caller saw the store open before, and was delayed.
                    closing.join().unwrap();
                }
                engine.register(&kind(), &waker)
            });
            let is_told = !matches!(waits, Ok(false)) || woken.0.load(Ordering::Acquire);
            assert!(is_told, "turn {turn}: the caller waits forever");
        }
    }

    /// A caller checked before pages began to wait for room, and registers afterwards. Only room
    /// would end its wait, so it must check again, and is then refused.
    #[test]
    fn nobody_waits_for_room_that_was_lost_before_it_registered() {
        // In one case too many frames are dirty, and in the other one the log is full.
        for (options, reason) in [
            (
                Db::builder().frames(128).max_memory(4 << 20),
                WaitReason::Dirty,
            ),
            (
                Db::builder().max_memory(256 << 20).log_bytes(1 << 20),
                WaitReason::LogSpace(64 << 10),
            ),
        ] {
            let device = FaultyDevice::new(1);
            let db = Db::open_device(options, device.clone().into()).unwrap();
            let (table, none) = (
                db.table("t").unwrap(),
                WriteOptions::durability(Durability::None),
            );
            let key = |number: u32| number.wrapping_mul(0x9e37_79b9).to_be_bytes();
            for number in 0..40_000 {
                table.put_with(&key(number), &[7; 200], none).unwrap();
            }
            db.checkpoint().unwrap();
            device.fail(FaultPlan::sticky(Operation::Write, "data", 1, Fault::Full));
            let shared = db.clone();
            // The checkpoint ends when there is room.
            let checkpoint = thread::spawn(move || shared.checkpoint());
            // Deletes are accepted until neither the frames nor the log have room for more.
            let refused =
                (0..40_000).find_map(|number| table.delete_with(&key(number), none).err());
            assert!(matches!(refused, Some(Error::Full { .. })), "{refused:?}");
            let engine = db.engine();
            assert!(engine.store.life.is_short());
            let waker = Waker::from(Arc::new(Woken(AtomicBool::new(false))));
            assert!(engine.register(&reason, &waker).unwrap(), "{reason:?}");
            device.clear_faults();
            checkpoint.join().unwrap().unwrap();
        }
    }

    /// The maintenance thread has nothing to do then, and does not wake itself again and again.
    #[test]
    fn a_poisoned_store_sleeps() {
        let device = FaultyDevice::new(1);
        let db = Db::open_device(Db::builder().max_memory(8 << 20), device.into()).unwrap();
        let engine = db.engine();
        engine.poison("a test");
        // It may be on its way: that it sleeps at last is what matters.
        let is_asleep = (0..200).any(|_| {
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let work = &engine.store.registry.work;
            work.register(&Waker::from(woken.clone()));
            thread::park_timeout(pando_sync::time::Duration::from_millis(20));
            !woken.0.load(Ordering::Acquire)
        });
        assert!(is_asleep, "it is woken all the time");
    }

    /// A caller that would wait forever gets an error or is woken, even if the engine is poisoned
    /// at the moment when the wait begins.
    #[test]
    fn nobody_waits_for_a_poisoned_engine() {
        let kinds: [fn() -> WaitReason; 4] = [
            || WaitReason::Run(1 << 20),
            || WaitReason::Applied(Lsn(1 << 40)),
            || WaitReason::Blocks(1 << 40),
            || WaitReason::Checkpoint(1 << 40),
        ];
        for (turn, kind) in kinds.into_iter().cycle().take(900).enumerate() {
            let options = Db::builder().max_memory(8 << 20);
            let device = FaultyDevice::new(turn as u64);
            let engine = crate::recovery::open::open(device.into(), options).unwrap();
            let woken = Arc::new(Woken(AtomicBool::new(false)));
            let (waker, ready) = (Waker::from(woken.clone()), AtomicUsize::new(0));
            let meet = || {
                ready.fetch_add(1, Ordering::AcqRel);
                while ready.load(Ordering::Acquire) < 2 {
                    std::hint::spin_loop();
                }
            };
            let waits = thread::scope(|scope| {
                scope.spawn(|| {
                    meet();
                    (0..turn % 64).for_each(|_| std::hint::spin_loop());
                    engine.poison("a test");
                });
                meet();
                engine.register(&kind(), &waker)
            });
            let is_told = waits.is_err() || woken.0.load(Ordering::Acquire);
            assert!(is_told, "turn {turn}: the caller waits forever");
        }
    }
}
