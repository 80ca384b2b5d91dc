//! A ring, and the requests whose buffers the kernel may be writing to.
//!
//! Invariants, which make the functions of this file safe to call:
//! - A buffer that was passed to the kernel stays in its slot until the kernel's answer was taken.
//!   A ring is dropped when all answers have arrived; otherwise its requests are never freed.
//! - The queues have at least as many entries as there are slots, and one more for the poll that a
//!   waker ends; each of them has at most one entry in a queue. So neither queue is ever full.
//! - Registered buffers and the files of the table outlive the ring.
//!
//! A forked child shares the queues with its parent and must not use this module.

#![expect(
    unsafe_code,
    reason = "the kernel writes to buffers by their addresses"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use pando_sync::Arc;
use pando_sync::time::Duration;

use crate::buffer::{IoBuf, Memory};
use crate::requests::{FILES_KEPT, Piece, Requests};

/// Maximum number of entries that the kernel allows, less one for the waker.
pub(super) const DEPTH_MAX: usize = (1 << 15) - 1;
/// Maximum number of pieces of memory that can be registered.
const MEMORIES_MAX: usize = 8;
/// The user data of the waker's poll.
const WAKER: u64 = u64::MAX;
/// A timeout longer than any wait, and short enough for the kernel.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 30);

/// An answer of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// The answer to the piece of a slot: a number of bytes, or a negative error number.
    Piece(u32, i32),
    /// Somebody woke.
    Woken,
}

/// A ring with requests in flight.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    requests: ManuallyDrop<Requests>,
    /// Number of requests that the kernel has and has not answered.
    unanswered: usize,
    /// Number of entries queued so far, for requests and polls.
    pushed: u64,
    /// Index of the newest poll among them, counted from 0.
    poll_at: Option<u64>,
    /// Files below this number are registered under it.
    files: usize,
    /// Registered memory by its number, kept because the kernel uses its pages.
    memories: Vec<Arc<Memory>>,
    /// The kernel's table for them was made.
    has_memory_table: bool,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("requests", &self.requests)
            .field("unanswered", &self.unanswered)
            .finish_non_exhaustive()
    }
}

