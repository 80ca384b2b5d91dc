//! A waker for a thread that waits in the kernel: an eventfd and a word.
//!
//! The word tells that somebody woke it since the last wait. The descriptor makes the waiter check
//! the word. Further wakes cost no system call until the waiter has checked. The waiter takes the
//! word before it sleeps, so a wake that came before, or whose signal was drained already, is not
//! lost.

#![expect(unsafe_code, reason = "std has no eventfd")]

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::task::Wake;

use pando_sync::WakerArc;
use pando_sync::atomic::{AtomicBool, Ordering};

/// Wakes a thread from a wait for descriptors.
#[derive(Debug)]
pub(crate) struct WakeEvent {
    event: fs::File,
    /// Set by a wake, cleared by [`WakeEvent::take`].
    woken: AtomicBool,
}

impl WakeEvent {
    /// Makes a descriptor that is not readable. Fails if the process has too many.
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

    /// Returns the descriptor, which a signal makes readable; it is closed with this value.
    pub(crate) fn raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Returns the descriptor, which a signal makes readable until [`WakeEvent::drain`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns whether somebody woke since the last call.
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
