//! Waits for a descriptor as an event loop does, one edge at a time.

#![expect(unsafe_code, reason = "std has no epoll")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An epoll instance with one edge-triggered descriptor.
pub(crate) struct Edges(OwnedFd);

impl Edges {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        // SAFETY: the call takes a flag and returns a descriptor.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0);
        // SAFETY: the descriptor was just made, and nothing else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLET) as u32,
            u64: 0,
        };
        // SAFETY: both descriptors are open and the event outlives the call.
        let added = unsafe {
            libc::epoll_ctl(
                epoll.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_raw_fd(),
                &raw mut event,
            )
        };
        assert_eq!(added, 0, "{}", io::Error::last_os_error());
        Self(epoll)
    }

    /// Waits for the next edge, for at most half a minute.
    pub(crate) fn wait(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: `event` has room for the one event.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, 30_000) };
        let interrupted = io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        assert!(
            count == 1 || (count < 0 && interrupted),
            "no edge within half a minute"
        );
    }
}
