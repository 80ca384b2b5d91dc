//! Detects whether this process is the one that opened the device, and not a forked child of it
//! (decision 011).
//!
//! A child has copies of the rings' memory, none of the threads, and locks in an arbitrary state:
//! nothing works there, and much would harm the parent. A page that the kernel wipes in children
//! distinguishes them with one load, while a comparison of process ids takes a system call. Where
//! no such page is available, the ids are compared.

#![expect(unsafe_code, reason = "a mapping with an advice of its own")]

use std::io;
use std::process;
use std::ptr::{self, NonNull};

use crate::error::{Error, Result};

/// Size of the mapping: one page or several, for any page size.
const BYTES: usize = 1 << 16;

/// Knows the process that made it.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    /// The first byte is 1, and 0 in a child. Never written after the guard was made.
    page: Option<NonNull<u8>>,
    pid: u32,
}

// SAFETY: the page is only read once the value exists.
unsafe impl Send for ForkGuard {}
// SAFETY: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// Remembers this process. Never fails: without a wiped page it compares process ids.
    pub(crate) fn new() -> Self {
        Self {
            page: wiped_page().ok(),
            pid: process::id(),
        }
    }

    /// Returns whether this is a forked child of the process that made the guard.
    #[inline]
    pub(crate) fn is_child(&self) -> bool {
        match self.page {
            Some(page) => {
                // SAFETY: the page is mapped until the value is dropped, and nobody writes to it.
                // Volatile: a fork changes it behind the compiler's back.
                let first = unsafe { page.as_ptr().read_volatile() };
                first == 0
            }
            None => process::id() != self.pid,
        }
    }

    /// # Errors
    /// `Forked` in a child.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_child() {
            Err(Error::Forked)
        } else {
            Ok(())
        }
    }
}

fn wiped_page() -> io::Result<NonNull<u8>> {
    // SAFETY: asks for new memory of our own; nothing that exists is touched.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `start` begins a mapping of BYTES that is ours alone.
    let advised = unsafe { libc::madvise(start, BYTES, libc::MADV_WIPEONFORK) };
    let error = io::Error::last_os_error();
    let page = start.cast::<u8>();
    // SAFETY: as above; the first byte is there and writable.
    unsafe { page.write(1) };
    match NonNull::new(page) {
        Some(page) if advised == 0 => Ok(page),
        _ => {
            // SAFETY: the mapping made above, which nobody else knows.
            unsafe { libc::munmap(start, BYTES) };
            Err(error)
        }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        if let Some(page) = self.page {
            // SAFETY: the mapping is of this value alone and unmapped once, here.
            unsafe { libc::munmap(page.as_ptr().cast(), BYTES) };
        }
    }
}

/// Returns whether `question` returns true in a forked child within ten seconds.
#[cfg(test)]
pub(crate) fn in_child(question: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing but `question`, which allocates nothing, and `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        // SAFETY: the call takes a number. Its signal ends a child that hangs.
        unsafe { libc::alarm(10) };
        let answer = i32::from(question());
        // SAFETY: the call ends the child at once, without destructors that belong to the parent.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: the call waits for the child made above, and `status` has room for its result.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(waited, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_knows_that_it_is_one() {
        let guard = ForkGuard::new();
        assert!(guard.page.is_some(), "this kernel wipes pages");
        let by_pid = ForkGuard {
            page: None,
            pid: process::id(),
        };
        for guard in [&guard, &by_pid] {
            assert!(!guard.is_child());
            assert!(in_child(|| guard.is_child()));
            assert!(guard.check().is_ok());
        }
    }
}
