//! The log itself, which connects tail, files, group commit and the applied order.
//!
//! An append copies its record under the tail's lock and returns; flushes are in `flush`.
//! [`Log::append`] never waits for the device, for space, or for another committer.

use std::task::Waker;

use pando_device::Device;
use pando_format::Lsn;
use pando_format::checksum::crc32c;
use pando_format::log::{RecordKind, record_bytes};
use pando_stats::{Statistics, Ticker};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::{Arc, CachePadded, Mutex, MutexGuard, Rank, WaitList, park, thread_waker};

use crate::applied::Applied;
use crate::error::{Error, Result};
use crate::group::{Failed, Group, Role};
use crate::options::LogOptions;
use crate::reservation::{LogReservation, SharedTail};
use crate::segments::Segments;
use crate::tail::{NoRoom, Tail};
use crate::wanted::Growth;

/// The log of one store.
#[derive(Debug)]
pub struct Log<D: Device> {
    options: LogOptions,
    /// The files of the log; synchronizes itself.
    pub(crate) segments: Segments<D>,
    /// Where records are reserved and appended, under the lock of the tail.
    pub(crate) shared: CachePadded<SharedTail>,
    /// Shares flushes among the callers that wait for one.
    pub(crate) group: Group,
    order: CachePadded<Order>,
    /// LSN up to which the log thread is to flush. Only grows.
    pub(crate) requested: AtomicU64,
    /// The log thread waits here for work.
    pub(crate) flusher: WaitList,
    /// Set by [`Log::stop`] and never cleared.
    pub(crate) stopping: AtomicBool,
    /// What the thread that makes and removes files is asked for.
    pub(crate) growth: Growth,
    /// A write is waiting for space on the device. Written by the leader.
    pub(crate) full: AtomicBool,
    /// Time at which such a write stops waiting, in milliseconds of the steady clock; 0 for
    /// never.
    pub(crate) disk_full_deadline: AtomicU64,
    /// Why the log is poisoned. The first reason stays.
    failure: Mutex<Option<Error>>,
    /// The store's, in which the log counts.
    pub(crate) statistics: Arc<Statistics>,
}

/// When a commit is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acknowledge {
    /// Once its record is durable: the commit waits for that.
    WhenDurable,
    /// At once.
    AtOnce,
}

/// How far the log is, as returned by [`Log::position`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// LSN of the newest record.
    pub reserved: Lsn,
    /// LSN of the newest record that a commit waits for. May be newer than `reserved`, since it is
    /// read after it.
    pub awaited: Lsn,
    /// LSN up to which everything is durable. Read last.
    pub durable: Lsn,
}

impl Position {
    /// Returns an LSN up to which no commit waits for a record.
    pub fn settled(&self) -> Lsn {
        match self.awaited <= self.durable {
            true => self.durable.max(self.reserved),
            false => self.durable,
        }
    }
}

/// What each append and each applied batch writes, on a cache line of its own.
#[derive(Debug)]
#[repr(C)]
struct Order {
    /// LSN of the newest record. Written under the tail's lock.
    reserved: AtomicU64,
    /// LSN of the newest record that a commit waits for. Written under the tail's lock, before
    /// `reserved`.
    awaited: AtomicU64,
    applied: Applied,
}

impl<D: Device> Log<D> {
    /// Opens the log for a new life that begins at `options.start`. Everything before is dead,
    /// because the checkpoint of generation `options.incarnation` is durable. Two files of the
    /// least length are ready on return, made of those of an earlier life if there are any;
    /// [`Log::run_files`] makes more when they are needed.
    ///
    /// # Errors
    /// [`Error::Options`], or errors of the device. The log on the device is still usable then.
    pub fn open(device: D, options: LogOptions, statistics: Arc<Statistics>) -> Result<Self> {
        options.check()?;
        let segments = Segments::open(device, options)?;
        let tail = Tail::new(options, segments.sector()?, &segments.ready());
        Ok(Self {
            growth: Growth::new(&options),
            options,
            segments,
            shared: CachePadded(SharedTail {
                tail: Mutex::new(Rank::LogTail, tail),
                space: WaitList::new(),
            }),
            group: Group::new(options.start),
            order: CachePadded(Order {
                reserved: AtomicU64::new(options.start.0),
                awaited: AtomicU64::new(options.start.0),
                applied: Applied::new(options.start),
            }),
            requested: AtomicU64::new(options.start.0),
            flusher: WaitList::new(),
            stopping: AtomicBool::new(false),
            full: AtomicBool::new(false),
            disk_full_deadline: AtomicU64::new(0),
            failure: Mutex::new(Rank::Leaf, None),
            statistics,
        })
    }

