//! The arena of shared words: one mapping for the life of an engine, which optimistic readers read
//! while others write. All accesses are to relaxed atomic words, so races are never undefined
//! behaviour. What was read counts only after the version of its latch has been validated.
#![cfg_attr(
    not(any(pando_loom, pando_shuttle)),
    expect(
        unsafe_code,
        reason = "maps memory, views it as atomic words, copies into them"
    )
)]

use crate::atomic::AtomicU64;

/// Number of bytes after the last word that are mapped and never used, so that a torn offset cannot
/// fault.
pub const GUARD_BYTES: usize = 64 << 10;
const HUGE_PAGE_BYTES: usize = 2 << 20;
const LINE_BYTES: usize = 64;

/// A fixed number of shared 64-bit words, zero at first, mapped once and never moved or unmapped
/// while the value lives. Only pages that were touched cost memory.
#[derive(Debug)]
pub struct WordArena {
    #[cfg(not(any(pando_loom, pando_shuttle)))]
    mapping: mapped::Mapping,
    #[cfg(any(pando_loom, pando_shuttle))]
    words: Vec<AtomicU64>,
    len: usize,
}

impl WordArena {
    /// Maps `len` words, named `structure` in the audit, with huge pages if `huge`.
    ///
    /// # Errors
    /// When the system refuses the mapping.
    pub fn new(structure: &'static str, len: usize, huge: bool) -> std::io::Result<Self> {
        #[cfg(not(any(pando_loom, pando_shuttle)))]
        {
            let bytes = len
                .checked_mul(8)
                .and_then(|bytes| bytes.checked_add(GUARD_BYTES + HUGE_PAGE_BYTES))
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))?;
            let arena = Self {
                mapping: mapped::Mapping::new(bytes, huge)?,
                len,
            };
            crate::audit::name(structure, arena.words(0, len));
            Ok(arena)
        }
        #[cfg(any(pando_loom, pando_shuttle))]
        {
            let _ = (structure, huge, GUARD_BYTES, HUGE_PAGE_BYTES);
            Ok(Self {
                words: (0..len).map(|_| AtomicU64::new(0)).collect(),
                len,
            })
        }
    }

    /// Returns the number of words.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the arena has no words.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a pointer to the first word; the others follow it.
    #[inline]
    pub(crate) fn base(&self) -> *const AtomicU64 {
        #[cfg(not(any(pando_loom, pando_shuttle)))]
        {
            self.mapping.base()
        }
        #[cfg(any(pando_loom, pando_shuttle))]
        {
            self.words.as_ptr()
        }
    }

    /// Returns the words `start .. start + count`.
    ///
    /// # Panics
    /// When the range is not within the arena.
    #[inline]
    pub fn words(&self, start: usize, count: usize) -> &[AtomicU64] {
        assert!(
            start <= self.len && count <= self.len - start,
            "range outside the arena"
        );
        #[cfg(not(any(pando_loom, pando_shuttle)))]
        {
            // SAFETY: start is within the mapping, as checked above.
            let first = unsafe { self.mapping.base().add(start) };
            // SAFETY: the mapping is aligned to 8 bytes, holds `len` zero-initialised words (any
            // bit pattern is an AtomicU64), lives as long as self and is never accessed in any
            // other way; the range was checked above.
            unsafe { std::slice::from_raw_parts(first, count) }
        }
        #[cfg(any(pando_loom, pando_shuttle))]
        {
            &self.words[start..start + count]
        }
    }
}

impl WordArena {
    /// Advises the system to use huge pages for the arena from now on, or not to. Where it is, huge
    /// pages fill up what [`WordArena::release`] has given back between words that are in use.
    #[cold]
    pub fn set_huge(&self, huge: bool) {
        #[cfg(not(any(pando_loom, pando_shuttle, miri)))]
        self.mapping.set_huge(huge);
        #[cfg(any(pando_loom, pando_shuttle, miri))]
        let _ = huge;
    }

    /// Gives the memory of the words `start .. start + count` back to the system, as far as it is
    /// whole pages of the system; they read as zero or as before. The caller is the only one that
    /// writes them; racing readers see old words or zeros.
    ///
    /// # Panics
    /// When the range is not within the arena.
    pub fn release(&self, start: usize, count: usize) {
        let words = self.words(start, count);
        #[cfg(not(any(pando_loom, pando_shuttle, miri)))]
        mapped::release(words);
        #[cfg(any(pando_loom, pando_shuttle, miri))]
        let _ = words;
    }
}

