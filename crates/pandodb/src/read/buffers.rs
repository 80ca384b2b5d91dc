//! Buffers of reads, which the thread keeps from one call to the next.

use std::cell::RefCell;

use pando_tree::{KnownRank, ValueReader};

use crate::read::point::LendReader;

/// A buffer that is longer than this is given back to the allocator: each thread has its own, and
/// no budget counts them.
pub(crate) const KEPT_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Buffers of point reads of this thread.
    static READ: RefCell<ReadBuffers> = RefCell::default();
    /// Buffer into which gets of futures copy values.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// The rank that this thread has counted last, and in which engine.
    static RANK: RefCell<(u64, KnownRank)> = const { RefCell::new((0, KnownRank::none())) };
}

/// Empties `buffer`, and gives it back if it has become long.
pub(crate) fn shorten(buffer: &mut Vec<u8>, kept_bytes: usize) {
    buffer.clear();
    buffer.shrink_to(kept_bytes);
}

/// Buffers for a read that shows its value to a closure.
#[derive(Default)]
pub(crate) struct ReadBuffers {
    pub(crate) reader: ValueReader,
    pub(crate) value: Vec<u8>,
}

/// Lends the reader of this thread; a new one if the call is nested.
pub(crate) fn with_reader<R>(f: impl FnOnce(&mut ValueReader) -> R) -> R {
    READ.with(|cell| match cell.try_borrow_mut() {
        Ok(mut buffers) => f(&mut buffers.reader),
        // Called from within a closure of `get_with`.
        Err(_) => f(&mut ValueReader::new()),
    })
}

/// Lends by [`with_reader`].
pub(crate) struct OfThread;

impl LendReader for OfThread {
    fn lend<R>(self, f: impl FnOnce(&mut ValueReader) -> R) -> R {
        with_reader(|reader| {
            let result = f(reader);
            reader.shorten(KEPT_BYTES_MAX);
            result
        })
    }
}

/// Lends a buffer of this thread; another one if the call is nested.
pub(crate) fn with_value<R>(f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut value = VALUE.take();
    let result = f(&mut value);
    shorten(&mut value, KEPT_BYTES_MAX);
    VALUE.set(value);
    result
}

/// Lends the read buffers of this thread; None if the call is nested.
pub(crate) fn with_buffers<R>(f: impl FnOnce(Option<&mut ReadBuffers>) -> R) -> R {
    READ.with(|cell| match cell.try_borrow_mut() {
        Ok(mut buffers) => {
            let result = f(Some(&mut buffers));
            shorten(&mut buffers.value, KEPT_BYTES_MAX);
            buffers.reader.shorten(KEPT_BYTES_MAX);
            result
        }
        Err(_) => f(None),
    })
}

/// Lends the rank that this thread has kept of the engine with this number.
#[inline]
pub(crate) fn with_known_rank<R>(engine: u64, f: impl FnOnce(&mut KnownRank) -> R) -> R {
    RANK.with_borrow_mut(|(of, known)| {
        if *of != engine {
            (*of, *known) = (engine, KnownRank::none());
        }
        f(known)
    })
}