    /// Returns the options that the log was opened with.
    pub fn options(&self) -> &LogOptions {
        &self.options
    }

    /// Returns whether flushes bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.segments.is_direct()
    }

    /// Returns the maximum length of a payload in bytes.
    pub fn max_batch_bytes(&self) -> usize {
        self.options.max_batch_bytes()
    }

    /// Reserves room for a record with a payload of `payload` bytes, in buffer and file. Returns
    /// `None` when there is no room now: the caller registers in [`Log::space_waiters`], tries
    /// again, and then waits. Never blocks.
    ///
    /// # Errors
    /// [`Error::TooLarge`]; [`Error::Full`] while the device has no space; the reason why the log
    /// is poisoned.
    pub fn try_reserve(&self, payload: usize) -> Result<Option<LogReservation<'_>>> {
        let bytes_max = self.max_batch_bytes();
        if payload > bytes_max {
            return Err(Error::TooLarge {
                bytes: payload,
                bytes_max,
            });
        }
        if let Some(error) = self.poisoned() {
            return Err(error);
        }
        // Relaxed: an outdated value admits one more batch, which waits like those before it.
        if self.full.load(Ordering::Relaxed) {
            return Err(Error::Full);
        }
        let record = record_bytes(payload);
        let reserved = self.shared.tail.lock().try_reserve(record);
        match reserved {
            Ok(()) => Ok(Some(LogReservation::new(&self.shared, record))),
            Err(NoRoom::File) => Ok(None),
            Err(NoRoom::Closed) => Err(Error::Closed),
            Err(NoRoom::Buffer) => {
                self.request_flush(self.reserved_end());
                Ok(None)
            }
        }
    }

    /// Returns whether the files have room for a record with a payload of `payload` bytes. If so,
    /// [`Log::try_reserve`] can lack only room in the buffer, which the next flush makes; no
    /// truncation is needed.
    pub fn file_has_room(&self, payload: usize) -> bool {
        self.shared.tail.lock().file_has_room(record_bytes(payload))
    }

    /// Returns the wait list of callers that wait for [`Log::try_reserve`] to succeed.
    pub fn space_waiters(&self) -> &WaitList {
        &self.shared.space
    }

    /// Appends a record against `reservation`, enters it in the order of [`Log::mark_applied`], and
    /// returns its LSN. Takes only a short lock and never waits otherwise. `acknowledge` tells
    /// whether the commit will wait for the record.
    ///
    /// # Panics
    /// When `reservation` belongs to another log or is too small, or `kind` is padding.
    pub fn append(
        &self,
        reservation: LogReservation<'_>,
        kind: RecordKind,
        acknowledge: Acknowledge,
        payload: &[u8],
    ) -> Lsn {
        assert!(reservation.is_of(&self.shared), "a reservation of this log");
        assert!(kind != RecordKind::Padding, "padding is the log's own");
        let bytes = record_bytes(payload.len());
        assert!(
            reservation.record_bytes() >= bytes,
            "the reservation covers it"
        );
        let payload_crc = crc32c(payload);
        let mut appending = Appending::begin(self);
        let tail = appending.tail();
        tail.release(reservation.spend());
        let segment_end = tail.segment_end();
        let lsn = tail.append(kind, 0, payload, payload_crc);
        let is_low = segment_end != tail.segment_end() && self.growth.note_segment(tail);
        self.order.applied.reserve_in_order(lsn);
        if acknowledge == Acknowledge::WhenDurable {
            // Relaxed: a thread that sees the store below, or a change of the batch, sees this one,
            // too.
            self.order.awaited.store(lsn.0, Ordering::Relaxed);
        }
        // Relaxed: only written under the lock, which this thread holds.
        let newest_before = self.order.reserved.load(Ordering::Relaxed);
        debug_assert!(newest_before < lsn.0, "the reserved end only grows");
        debug_assert!(self.order.awaited.load(Ordering::Relaxed) <= lsn.0);
        // Release: pairs with the Acquire in reserved_end. Stored under the lock, so that it only
        // grows.
        self.order.reserved.store(lsn.0, Ordering::Release);
        let half_full = tail.buffered_bytes() * 2 > self.options.buffer_bytes as u64;
        appending.end();
        self.statistics.tick(Ticker::LogBytes, bytes);
        self.shared.space.notify_all();
        if half_full {
            self.request_flush(lsn);
        }
        if is_low {
            self.growth.want(1);
        }
        lsn
    }

    /// Returns the LSN of the newest record, or the start of the log when there is none.
    #[inline]
    pub fn reserved_end(&self) -> Lsn {
        // Acquire: pairs with the Release in append.
        Lsn(self.order.reserved.load(Ordering::Acquire))
    }

    /// Returns how far the log is. The values are not from one moment, but read in this order: the
    /// reserved end, the newest awaited record, the durable LSN.
    pub fn position(&self) -> Position {
        let reserved = self.reserved_end();
        // Relaxed: the Acquire before it orders this load, and a newer value does no harm.
        let awaited = Lsn(self.order.awaited.load(Ordering::Relaxed));
        let durable = self.durable();
        debug_assert!(
            durable <= self.reserved_end(),
            "only what exists is durable"
        );
        Position {
            reserved,
            awaited,
            durable,
        }
    }

    /// Returns the LSN up to which every record survives a crash.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.group.durable()
    }

    /// Blocks until the record of `lsn` is durable. May flush for others, too.
    ///
    /// # Errors
    /// The reason why the log is poisoned. It is unknown then whether the record survives.
    ///
    /// # Panics
    /// When `lsn` was not appended.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.wait(lsn, Role::Committer)
    }

    /// As [`Log::wait_durable`]; `role` says whether the caller is expected back with another
    /// commit.
    pub(crate) fn wait(&self, lsn: Lsn, role: Role) -> Result<()> {
        assert!(lsn <= self.reserved_end(), "{lsn} was not appended");
        let waited = self.group.wait(lsn, role, || self.flush());
        waited.map_err(|failed| self.why(failed))
    }

    /// Blocks until everything appended so far is durable.
    ///
    /// # Errors
    /// As [`Log::wait_durable`].
    pub fn flush_now(&self) -> Result<()> {
        self.wait(self.reserved_end(), Role::Background)
    }

    /// Returns true if the record of `lsn` is durable. Otherwise the log thread flushes, and
    /// `waker` is woken when the record is durable or the log is poisoned. A waker that was passed
    /// for several LSNs is woken for the smallest, and its owner asks again for the others. Never
    /// blocks.
    ///
    /// # Errors
    /// As [`Log::wait_durable`].
    ///
    /// # Panics
    /// When `lsn` was not appended.
    pub fn request_durable(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        assert!(lsn <= self.reserved_end(), "{lsn} was not appended");
        let asked = self.group.request(lsn, waker);
        let durable = asked.map_err(|failed| self.why(failed))?;
        if !durable {
            self.request_flush(lsn);
        }
        Ok(durable)
    }

    /// Asks the log thread to flush up to `lsn`. Never blocks.
    pub(crate) fn request_flush(&self, lsn: Lsn) {
        // Relaxed: the fence in notify_all orders it before the check whether the log thread waits.
        self.requested.fetch_max(lsn.0, Ordering::Relaxed);
        self.flusher.notify_all();
    }

    /// Returns the reason why the log is poisoned, None if it is not.
    #[inline]
    pub fn poisoned(&self) -> Option<Error> {
        self.group.failed().then(|| self.why_poisoned())
    }

    #[cold]
    fn why_poisoned(&self) -> Error {
        let failure = self.failure.lock();
        failure.clone().unwrap_or(Error::Abandoned)
    }

    fn why(&self, _: Failed) -> Error {
        self.poisoned().unwrap_or(Error::Abandoned)
    }

    /// Poisons the log: refuses everything from now on, and wakes all waiters. The first reason
    /// stays.
    pub fn poison(&self, reason: Error) {
        self.fail_because(reason);
        self.group.fail();
        self.wake_waiters();
        self.flusher.notify_all();
        self.growth.wake();
    }

    /// The part of [`Log::poison`] that wakes nobody: no flush takes what is in the buffer.
    #[cold]
    fn fail_because(&self, reason: Error) {
        self.failure.lock().get_or_insert(reason);
        self.group.note_failure();
    }

    /// Wakes all waiters for space, or for batches to be applied. An owner that has failed for a
    /// reason of its own calls it, since their waiting would not end.
    pub fn wake_waiters(&self) {
        self.order.applied.wake_all();
        self.shared.space.notify_all();
    }

    /// Returns whether a write is waiting for space on the device.
    pub fn is_full(&self) -> bool {
        // Relaxed: a hint.
        self.full.load(Ordering::Relaxed)
    }

    /// Recycles segments below `lsn`. The checkpoint that makes them unnecessary is durable.
    pub fn truncate_below(&self, lsn: Lsn) {
        assert!(lsn <= self.reserved_end(), "{lsn} was not appended");
        let mut tail = self.shared.tail.lock();
        tail.truncate_below(lsn);
        self.growth.note_base(&tail);
        drop(tail);
        self.shared.space.notify_all();
        self.growth.look_for_spare();
    }

    /// Returns the number of bytes of the log that a checkpoint would free.
    pub fn used_bytes(&self) -> u64 {
        self.shared.tail.lock().used_bytes()
    }

    /// Returns the number of bytes of all files that are ready.
    pub fn capacity_bytes(&self) -> u64 {
        self.segments.ready().iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the number of bytes that are reserved and not appended: 0 when the store is idle.
    pub fn reserved_bytes(&self) -> u64 {
        self.shared.tail.lock().reserved_bytes()
    }

    /// Marks the batch of `lsn` as applied to the tree. Called once for each append, in any order.
    pub fn mark_applied(&self, lsn: Lsn) {
        self.order.applied.mark(lsn);
    }

    /// Returns the LSN at or below which every batch is applied to the tree.
    #[inline]
    pub fn applied(&self) -> Lsn {
        let applied = self.order.applied.applied();
        debug_assert!(
            applied <= self.reserved_end(),
            "only what exists is applied"
        );
        applied
    }

    /// Blocks until [`Log::applied`] has reached `lsn`.
    ///
    /// # Errors
    /// The reason why the log is poisoned, if [`Log::applied`] has not reached `lsn`.
    pub fn wait_applied(&self, lsn: Lsn) -> Result<()> {
        let waker = thread_waker();
        while !self.request_applied(lsn, &waker)? {
            park();
        }
        Ok(())
    }

    /// Returns true if [`Log::applied`] has reached `lsn`. Otherwise `waker` is woken when it does,
    /// or when the log is poisoned.
    ///
    /// # Errors
    /// The reason why the log is poisoned, if [`Log::applied`] has not reached `lsn`.
    pub fn request_applied(&self, lsn: Lsn, waker: &Waker) -> Result<bool> {
        if self.order.applied.request(lsn, waker) {
            return Ok(true);
        }
        if let Some(error) = self.poisoned() {
            return Err(error);
        }
        Ok(false)
    }
}