/// Prefetches the cache line of `word`. Never faults, and changes nothing.
#[inline]
pub fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle))))]
    {
        let pointer = std::ptr::from_ref(word).cast::<i8>();
        // SAFETY: a prefetch is a hint; it has no effect on memory and cannot fault.
        unsafe { std::arch::x86_64::_mm_prefetch(pointer, std::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle)))))]
    let _ = word;
}

/// Like [`prefetch`], for `LINES` lines from that of `word` on. They need not belong to the object
/// of `word`, since nothing there is read or written.
#[inline]
pub fn prefetch_lines<const LINES: usize>(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle))))]
    for line in 0..LINES {
        let pointer = std::ptr::from_ref(word).cast::<i8>();
        let pointer = pointer.wrapping_add(line * LINE_BYTES);
        // SAFETY: a prefetch is a hint; it has no effect on memory and cannot fault.
        unsafe { std::arch::x86_64::_mm_prefetch(pointer, std::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle)))))]
    let _ = word;
}

/// Like [`prefetch`], for all lines of `bytes`. These should be few, or they evict each other.
#[inline]
pub fn prefetch_bytes(bytes: &[u8]) {
    #[cfg(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle))))]
    for line in bytes.chunks(LINE_BYTES) {
        let pointer = line.as_ptr().cast::<i8>();
        // SAFETY: a prefetch is a hint; it has no effect on memory and cannot fault.
        unsafe { std::arch::x86_64::_mm_prefetch(pointer, std::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(pando_loom, pando_shuttle)))))]
    let _ = (bytes, LINE_BYTES);
}

/// Stores `bytes`, little-endian, into the first of `words`, each word by a relaxed store, in no
/// order. The caller is the only one that writes them; racing readers see old and new words.
///
/// # Panics
/// When `bytes` is not whole words, or is longer than `words`.
#[inline]
pub fn store_bytes(words: &[AtomicU64], bytes: &[u8]) {
    assert!(bytes.len().is_multiple_of(8), "whole words are stored");
    assert!(bytes.len() / 8 <= words.len(), "more bytes than words");
    #[cfg(all(
        target_arch = "x86_64",
        not(any(pando_loom, pando_shuttle, pando_audit, miri))
    ))]
    {
        // Takes two thirds of the time of a loop of stores, which the compiler does not combine.
        //
        // SAFETY: reads `bytes` and writes as many bytes of `words`, both checked above. Each
        // iteration moves an aligned word, as a relaxed store of it would; the instruction's stores
        // come before every later store, as later release operations require. The direction flag is
        // clear, as at every entry of asm.
        unsafe {
            std::arch::asm!(
                "rep movsq",
                inout("rcx") bytes.len() / 8 => _,
                inout("rdi") words.as_ptr() => _,
                inout("rsi") bytes.as_ptr() => _,
                options(nostack, preserves_flags)
            );
        }
    }
    #[cfg(not(all(
        target_arch = "x86_64",
        not(any(pando_loom, pando_shuttle, pando_audit, miri))
    )))]
    {
        let (chunks, _) = bytes.as_chunks::<8>();
        for (word, chunk) in words.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), crate::atomic::Ordering::Relaxed);
        }
    }
}

#[cfg(not(any(pando_loom, pando_shuttle)))]
mod mapped {
    use super::{AtomicU64, HUGE_PAGE_BYTES};
    use std::io;

    #[derive(Debug)]
    pub(super) struct Mapping {
        start: *mut libc::c_void,
        bytes: usize,
        base: *const AtomicU64,
    }

    // SAFETY: the mapping belongs to this value alone and is only viewed as atomic words.
    unsafe impl Send for Mapping {}
    // SAFETY: as above: shared access is by atomics only.
    unsafe impl Sync for Mapping {}

    impl Mapping {
        /// Maps `bytes` bytes, which include the slack for aligning the base to a huge page.
        pub(super) fn new(bytes: usize, huge: bool) -> io::Result<Self> {
            // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
            // memory that exists.
            let start = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    libc::PROT_READ | libc::PROT_WRITE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            let offset = start.align_offset(HUGE_PAGE_BYTES);
            // SAFETY: the slack of one huge page keeps the aligned base within the mapping.
            let base = unsafe { start.byte_add(offset) };
            let mapping = Self {
                start,
                bytes,
                base: base.cast::<AtomicU64>(),
            };
            mapping.set_huge(huge);
            Ok(mapping)
        }