impl Ring {
    /// Makes a ring for `depth` requests, at most [`DEPTH_MAX`].
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        assert!(depth <= DEPTH_MAX, "a ring has at most {DEPTH_MAX} slots");
        let entries = u32::try_from(depth + 1).map_or(u32::MAX, u32::next_power_of_two);
        // The kernel finishes requests when their thread enters it anyway, and does not interrupt
        // it for that. Older kernels lack the flags, and work without them.
        let made = IoUring::builder()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries);
        let ring: IoUring = match made {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                IoUring::builder().build(entries)?
            }
            made => made?,
        };
        let parameters = ring.params();
        if !parameters.is_feature_ext_arg() || !parameters.is_feature_nodrop() {
            return Err(io::Error::other("the kernel's rings lack timeouts"));
        }
        assert!(
            parameters.sq_entries() as usize > depth,
            "the ring is too small"
        );
        assert!(
            parameters.cq_entries() as usize > depth,
            "the ring is too small"
        );
        let kept = u32::try_from(FILES_KEPT).expect("a few files");
        let registered = ring.submitter().register_files_sparse(kept);
        Ok(Self {
            ring: ManuallyDrop::new(ring),
            requests: ManuallyDrop::new(Requests::new(depth)),
            unanswered: 0,
            pushed: 0,
            poll_at: None,
            files: if registered.is_ok() { FILES_KEPT } else { 0 },
            memories: Vec::with_capacity(MEMORIES_MAX),
            has_memory_table: false,
        })
    }

    pub(super) fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    pub(super) fn in_flight(&self) -> usize {
        self.requests.in_flight()
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring keeps its descriptor open for as long as `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Registers a file of the table that is new under this number.
    pub(super) fn register_file(&mut self, number: usize) {
        if number >= self.files {
            return;
        }
        let fd = self.requests.handle(number).raw_fd();
        let number = u32::try_from(number).expect("a few files are registered");
        if !matches!(
            self.ring.submitter().register_files_update(number, &[fd]),
            Ok(1)
        ) {
            // This file and those after it are passed by their descriptors.
            self.files = number as usize;
        }
    }

    /// Registers the memory that `buffer` is a part of.
    pub(super) fn register_memory(&mut self, buffer: &IoBuf) -> io::Result<()> {
        let Some(memory) = buffer.memory() else {
            return Ok(());
        };
        if self.memories.len() == MEMORIES_MAX {
            return Err(io::Error::other("enough are registered"));
        }
        let submitter = self.ring.submitter();
        if !self.has_memory_table {
            let count = u32::try_from(MEMORIES_MAX).expect("a few");
            submitter.register_buffers_sparse(count)?;
            self.has_memory_table = true;
        }
        let number = u32::try_from(self.memories.len()).expect("a few");
        let part = libc::iovec {
            iov_base: memory.start().cast(),
            iov_len: memory.bytes(),
        };
        // SAFETY: the memory stays: `memories` keeps it until the ring has gone.
        unsafe { submitter.register_buffers_update(number, &[part], None)? };
        self.memories.push(memory.clone());
        Ok(())
    }

    /// Queues the rest of the request in `slot`.
    pub(super) fn push(&mut self, slot: u32) {
        let (files, memories) = (self.files, &self.memories);
        let entry = entry_of(&self.requests.piece(slot), files, memories).user_data(slot.into());
        self.unanswered += 1;
        // SAFETY: file and buffer of the request stay in their slot until the kernel's answer, and
        // registered memory longer; see the invariants.
        unsafe { self.push_entry(&entry) };
    }

    /// Queues a poll that is answered when `fd`, which outlives the ring, is readable.
    pub(super) fn push_poll(&mut self, fd: RawFd) {
        let events = u32::try_from(libc::POLLIN).expect("a small number");
        let entry = opcode::PollAdd::new(Fd(fd), events)
            .build()
            .user_data(WAKER);
        self.poll_at = Some(self.pushed);
        // SAFETY: a poll has no buffer.
        unsafe { self.push_entry(&entry) };
    }

    /// # Safety
    /// What the entry points to stays until the kernel has answered it.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: promised by the caller.
        let pushed = unsafe { self.ring.submission().push(entry) };
        assert!(pushed.is_ok(), "the ring has an entry for each slot");
        self.pushed += 1;
    }

    /// Returns the number of entries that the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Returns the number of entries of requests among them.
    fn queued_requests(&mut self) -> usize {
        let queued = self.queued();
        let taken = self.pushed - queued as u64;
        queued - usize::from(self.poll_at.is_some_and(|at| at >= taken))
    }

    /// Returns whether finished requests are answered only at the next call of the kernel.
    pub(super) fn has_unfinished(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// Returns whether there are answers.
    pub(super) fn has_answers(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Submits all entries to the kernel and waits for `answers` answers, at most for `timeout`.
    pub(super) fn enter(&self, answers: usize, timeout: Option<Duration>) -> io::Result<()> {
        let submitter = self.ring.submitter();
        match timeout {
            None => submitter.submit_and_wait(answers),
            Some(timeout) => {
                let time = Timespec::from(timeout.min(TIMEOUT_MAX));
                submitter.submit_with_args(answers, &SubmitArgs::new().timespec(&time))
            }
        }
        .map(|_| ())
    }

    /// Takes the next answer.
    pub(super) fn take(&mut self) -> Option<Answer> {
        let entry: cqueue::Entry = self.ring.completion().next()?;
        if entry.user_data() == WAKER {
            return Some(Answer::Woken);
        }
        let slot = u32::try_from(entry.user_data()).expect("the kernel hands slots back");
        assert!(self.unanswered > 0, "an answer nobody asked for");
        self.unanswered -= 1;
        Some(Answer::Piece(slot, entry.result()))
    }

    /// Forgets one entry, which the kernel will never take.
    pub(super) fn withdraw(&mut self) {
        self.unanswered -= 1;
    }

    /// Waits for the answers to all requests that the kernel has. Returns false if that is not
    /// possible.
    fn settle(&mut self) -> bool {
        if self.unanswered == 0 {
            return true;
        }
        // Requests that are still queued are never submitted.
        let queued = self.queued_requests();
        while self.unanswered > queued {
            while self.take().is_some() {}
            if self.unanswered > queued
                && let Err(error) = self.wait_only()
                && !matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                )
            {
                return false;
            }
        }
        true
    }

    /// Waits for an answer without submitting anything.
    fn wait_only(&self) -> io::Result<()> {
        const GETEVENTS: u32 = 1;
        // SAFETY: nothing is submitted and no argument passed: only waits.
        unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(0, 1, GETEVENTS, None)
        }
        .map(|_| ())
    }

    /// Ends the ring in a forked child: the kernel's part and the answers belong to the parent.
    pub(super) fn disown(&mut self) {
        self.unanswered = 0;
    }
}

/// Makes the entry for a piece, by number where file and memory are registered.
fn entry_of(piece: &Piece<'_>, files: usize, memories: &[Arc<Memory>]) -> squeue::Entry {
    if piece.refused {
        return opcode::Nop::new().build();
    }
    let (address, len, offset) = (piece.address, piece.len, piece.offset);
    let number = match piece.buffer.memory() {
        Some(memory) => (0_u16..)
            .zip(memories)
            .find(|(_, known)| Arc::ptr_eq(known, memory))
            .map(|(number, _)| number),
        None => None,
    };
    macro_rules! entry {
        ($file:expr) => {
            match (piece.write, number) {
                (false, None) => opcode::Read::new($file, address, len)
                    .offset(offset)
                    .build(),
                (true, None) => opcode::Write::new($file, address, len)
                    .offset(offset)
                    .build(),
                (false, Some(number)) => opcode::ReadFixed::new($file, address, len, number)
                    .offset(offset)
                    .build(),
                (true, Some(number)) => opcode::WriteFixed::new($file, address, len, number)
                    .offset(offset)
                    .build(),
            }
        };
    }
    if piece.file < files {
        entry!(Fixed(
            u32::try_from(piece.file).expect("a few files are registered")
        ))
    } else {
        entry!(Fd(piece.handle.raw_fd()))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let settled = self.settle();
        // SAFETY: dropped once, here; nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if settled {
            // SAFETY: as above; the kernel has answered everything, so it writes to no buffer.
            unsafe { ManuallyDrop::drop(&mut self.requests) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_is_not_counted_among_the_requests_that_wait() {
        let Ok(mut ring) = Ring::new(4) else {
            eprintln!("SKIPPED: this kernel gives no ring");
            return;
        };
        let (_reader, writer) = io::pipe().unwrap();
        ring.push_poll(writer.as_raw_fd());
        assert_eq!((ring.queued(), ring.queued_requests()), (1, 0));
        ring.enter(0, None).unwrap();
        assert_eq!((ring.queued(), ring.queued_requests()), (0, 0));
        let place = tempfile::tempdir().unwrap();
        let device = crate::DirectoryDevice::open_directory(place.path(), false, 1).unwrap();
        let how = crate::OpenOptions::create(crate::Create::New);
        let file = crate::Device::open(&device, "data", how).unwrap();
        let begun = ring.requests().begin(false, &file, 0, IoBuf::new(1), 0);
        ring.push(begun.unwrap().slot);
        assert_eq!((ring.queued(), ring.queued_requests()), (1, 1));
        ring.push_poll(writer.as_raw_fd());
        assert_eq!((ring.queued(), ring.queued_requests()), (2, 1));
    }
}
