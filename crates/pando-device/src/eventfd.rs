//! A waker that a thread which waits in the kernel can hear: an eventfd and a word.
//!
//! The word says that somebody woke since the last wait; the descriptor makes whoever waits for it
//! look. Waking again costs no system call until the waiter has looked. The waiter takes the word
//! before it goes to sleep, so a wake that came before it, or whose signal it has drained already,
//! is not lost.

#![expect(unsafe_code, reason = "std has no eventfd")]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::task::Wake;

use pando_sync::WakerArc;
use pando_sync::atomic::{AtomicBool, Ordering};

/// Wakes a thread out of a wait for descriptors.
#[derive(Debug)]
pub(crate) struct WakeEvent {
    event: fs::File,
    woken: AtomicBool,
}

impl WakeEvent {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes two numbers and makes a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            event: fs::File::from(fd),
            woken: AtomicBool::new(false),
        })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether somebody woke since the last call.
    pub(crate) fn take(&self) -> bool {
        // Acquire: pairs with the Release in wake_by_ref.
        self.woken.swap(false, Ordering::Acquire)
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) {
        // Fails only when the count is full, and then the descriptor is readable.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn drain(&self) {
        // Fails only when there was no signal.
        let _ = (&self.event).read(&mut [0; 8]);
    }
}

impl Wake for WakeEvent {
    fn wake(self: WakerArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &WakerArc<Self>) {
        // Release: pairs with the Acquire in take.
        if !self.woken.swap(true, Ordering::Release) {
            self.signal();
        }
    }
}
