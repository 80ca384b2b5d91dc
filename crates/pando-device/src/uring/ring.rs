//! A ring, and the requests whose buffers the kernel may be writing to.
//!
//! Invariants, which make the functions of this file safe to call:
//! - A buffer that the kernel was told of stays in its slot until the kernel's answer was taken;
//!   a ring is dropped when all answers are there, or else its requests are never freed.
//! - The queues have at least as many entries as there are slots, and one more for the poll that
//!   a waker ends; each has at most one entry on its way. So neither queue is ever full.
//! - Registered buffers and the files of the table outlive the ring.
//!
//! A child of a fork shares the queues with its parent and must not come here.

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

/// Entries that the kernel allows, less the one of the waker.
pub(super) const DEPTH_MAX: usize = (1 << 15) - 1;
/// Pieces of memory that can be registered.
const MEMORIES_MAX: usize = 8;
/// What the answer to the waker's poll carries.
const WAKER: u64 = u64::MAX;
/// Longer than anybody waits, and short enough for the kernel.
const TIMEOUT_MAX: Duration = Duration::from_secs(1 << 30);

/// What the kernel has answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// To the piece of a slot: bytes, or the negative of an error number.
    Piece(u32, i32),
    /// Somebody woke.
    Woken,
}

/// A ring with requests in flight.
pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    requests: ManuallyDrop<Requests>,
    /// Requests that the kernel knows and has not answered.
    unanswered: usize,
    /// Entries queued so far, of requests and polls.
    pushed: u64,
    /// Which of them the newest poll is, counted from 0.
    poll_at: Option<u64>,
    /// Files below this number are registered under it.
    files: usize,
    /// Registered memory, by its number. Kept: the kernel has its pages.
    memories: Vec<Arc<Memory>>,
    /// The table for them was made.
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
    /// A ring for `depth` requests, at most [`DEPTH_MAX`].
    pub(super) fn new(depth: usize) -> io::Result<Self> {
        assert!(depth <= DEPTH_MAX, "a ring has at most {DEPTH_MAX} slots");
        let entries = u32::try_from(depth + 1).map_or(u32::MAX, u32::next_power_of_two);
        // The kernel finishes requests when their thread enters it anyway, and does not interrupt
        // it for that. Older kernels lack the flags, and work without.
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

    /// Enters a file of the table that was not known under this number.
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
            // This one and those behind it are named by their descriptors.
            self.files = number as usize;
        }
    }

    /// Registers the memory that `buffer` is of.
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

    /// Queues what is left of the request in `slot`.
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

    /// Entries that the kernel has not taken yet.
    pub(super) fn queued(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Entries of requests among them.
    fn queued_requests(&mut self) -> usize {
        let queued = self.queued();
        let taken = self.pushed - queued as u64;
        queued - usize::from(self.poll_at.is_some_and(|at| at >= taken))
    }

    /// True if finished requests wait for a call of the kernel to be answered.
    pub(super) fn has_unfinished(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// True if there are answers.
    pub(super) fn has_answers(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Hands all entries to the kernel and waits for `answers` of them.
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

    /// Forgets one entry that the kernel will never take.
    pub(super) fn withdraw(&mut self) {
        self.unanswered -= 1;
    }

    /// Waits for the answers to all that the kernel knows. False if that cannot be.
    fn settle(&mut self) -> bool {
        if self.unanswered == 0 {
            return true;
        }
        // Requests that are still queued are never handed over.
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

    /// Waits for an answer and hands nothing over.
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

    /// Ends the ring of a child: the kernel's part and the answers belong to the parent.
    pub(super) fn disown(&mut self) {
        self.unanswered = 0;
    }
}

/// The entry for a piece: by number where file and memory are registered.
fn entry_of(piece: &Piece<'_>, files: usize, memories: &[Arc<Memory>]) -> squeue::Entry {
    if piece.refused {
        return opcode::Nop::new().build();
    }
    let (address, len, offset) = (piece.address, piece.len, piece.offset);
    let number = match piece.buffer.memory() {
        Some(memory) => memories.iter().position(|known| Arc::ptr_eq(known, memory)),
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
                (false, Some(number)) => opcode::ReadFixed::new($file, address, len, number as u16)
                    .offset(offset)
                    .build(),
                (true, Some(number)) => opcode::WriteFixed::new($file, address, len, number as u16)
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
