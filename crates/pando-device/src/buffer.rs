//! Owned byte buffers, aligned so that direct files accept them.
//!
//! A buffer is always initialised memory: a fresh one is all zeros. A reused buffer is not cleared.
//! Instead it knows from where on its memory is still zeros, so that padding a write with zeros
//! clears only the bytes that an earlier use has left.

#![expect(unsafe_code, reason = "aligned memory has no safe constructor in std")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use pando_sync::Arc;

/// Alignment of every [`IoBuf`] in bytes, and the largest that a direct file may require.
pub const IO_ALIGNMENT: usize = 4096;

/// An owned byte buffer that begins at a multiple of [`IO_ALIGNMENT`].
pub struct IoBuf {
    /// `capacity` initialised bytes that belong only to this value; dangling if it is 0.
    start: NonNull<u8>,
    /// At most `capacity`.
    len: usize,
    /// A multiple of [`IO_ALIGNMENT`].
    capacity: usize,
    /// Bytes from here to `capacity` are zeros. Those before may have any value.
    dirty: usize,
    /// `None` if the capacity is 0.
    memory: Option<Arc<Memory>>,
}

// SAFETY: the bytes are of this value alone and plain, so that another thread may have them.
unsafe impl Send for IoBuf {}
// SAFETY: shared references allow reads only.
unsafe impl Sync for IoBuf {}