/// The tail, locked for an append. A panic under the lock may leave a part of a record in the
/// buffer; if that was written, replay would end there, and lose the records behind it. So it
/// poisons the log before anybody else has the tail: nothing is flushed from then on.
struct Appending<'a, D: Device> {
    log: &'a Log<D>,
    /// None once it has ended.
    tail: Option<MutexGuard<'a, Tail>>,
}

impl<'a, D: Device> Appending<'a, D> {
    #[inline]
    fn begin(log: &'a Log<D>) -> Self {
        Self {
            log,
            tail: Some(log.shared.tail.lock()),
        }
    }

    #[inline]
    fn tail(&mut self) -> &mut Tail {
        self.tail.as_mut().expect("it has not ended")
    }

    /// Unlocks the tail, which has the whole record.
    #[inline]
    fn end(mut self) {
        self.tail = None;
    }
}

impl<D: Device> Drop for Appending<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if let Some(tail) = self.tail.take() {
            // Those that wait are woken without the lock: their wakers may be of users.
            self.log.fail_because(Error::Abandoned);
            drop(tail);
            self.log.poison(Error::Abandoned);
        }
    }
}

#[cfg(all(test, debug_assertions, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use pando_device::MemoryDevice;

    use super::*;
    use crate::options::FlushMethod;

    /// The record in the buffer may be half of one: no flush takes it, and no commit behind it is
    /// acknowledged.
    #[test]
    fn an_append_that_panics_poisons_the_log() {
        let options = LogOptions {
            segment_bytes: 64 << 10,
            segments: 4,
            file_bytes: 64 << 10,
            buffer_bytes: 48 << 10,
            identity: [7; 16],
            incarnation: 1,
            signature: 1,
            start: Lsn(0),
            flush_method: FlushMethod::Auto,
        };
        let statistics = Arc::new(Statistics::new());
        let log = Log::open(MemoryDevice::new(1 << 20), options, statistics).unwrap();
        let append = |log: &Log<MemoryDevice>| {
            let room = log.try_reserve(8).unwrap().unwrap();
            log.append(room, RecordKind::Batch, Acknowledge::WhenDurable, &[7; 8])
        };
        let first = append(&log);
        log.wait_durable(first).unwrap();
        let room = log.try_reserve(8).unwrap().unwrap();
        // Stands for a bug: the next record is not the next one to be applied.
        log.order.applied.reserve_in_order(Lsn(1 << 50));
        catch_unwind(AssertUnwindSafe(|| append(&log))).unwrap_err();
        assert!(matches!(log.poisoned(), Some(Error::Abandoned)));
        assert!(log.try_reserve(8).is_err());
        drop(room);
        assert_eq!(log.flush(), None, "what is in the buffer stays there");
        assert_eq!(log.durable(), first);
    }
}
