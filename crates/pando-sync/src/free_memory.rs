//! Memory that was freed, and that the allocator keeps.
//!
//! The allocator of glibc gives back what lies behind the last piece in use, and large pieces that
//! it has mapped by themselves; it raises the length of these whenever one is freed. Whatever lies
//! between pieces in use stays resident, for ever if nobody asks for it.

/// Has the allocator give free pages back to the system, wherever they lie. Returns true if it had
/// some. Takes about a tenth of a second for each GiB, in which others may wait that allocate.
pub fn give_back_free_memory() -> bool {
    imp::give_back()
}

#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
))]
#[expect(unsafe_code, reason = "asks the allocator of the system")]
mod imp {
    pub(super) fn give_back() -> bool {
        // SAFETY: takes no pointer, and frees only what nobody uses, under the locks of the
        // allocator.
        unsafe { libc::malloc_trim(0) == 1 }
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
)))]
mod imp {
    /// Other allocators do so by themselves, or cannot be asked.
    pub(super) fn give_back() -> bool {
        false
    }
}