/// Memory of one or several buffers, freed with the last of them.
pub(crate) struct Memory {
    /// `bytes` initialised bytes of the global allocator; at least one.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: nothing reads or writes the bytes through this value: each belongs to one IoBuf.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, IO_ALIGNMENT)
            .expect("the alignment is a power of two; buffers are far smaller than isize::MAX")
    }

    /// Allocates `bytes` zeros, `None` for 0 bytes.
    fn new(bytes: usize) -> Option<Arc<Self>> {
        if bytes == 0 {
            return None;
        }
        let layout = Self::layout(bytes);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout);
        };
        debug_assert_eq!(start.addr().get() % IO_ALIGNMENT, 0);
        Some(Arc::new(Self { start, bytes }))
    }

    /// Returns its start.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns its length in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the start of a buffer at `offset`, dangling without memory.
    fn part(memory: Option<&Arc<Self>>, offset: usize) -> NonNull<u8> {
        let Some(memory) = memory else {
            return NonNull::dangling();
        };
        assert!(offset < memory.bytes, "a buffer begins behind its memory");
        // SAFETY: `offset` is less than the length of the allocation that starts there.
        unsafe { memory.start.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` came from alloc_zeroed with this same layout and is freed once, here,
        // where no buffer has a part of it any longer.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.bytes)) }
    }
}

impl IoBuf {
    /// Makes a buffer of `len` zeros.
    pub fn new(len: usize) -> Self {
        let capacity = len.next_multiple_of(IO_ALIGNMENT);
        let memory = Memory::new(capacity);
        Self {
            start: Memory::part(memory.as_ref(), 0),
            len,
            capacity,
            dirty: 0,
            memory,
        }
    }

    /// Makes `count` buffers of `len` zeros in one piece of memory, which is freed with the last of
    /// them.
    pub fn many(count: usize, len: usize) -> Vec<Self> {
        let capacity = len.next_multiple_of(IO_ALIGNMENT);
        let bytes = capacity
            .checked_mul(count)
            .expect("buffers are far smaller than the address space");
        let memory = Memory::new(bytes);
        let part = |index: usize| Self {
            start: Memory::part(memory.as_ref(), index * capacity),
            len,
            capacity,
            dirty: 0,
            memory: memory.clone(),
        };
        (0..count).map(part).collect()
    }

    /// Makes a copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::new(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Returns the maximum for [`IoBuf::set_len`]: the initial length, rounded up.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends `next`, which follows this buffer in the memory of [`IoBuf::many`]. The length
    /// stays: [`IoBuf::set_len`] makes the other bytes visible.
    ///
    /// # Errors
    /// Returns `next` if it does not follow.
    pub fn join(&mut self, next: Self) -> Result<(), Self> {
        let is_same = match (&self.memory, &next.memory) {
            (Some(memory), Some(other)) => Arc::ptr_eq(memory, other),
            _ => false,
        };
        let end = self.start.addr().get() + self.capacity;
        if !is_same || next.start.addr().get() != end {
            return Err(next);
        }
        if next.dirty > 0 {
            self.dirty = self.capacity + next.dirty;
        }
        // Both are parts of one allocation, of which `self.start` may reach all, and nobody else
        // has the bytes of `next`.
        self.capacity += next.capacity;
        Ok(())
    }

    /// Splits the buffer: it keeps the first `at` bytes of its capacity, and the others are
    /// returned, each with as many bytes of the length as it has.
    ///
    /// # Panics
    /// Unless `at` is a multiple of [`IO_ALIGNMENT`], and less than the capacity.
    #[must_use = "the rest of the memory"]
    pub fn split_off(&mut self, at: usize) -> Self {
        assert!(at < self.capacity, "nothing is left behind {at}");
        assert_eq!(at % IO_ALIGNMENT, 0, "a buffer that is not aligned");
        let rest = Self {
            // SAFETY: `at` is less than the capacity of the memory that starts there.
            start: unsafe { self.start.add(at) },
            len: self.len.saturating_sub(at),
            capacity: self.capacity - at,
            dirty: self.dirty.saturating_sub(at),
            memory: self.memory.clone(),
        };
        self.len = self.len.min(at);
        self.dirty = self.dirty.min(at);
        self.capacity = at;
        rest
    }

    /// Changes the length. Bytes that become visible keep their last value.
    ///
    /// # Panics
    /// When `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(
            len <= self.capacity,
            "{len} bytes do not fit in a buffer of {}",
            self.capacity
        );
        self.len = len;
    }

    /// Returns the offset from which all bytes to the capacity are zeros: they were not accessible
    /// by `&mut`, and not the target of a read, since the buffer was made or they were padded.
    pub fn dirty_bytes(&self) -> usize {
        self.dirty
    }

    /// Returns the first `len` bytes for writing. The others do not change, and are still known to
    /// be zeros if they were.
    ///
    /// # Panics
    /// When `len` exceeds the length.
    pub fn prefix_mut(&mut self, len: usize) -> &mut [u8] {
        assert!(
            len <= self.len,
            "{len} bytes of a buffer that has {}",
            self.len
        );
        // Written only if it changes: other cores, which fill the same buffer in turn, may have the
        // line.
        if self.dirty < len {
            self.dirty = len;
        }
        // SAFETY: `len` <= `capacity` initialised bytes that this value owns; a dangling start goes
        // with length 0; `&mut self` excludes every other reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }

    /// Makes the bytes from `from` to the length zeros. Clears only bytes that an earlier use of
    /// the buffer may have left, so it costs nothing if the buffer was never used that far.
    ///
    /// # Panics
    /// When `from` exceeds the length.
    pub fn pad_zeros(&mut self, from: usize) {
        let (len, dirty) = (self.len, self.dirty);
        assert!(
            from <= len,
            "padding from {from} of a buffer that has {len}"
        );
        let end = len.min(dirty);
        if from < end {
            self.prefix_mut(end)[from..].fill(0);
        }
        if dirty <= len {
            self.dirty = dirty.min(from);
        }
    }
}

/// For devices that move the bytes themselves, while nobody else accesses the buffer.
impl IoBuf {
    /// Returns the target of a read of the whole length. The bytes count as written from now on.
    pub(crate) fn target(&mut self) -> *mut u8 {
        self.dirty = self.dirty.max(self.len);
        self.start.as_ptr()
    }

    /// Returns the memory that the buffer is a part of, if it has any.
    pub(crate) fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    /// Returns the source of a write of the whole length.
    pub(crate) fn source(&self) -> *const u8 {
        self.start.as_ptr()
    }
}

impl Deref for IoBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` <= `capacity` initialised bytes that this value owns; a dangling start goes
        // with length 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.prefix_mut(self.len)
    }
}

impl Default for IoBuf {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for IoBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IoBuf")
            .field("len", &self.len)
            .field("dirty", &self.dirty)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zero_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 1 << 20] {
            let mut buffer = IoBuf::new(len);
            assert_eq!(buffer.len(), len);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            if len > 0 {
                assert_eq!(buffer.as_ptr().addr() % IO_ALIGNMENT, 0);
            }
        }
        assert_eq!(&*IoBuf::copy_of(b"abc"), b"abc");
    }

    #[test]
    fn the_length_moves_within_the_capacity() {
        let mut buffer = IoBuf::new(100);
        assert_eq!(buffer.capacity(), 4096);
        buffer.set_len(4096);
        assert_eq!(buffer.len(), 4096);
        buffer.set_len(3);
        assert_eq!(buffer.len(), 3);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn the_length_does_not_pass_the_capacity() {
        IoBuf::new(100).set_len(4097);
    }

    #[test]
    fn buffers_of_one_piece_do_not_overlap_and_outlive_each_other() {
        let mut buffers = IoBuf::many(5, 5000);
        for (index, buffer) in buffers.iter_mut().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == 0));
            assert_eq!(buffer.as_ptr().addr() % IO_ALIGNMENT, 0);
            buffer.set_len(8192);
            buffer.fill(index as u8 + 1);
        }
        let last = buffers.pop().unwrap();
        for (index, buffer) in buffers.iter().enumerate() {
            assert!(buffer.iter().all(|byte| *byte == index as u8 + 1));
        }
        drop(buffers);
        assert!(last.iter().all(|byte| *byte == 5));
        assert!(IoBuf::many(0, 100).is_empty());
        assert_eq!(IoBuf::many(3, 0).len(), 3);
    }

    #[test]
    fn what_is_known_to_be_zeros_is_not_cleared_and_the_rest_is() {
        let mut buffer = IoBuf::new(8192);
        buffer.prefix_mut(100).fill(7);
        assert_eq!(buffer.dirty_bytes(), 100);
        buffer.pad_zeros(100);
        assert_eq!(buffer.dirty_bytes(), 100);
        buffer.fill(9);
        assert_eq!(buffer.dirty_bytes(), 8192);
        buffer.set_len(1000);
        buffer.pad_zeros(10);
        assert!(buffer[10..].iter().all(|byte| *byte == 0));
        assert_eq!(
            buffer.dirty_bytes(),
            8192,
            "bytes past the length stay dirty"
        );
        buffer.set_len(8192);
        assert_eq!(buffer[1000], 9);
        buffer.pad_zeros(5);
        assert_eq!(buffer.dirty_bytes(), 5);
        assert_eq!(buffer[..5], [9; 5]);
        assert!(buffer[5..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn neighbours_are_joined_and_split_and_others_are_not() {
        let mut buffers = IoBuf::many(4, 4096);
        for (index, buffer) in buffers.iter_mut().enumerate() {
            buffer.prefix_mut(1000 + index).fill(index as u8 + 1);
        }
        let (fourth, third) = (buffers.pop().unwrap(), buffers.pop().unwrap());
        let (second, mut first) = (buffers.pop().unwrap(), buffers.pop().unwrap());
        let third = first.join(third).expect_err("the second one is between");
        let other = first.join(IoBuf::new(4096));
        other.expect_err("memory of its own");
        let empty = first.join(IoBuf::new(0));
        empty.expect_err("no memory at all");
        first.join(second).unwrap();
        assert_eq!((first.len(), first.capacity()), (4096, 8192));
        assert_eq!(first.dirty_bytes(), 4096 + 1001);
        first.join(third).unwrap();
        first.set_len(3 * 4096);
        for index in 0..3 {
            let part = &first[index * 4096..][..4096];
            assert!(
                part[..1000 + index]
                    .iter()
                    .all(|byte| *byte == index as u8 + 1)
            );
            assert!(part[1000 + index..].iter().all(|byte| *byte == 0));
        }
        first.fill(9);
        assert_eq!(fourth[0], 4, "a neighbour that was not joined");
        let mut second = first.split_off(4096);
        let third = second.split_off(4096);
        for part in [&first, &second, &third] {
            assert_eq!(
                (part.len(), part.capacity(), part.dirty_bytes()),
                (4096, 4096, 4096)
            );
            assert!(part.iter().all(|byte| *byte == 9));
        }
        drop((first, third));
        assert_eq!(second[4095], 9);
    }

    #[test]
    #[should_panic(expected = "not aligned")]
    fn a_buffer_is_not_split_where_a_device_could_not_read() {
        let _rest = IoBuf::new(8192).split_off(512);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Len(usize),
        Fill(usize, u8),
        FillAll(u8),
        Pad(usize),
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig {
            failure_persistence: None,
            ..proptest::prelude::ProptestConfig::with_cases(200)
        })]

        #[test]
        fn a_padded_buffer_equals_its_twin(
            steps in proptest::collection::vec(steps(), 1..30)
        ) {
            let mut buffer = IoBuf::new(4096);
            let mut twin = vec![0u8; 4096];
            for step in steps {
                let len = buffer.len();
                match step {
                    Step::Len(new) => buffer.set_len(new),
                    Step::Fill(count, byte) => {
                        buffer.prefix_mut(count.min(len)).fill(byte);
                        twin[..count.min(len)].fill(byte);
                    }
                    Step::FillAll(byte) => {
                        buffer.fill(byte);
                        twin[..len].fill(byte);
                    }
                    Step::Pad(from) => {
                        buffer.pad_zeros(from.min(len));
                        twin[from.min(len)..len].fill(0);
                    }
                }
                assert_eq!(buffer[..], twin[..buffer.len()]);
                assert!(twin[buffer.dirty_bytes()..].iter().all(|byte| *byte == 0));
            }
        }
    }

    fn steps() -> impl proptest::strategy::Strategy<Value = Step> {
        use proptest::prelude::*;
        prop_oneof![
            (0usize..=4096).prop_map(Step::Len),
            (0usize..=4096, 1u8..).prop_map(|(count, byte)| Step::Fill(count, byte)),
            (1u8..).prop_map(Step::FillAll),
            (0usize..=4096).prop_map(Step::Pad),
        ]
    }
}
