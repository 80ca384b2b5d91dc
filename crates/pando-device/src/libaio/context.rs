//! A context of the kernel, and the requests whose buffers it may be writing to.
//!
//! Invariants, which make the functions of this file safe to call:
//! - A buffer that was passed to the kernel stays in its slot until the kernel's answer was taken;
//!   destroying the context waits for all answers.
//! - The context has room for an entry of each slot, and one more for the poll that a waker ends.
//!
//! A forked child has no contexts: the calls fail there without harm.

#![expect(
    unsafe_code,
    reason = "the kernel writes to buffers by their addresses"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::RawFd;
use std::ptr;

use pando_sync::time::Duration;

use crate::requests::Requests;

const READ: u16 = 0;
const WRITE: u16 = 1;
const POLL: u16 = 5;
/// The answer is also signalled to the descriptor of the entry.
const FLAG_SIGNAL: u32 = 1;
/// Maximum number of answers of one call.
const ANSWERS_MAX: usize = 64;
/// Stands for the waker's poll in place of a slot.
pub(super) const WAKER: u32 = u32::MAX;
/// A timeout longer than any wait, and short enough for the kernel.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 30);

/// A request for the kernel (`struct iocb`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct ControlBlock {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    flags_of_rw: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    operation: u16,
    priority: i16,
    file: u32,
    address: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    signal: u32,
}

/// An answer of the kernel (`struct io_event`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Event {
    data: u64,
    entry: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<ControlBlock>() == 64);
const _: () = assert!(size_of::<Event>() == 32);

/// A context with requests in flight.
pub(super) struct Context {
    id: libc::c_ulong,
    requests: ManuallyDrop<Requests>,
    /// Entries to submit, and their addresses for the kernel, which are computed for each call.
    entries: Vec<ControlBlock>,
    addresses: Vec<*const ControlBlock>,
    /// Answers of the last call, and the number of them that were taken.
    events: Vec<Event>,
    taken: usize,
}

// SAFETY: the addresses point into `entries` during one call only.
unsafe impl Send for Context {}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("requests", &self.requests)
            .finish_non_exhaustive()
    }
}

impl Context {
    /// Makes a context for `depth` requests.
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        let count = libc::c_long::try_from(depth + 1).unwrap_or(libc::c_long::MAX);
        let mut id: libc::c_ulong = 0;
        // SAFETY: takes a number, and a place for the context's, which must be 0 before.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, count, &raw mut id) };
        if made != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            id,
            requests: ManuallyDrop::new(Requests::new(depth)),
            entries: Vec::with_capacity(depth + 1),
            addresses: Vec::with_capacity(depth + 1),
            events: Vec::with_capacity(ANSWERS_MAX),
            taken: 0,
        })
    }

    pub(super) fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    pub(super) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    /// Queues the rest of the request in `slot`. Its completion is also signalled to `signal`.
    pub(super) fn push(&mut self, slot: u32, signal: Option<RawFd>) {
        let piece = self.requests.piece(slot);
        assert!(!piece.refused, "what is refused is not handed over");
        let descriptor = |fd: RawFd| u32::try_from(fd).expect("descriptors are not negative");
        let entry = ControlBlock {
            data: slot.into(),
            operation: if piece.write { WRITE } else { READ },
            file: descriptor(piece.handle.raw_fd()),
            address: piece.address.expose_provenance() as u64,
            len: piece.len.into(),
            // The kernel refuses numbers that are too large.
            offset: i64::try_from(piece.offset).unwrap_or(-1),
            flags: if signal.is_some() { FLAG_SIGNAL } else { 0 },
            signal: signal.map_or(0, descriptor),
            ..ControlBlock::default()
        };
        self.entries.push(entry);
    }

    /// Queues a poll that is answered when `fd` is readable.
    pub(super) fn push_poll(&mut self, fd: RawFd) {
        self.entries.push(ControlBlock {
            data: WAKER.into(),
            operation: POLL,
            file: u32::try_from(fd).expect("descriptors are not negative"),
            address: u64::from(libc::POLLIN.unsigned_abs()),
            ..ControlBlock::default()
        });
    }

    pub(super) fn queued(&self) -> usize {
        self.entries.len()
    }

    /// Submits the queued entries to the kernel, which may take only some of them. Returns entries
    /// that it refuses permanently, one at a time, with the reason.
    ///
    /// # Errors
    /// The slot (or [`WAKER`]) of the refused entry, and the reason.
    pub(super) fn submit(&mut self) -> Result<(), (u32, io::Error)> {
        while !self.entries.is_empty() {
            self.addresses.clear();
            self.addresses
                .extend(self.entries.iter().map(ptr::from_ref));
            // SAFETY: the addresses are of entries that stay where they are during the call; the
            // file and the buffer of each stay in their slot until its answer; see the invariants.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_io_submit,
                    self.id,
                    self.addresses.len(),
                    self.addresses.as_ptr(),
                )
            };
            let Ok(taken) = usize::try_from(taken) else {
                let error = io::Error::last_os_error();
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::EINTR | libc::ENOMEM)
                ) {
                    // The next call tries again.
                    return Ok(());
                }
                let slot = slot_of(self.entries.remove(0).data);
                return Err((slot, error));
            };
            self.entries.drain(..taken);
        }
        Ok(())
    }

    /// Returns whether there are answers that were not taken.
    pub(super) fn has_answers(&self) -> bool {
        self.taken < self.events.len()
    }

    /// Takes the next answer: a slot, or [`WAKER`], and a number of bytes or a negative error
    /// number.
    pub(super) fn take(&mut self) -> Option<(u32, i64)> {
        let event = self.events.get(self.taken)?;
        self.taken += 1;
        Some((slot_of(event.data), event.result))
    }

    /// Asks the kernel for answers when all were taken. With `wait`, blocks until there is one or
    /// `timeout` has passed; `None` means no limit.
    pub(super) fn ask(&mut self, wait: bool, timeout: Option<Duration>) {
        if self.has_answers() {
            return;
        }
        self.taken = 0;
        self.events.clear();
        let timeout = match (wait, timeout) {
            (false, _) => Some(Duration::ZERO),
            (true, timeout) => timeout.map(|time| time.min(TIMEOUT_MAX)),
        };
        let time = timeout.map(|time| libc::timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let answers = libc::c_long::try_from(ANSWERS_MAX).expect("a few");
        // SAFETY: there is room for ANSWERS_MAX events from the start of the empty list, and the
        // time, where there is one, outlives the call.
        let count = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.id,
                libc::c_long::from(wait),
                answers,
                self.events.as_mut_ptr(),
                time.as_ref().map_or(ptr::null(), ptr::from_ref),
            )
        };
        // An error is an interruption, without answers.
        let count = usize::try_from(count).unwrap_or(0);
        assert!(count <= ANSWERS_MAX, "more answers than were asked for");
        // SAFETY: the kernel has filled the first `count` events, and the capacity is not less.
        unsafe { self.events.set_len(count) };
    }
}

fn slot_of(data: u64) -> u32 {
    u32::try_from(data).expect("the kernel hands slots back")
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: takes the number of our context, once. Returns when nothing is in flight in it.
        let destroyed = unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        if destroyed == 0 {
            // SAFETY: dropped once, here; the kernel no longer writes to any buffer.
            unsafe { ManuallyDrop::drop(&mut self.requests) };
        }
    }
}
