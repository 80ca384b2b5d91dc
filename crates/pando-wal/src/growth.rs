//! How the log gets longer and shorter: one thread makes files before records need them, and cuts
//! or removes those that a checkpoint has freed and nobody needs (decision 077).
//!
//! # Nobody waits for ever
//!
//! Whoever finds no room in the files registers in [`Log::space_waiters`], tries again, and calls
//! [`Log::ask_for_room`]. If that returns true, the thread has been asked: it takes the request
//! (a swap), tries to make a file, stores whether it could, and then wakes all of that list. A
//! request that comes after the swap is found by the next turn of the loop, which looks for
//! requests after it has registered and before it sleeps. If `ask_for_room` returns false, a
//! checkpoint is what makes room, since the budget is reached or the device is full; and if
//! [`Log::fits`] is false as well, only room on the device helps, and the caller is refused. A
//! request that could not be met stays, and is tried again every [`RETRY`]: so the state ends by
//! itself.
//!
//! # What is taken away is not used
//!
//! A file leaves the free files under the tail's lock, and only if the others hold all that is
//! promised (`tail`). From then on no record goes there. No flush does either: a file is free only
//! when its last record is durable. Nobody makes holes in a file: a flush that came to one would
//! wait for room on a full disk, and everybody with it.

use pando_device::Device;
use pando_format::log::record_bytes;
use pando_sync::atomic::Ordering;
use pando_sync::{park, thread, thread_waker, time};

use crate::error::{Error, Result};
use crate::log::Log;

/// Time after which a file that could not be made is tried again.
pub const RETRY: time::Duration = time::Duration::from_millis(200);

/// What the owner of a log does for the thread that makes its files.
pub trait Surroundings {
    /// Calls `allocate`, which takes room on the device or gives it back, while nobody else takes
    /// room that is promised, or not durably free yet.
    fn alone(&self, allocate: &mut dyn FnMut());

    /// A file could not be made, for this reason; or one could be made again.
    fn told(&self, failed: Option<&Error>);
}

impl<D: Device> Log<D> {
    /// Returns the number of bytes that were written since the last truncation, and the number
    /// above which a checkpoint must have freed some. The two are not from one moment.
    #[inline]
    pub fn fill(&self) -> (u64, u64) {
        // Relaxed: whether a checkpoint is due need not be exact. Read first, because it may grow.
        let base = self.growth.base.load(Ordering::Relaxed);
        let limit = self.growth.limit.load(Ordering::Relaxed);
        (self.reserved_end().0.saturating_sub(base), limit)
    }

    /// Asks the thread in [`Log::run_files`] for room for a payload of `payload` bytes. Returns
    /// false if that makes none, so that the caller needs a checkpoint. The caller is registered in
    /// [`Log::space_waiters`], and has found no room. Never blocks.
    pub fn ask_for_room(&self, payload: usize) -> bool {
        let record = record_bytes(payload);
        if self.shared.tail.lock().growth(record).is_none() {
            return false;
        }
        self.growth.want(record);
        !self.growth.is_stuck()
    }

    /// Returns whether a record with a payload of `payload` bytes will find room without more room
    /// on the device: a file can be made for it, or those that are there hold it after a
    /// checkpoint.
    pub fn fits(&self, payload: usize) -> bool {
        let record = record_bytes(payload);
        !self.growth.is_stuck() || self.shared.tail.lock().fits_after_checkpoint(record)
    }