        /// Advises the system to use huge pages, or not to.
        pub(super) fn set_huge(&self, huge: bool) {
            let advice = if huge {
                libc::MADV_HUGEPAGE
            } else {
                libc::MADV_NOHUGEPAGE
            };
            // SAFETY: the range is the mapping of this value; advice changes no contents. A refusal
            // costs speed only, or memory.
            unsafe { libc::madvise(self.start, self.bytes, advice) };
        }

        #[inline]
        pub(super) fn base(&self) -> *const AtomicU64 {
            self.base
        }
    }

    /// Gives the whole pages of the system among `words`, which are part of a mapping, back to it.
    #[cfg(not(miri))]
    pub(super) fn release(words: &[AtomicU64]) {
        let page = page_bytes();
        let skipped = words.as_ptr().align_offset(page);
        let Some(rest) = words.get(skipped..) else {
            return;
        };
        let bytes = size_of_val(rest) / page * page;
        if bytes == 0 {
            return;
        }
        let first = rest.as_ptr().cast_mut().cast::<libc::c_void>();
        // SAFETY: whole pages within a private anonymous mapping: from now on they read as zero,
        // which is valid for atomic words, and nothing refers to them in any other way. A refusal
        // leaves them as they are.
        unsafe { libc::madvise(first, bytes, libc::MADV_DONTNEED) };
    }

    /// Returns the size of a page of the system.
    #[cfg(not(miri))]
    fn page_bytes() -> usize {
        // SAFETY: asks for a constant of the system.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).expect("the system has pages")
    }

    impl Drop for Mapping {
        fn drop(&mut self) {
            // SAFETY: the mapping was made by new, and nothing refers to it any longer.
            unsafe { libc::munmap(self.start, self.bytes) };
        }
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use crate::atomic::Ordering;

    #[test]
    fn words_start_as_zero_and_keep_what_is_stored() {
        let arena = WordArena::new("test", 1024, false).unwrap();
        assert_eq!(arena.len(), 1024);
        assert!(
            arena
                .words(0, 1024)
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == 0)
        );
        arena.words(1000, 24)[23].store(7, Ordering::Relaxed);
        assert_eq!(arena.words(1023, 1)[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_is_released_is_zero_and_what_lies_beside_it_stays() {
        let arena = WordArena::new("test", 64 << 10, false).unwrap();
        let words = arena.words(0, arena.len());
        words
            .iter()
            .for_each(|word| word.store(9, Ordering::Relaxed));
        // From the middle of a page to that of another one: pages have 4 KiB to 64 KiB.
        arena.release(100, 40_000);
        let are = |from: usize, until: usize, value: u64| {
            let mut words = words[from..until].iter();
            words.all(|word| word.load(Ordering::Relaxed) == value)
        };
        assert!(are(0, 100, 9) && are(40_100, arena.len(), 9));
        assert!(are(8 << 10, 32 << 10, 0), "whole pages, on any system");
        arena.release(0, 10);
        assert!(are(0, 100, 9), "no whole page");
    }

    #[test]
    fn bytes_are_stored_as_little_endian_words_and_nothing_behind_them() {
        let arena = WordArena::new("test", 64, false).unwrap();
        // The second round stores from an odd address.
        let bytes: Vec<u8> = (0..=160).collect();
        for from in [0, 1] {
            store_bytes(arena.words(8, 32), &bytes[from..from + 160]);
            for (index, word) in arena.words(8, 20).iter().enumerate() {
                let expected = std::array::from_fn(|byte| (from + index * 8 + byte) as u8);
                assert_eq!(word.load(Ordering::Relaxed), u64::from_le_bytes(expected));
            }
            assert_eq!(arena.words(28, 1)[0].load(Ordering::Relaxed), 0);
            assert_eq!(arena.words(7, 1)[0].load(Ordering::Relaxed), 0);
        }
        store_bytes(arena.words(0, 0), &[]);
    }

    #[test]
    #[should_panic(expected = "more bytes than words")]
    fn more_bytes_than_words_are_refused() {
        let arena = WordArena::new("test", 64, false).unwrap();
        store_bytes(arena.words(0, 1), &[0; 16]);
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn a_range_past_the_end_is_refused() {
        WordArena::new("test", 8, false).unwrap().words(7, 2);
    }
}
