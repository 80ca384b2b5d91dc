//! Restartable sequences: code that the kernel restarts when its thread loses the processor.
//!
//! The C library (glibc from 2.35) registers an area of each thread with the kernel, which keeps
//! the number of the thread's processor there. This module uses it for two things: that number, by
//! one load, and an addition to a word of this processor without a `lock` prefix.
//!
//! # Why nothing is lost
//! [`add`] is the only writer of the words of processor P while it runs on P:
//! - The sequence begins after the store of its descriptor and ends after the addition, its last
//!   instruction. A thread that is preempted, moved, or gets a signal in between continues at the
//!   abort handler, which starts over: store, load of the processor's number, addition. So when the
//!   addition is executed, the thread has run on P since it read that number, and no other thread
//!   has run on P meanwhile.
//! - The addition is one instruction (`x86_64`), which nothing on P can interrupt, or a load and a
//!   store whose store is the last instruction (`aarch64`): other threads of P see it done or not
//!   begun. Threads of other processors only load these words, and they load values that were
//!   stored, since the words are aligned.
//! - A number at or above the limit is not a processor of the array: it is that of a thread that is
//!   not registered (-1 and -2 as unsigned numbers), or of a processor that was plugged in later.
//!   The sequence then writes nothing and reports that, and the caller adds elsewhere, atomically.
//!   No word gets both plain and atomic additions.
//!
//! The descriptor stays announced after the sequence; the kernel clears it at the next preemption
//! outside the sequence. So code that uses this must stay mapped while its threads live, which is
//! true for programs, and for libraries with thread-locals, which every Rust library has.
//!
//! Under model checkers, the audit and Miri [`area`] finds nothing.
#![expect(
    unsafe_code,
    reason = "finds the area of the C library, reads it, runs sequences of instructions"
)]

/// Number of words in a pair of cache lines. Rows are multiples of it, so that no two rows share a
/// pair.
const WORDS_ALIGN: usize = if cfg!(any(pando_loom, pando_shuttle)) {
    1
} else {
    16
};
/// Maximum length of a row in bytes. Linux has fewer than 2^13 processor numbers, so their rows end
/// below 2^31.
pub(crate) const ROW_BYTES_MAX: usize = 1 << 18;

/// Returns the distance in bytes from a row of `words` words to the next.
pub(crate) const fn row_bytes(words: usize) -> usize {
    words.next_multiple_of(WORDS_ALIGN) * size_of::<u64>()
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
))]
pub(crate) use imp::{Area, add, area, cpu};
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
)))]
pub(crate) use none::*;

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
)))]
mod none {
    /// An area that does not exist.
    #[derive(Debug, Clone, Copy)]
    pub(crate) enum Area {}

    /// Returns None: there are no restartable sequences.
    pub(crate) fn area() -> Option<Area> {
        None
    }

    /// Is never called: there is no area to call it with.
    #[cfg(not(any(pando_loom, pando_shuttle, pando_audit)))]
    pub(crate) fn cpu(area: Area) -> Option<usize> {
        match area {}
    }

    /// Has the signature of the real function.
    ///
    /// # Safety
    /// None is needed: there is no area to call it with.
    pub(crate) unsafe fn add<const WORDS: usize>(
        area: Area,
        _word: *const crate::atomic::AtomicU64,
        _limit: u32,
        _count: u64,
    ) -> bool {
        match area {}
    }
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(pando_loom, pando_shuttle, pando_audit, miri))
))]
mod imp {
    use std::arch::asm;
    use std::ffi::CStr;
    use std::num::NonZero;
    use std::sync::OnceLock;

    use super::{ROW_BYTES_MAX, row_bytes};
    use crate::atomic::AtomicU64;

    /// Offset of the area of every thread from its thread pointer, in bytes. Threads that are not
    /// registered have an area, too.
    pub(crate) type Area = NonZero<isize>;

    /// Length in bytes of the used part of the area: two numbers, the descriptor, flags.
    const AREA_BYTES_MIN: u32 = 20;

    /// Returns the area, if the C library has registered it.
    #[inline]
    pub(crate) fn area() -> Option<Area> {
        static AREA: OnceLock<Option<Area>> = OnceLock::new();
        *AREA.get_or_init(find)
    }