    /// Runs the thread that makes and removes files. Returns after [`Log::stop`], or when the log
    /// is poisoned.
    pub fn run_files(&self, around: &impl Surroundings) {
        let mut failed: Option<time::Instant> = None;
        // Acquire: pairs with the Release in stop.
        let ends = || self.stopping.load(Ordering::Acquire) || self.group.failed();
        while !ends() {
            if self.growth.spare.swap(false, Ordering::Relaxed) {
                self.remove_spare(around);
            }
            let rests = failed.map(|at| RETRY.saturating_sub(at.elapsed()));
            let is_resting = rests.is_some_and(|rest| !rest.is_zero());
            let wanted = match is_resting {
                true => 0,
                false => self.growth.wanted.swap(0, Ordering::Relaxed),
            };
            if wanted > 0 {
                let is_made = self.make_wanted(wanted, around);
                failed = (!is_made).then(time::now);
                self.shared.space.notify_all();
                continue;
            }
            self.growth.work.register(&thread_waker());
            let wants = self.growth.wanted.load(Ordering::Relaxed) > 0;
            if ends() || self.growth.spare.load(Ordering::Relaxed) || wants && !is_resting {
                continue;
            }
            match rests {
                Some(rest) if wants => thread::park_timeout(rest),
                _ => park(),
            }
        }
    }

    /// Makes a file if a record of `wanted` bytes needs one, or if few are left. Returns false if
    /// it could not be made; then it is still wanted.
    fn make_wanted(&self, wanted: u64, around: &impl Surroundings) -> bool {
        let bytes = {
            let tail = self.shared.tail.lock();
            let is_needed = tail.is_low() || !tail.file_has_room(wanted);
            is_needed.then(|| tail.growth(wanted)).flatten()
        };
        let made = bytes.map(|bytes| self.make_file(bytes, around));
        let failed = made.and_then(Result::err);
        let tail = self.shared.tail.lock();
        let is_low = failed.is_none() && tail.is_low();
        let is_new = self.growth.note_stuck(failed.is_some(), &tail);
        drop(tail);
        if is_new {
            around.told(failed.as_ref());
        }
        let again = match failed {
            Some(_) => wanted,
            None => u64::from(is_low),
        };
        // Relaxed: this thread looks at it before it sleeps.
        self.growth.wanted.fetch_max(again, Ordering::Relaxed);
        failed.is_none()
    }

    fn make_file(&self, bytes: u64, around: &impl Surroundings) -> Result<()> {
        let slot = self
            .segments
            .make(bytes, &|allocate| around.alone(allocate))?;
        self.shared.tail.lock().add_slot(slot, bytes);
        Ok(())
    }

    /// Cuts and removes what records have not needed lately. Returns the number of bytes.
    fn remove_spare(&self, around: &impl Surroundings) -> u64 {
        let _change = self.segments.begin_change();
        let mut given = 0;
        loop {
            let taken = self.shared.tail.lock().take_spare();
            let Some(spare) = taken else {
                break;
            };
            let mut left = None;
            around.alone(&mut || left = self.segments.shorten(spare.slot, spare.keeps));
            given += spare.bytes - left.unwrap_or(0);
            if let Some(bytes) = left {
                self.shared.tail.lock().add_slot(spare.slot, bytes);
                self.shared.space.notify_all();
                if bytes > spare.keeps {
                    // It cannot be cut.
                    break;
                }
            }
        }
        given
    }

    /// Cuts and removes free files, whatever records have needed lately. Returns the number of
    /// bytes.
    pub fn remove_free(&self, around: &impl Surroundings) -> u64 {
        self.shared.tail.lock().forget_need();
        self.remove_spare(around)
    }

    /// Makes files up to the budget, and blocks for as long as that takes. Returns their number.
    /// For callers that do not run [`Log::run_files`].
    ///
    /// # Errors
    /// Errors of the device. They do not poison the log.
    pub fn make_all_files(&self) -> Result<usize> {
        let mut made = 0;
        loop {
            let bytes = self.shared.tail.lock().growth(0);
            let Some(bytes) = bytes else {
                return Ok(made);
            };
            let slot = self.segments.make(bytes, &|allocate| allocate())?;
            self.shared.tail.lock().add_slot(slot, bytes);
            self.shared.space.notify_all();
            made += 1;
        }
    }

    /// Ends the log, and leaves as little of its files as the next opening needs, if no record is
    /// needed: the last checkpoint covers all. Otherwise the files stay as they are. From then on
    /// reservations are refused with [`Error::Closed`].
    pub fn close_files(&self) {
        if self.shared.tail.lock().close() {
            self.segments.keep_least();
        }
    }
}