    #[cold]
    fn find() -> Option<Area> {
        let symbol = |name: &CStr| {
            // SAFETY: the name ends with a zero; looking up a symbol changes nothing.
            let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        let (size, offset) = (symbol(c"__rseq_size")?, symbol(c"__rseq_offset")?);
        // SAFETY: glibc defines this symbol as a constant `unsigned int`; it is set before main.
        let size = unsafe { size.cast::<u32>().read() };
        // SAFETY: as above, a `ptrdiff_t`.
        let offset = unsafe { offset.cast::<isize>().read() };
        let offset = NonZero::new(offset)?;
        (size >= AREA_BYTES_MIN).then_some(offset)
    }

    /// Returns the processor of the calling thread, None if the thread is not registered.
    #[inline]
    pub(crate) fn cpu(area: Area) -> Option<usize> {
        let cpu: u32;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: loads the second number of the calling thread's area, which exists.
        unsafe {
            asm!(
                "mov {cpu:e}, dword ptr fs:[{area} + 4]",
                area = in(reg) area.get(),
                cpu = lateout(reg) cpu,
                options(nostack, readonly, preserves_flags),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            asm!(
                "mrs {at}, tpidr_el0",
                "add {at}, {at}, {area}",
                "ldr {cpu:w}, [{at}, #4]",
                area = in(reg) area.get(),
                at = out(reg) _,
                cpu = lateout(reg) cpu,
                options(nostack, readonly, preserves_flags),
            );
        }
        usize::try_from(cpu.cast_signed()).ok()
    }

    /// Adds `count` to the word of the current processor P, which lies P rows of `WORDS` words
    /// after `word`. Returns false, without a change, if that offset is not below `limit` bytes.
    ///
    /// # Safety
    /// For every P whose offset is below `limit`, an aligned word lies there that lives during the
    /// call and that only this function writes. `area` is the result of [`area`]. `limit` is at
    /// most 2^31, so that the products of -1 and -2, and of processors that the array does not
    /// have, are not below it.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(crate) unsafe fn add<const WORDS: usize>(
        area: Area,
        word: *const AtomicU64,
        limit: u32,
        count: u64,
    ) -> bool {
        const { assert!(row_bytes(WORDS) <= ROW_BYTES_MAX, "a product would wrap") };
        // SAFETY: the caller's promise covers the one write to memory that is not this thread's;
        // the other is the descriptor's field in the area, which is for this. Labels `2` to `4` are
        // the sequence that the module's documentation describes.
        unsafe {
            asm!(
                "2:",
                "lea {at}, [rip + 6f]",
                "mov qword ptr fs:[{area} + 8], {at}",
                "3:",
                "imul {at:e}, dword ptr fs:[{area} + 4], {stride}",
                "cmp {at:e}, {limit:e}",
                "jae {refused}",
                "add qword ptr [{word} + {at}], {count}",
                "4:",
                ".pushsection __rseq_cs, \"aw\", @progbits",
                ".balign 32",
                "6:",
                ".long 0, 0",
                ".quad 3b, 4b - 3b, 7f",
                ".popsection",
                ".pushsection __rseq_failure, \"ax\", @progbits",
                // The kernel looks for this signature before the handler.
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "7:",
                "jmp 2b",
                ".popsection",
                at = out(reg) _,
                area = in(reg) area.get(),
                word = in(reg) word,
                limit = in(reg) limit,
                count = in(reg) count,
                stride = const row_bytes(WORDS),
                refused = label { return false },
                options(nostack),
            );
        }
        true
    }

    /// Like the function for `x86_64`, with a load and a store.
    ///
    /// # Safety
    /// The same.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    pub(crate) unsafe fn add<const WORDS: usize>(
        area: Area,
        word: *const AtomicU64,
        limit: u32,
        count: u64,
    ) -> bool {
        const { assert!(row_bytes(WORDS) <= ROW_BYTES_MAX, "a product would wrap") };
        // SAFETY: as for `x86_64`; the sequence ends with the store of the sum.
        unsafe {
            asm!(
                "mrs {area_at}, tpidr_el0",
                "add {area_at}, {area_at}, {area}",
                "2:",
                "adrp {at}, 6f",
                "add {at}, {at}, :lo12:6f",
                "str {at}, [{area_at}, #8]",
                "3:",
                "ldr {at:w}, [{area_at}, #4]",
                "mul {at:w}, {at:w}, {stride:w}",
                "cmp {at:w}, {limit:w}",
                "b.hs {refused}",
                "ldr {sum}, [{word}, {at}]",
                "add {sum}, {sum}, {count}",
                "str {sum}, [{word}, {at}]",
                "4:",
                ".pushsection __rseq_cs, \"aw\", @progbits",
                ".balign 32",
                "6:",
                ".long 0, 0",
                ".quad 3b, 4b - 3b, 7f",
                ".popsection",
                ".pushsection __rseq_failure, \"ax\", @progbits",
                // The kernel looks for this signature before the handler.
                ".inst 0xd428bc00",
                "7:",
                "b 2b",
                ".popsection",
                at = out(reg) _,
                sum = out(reg) _,
                area_at = out(reg) _,
                area = in(reg) area.get(),
                word = in(reg) word,
                limit = in(reg) limit,
                count = in(reg) count,
                stride = in(reg) row_bytes(WORDS),
                refused = label { return false },
                options(nostack),
            );
        }
        true
    }
}
