//! Buffers of reads, which the thread keeps from one call to the next. When it ends it may have
//! destroyed them before other things that it keeps, which may read in their destructors: all
//! thread-locals of this crate are asked whether they are there.

use std::cell::RefCell;

use pando_sync::thread::LocalKey;
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

/// Lends what `key` keeps of this thread; None if it is lent already, as to a call that this one is
/// nested in, or destroyed.
#[inline]
pub(crate) fn lend<T, R>(
    key: &'static LocalKey<RefCell<T>>,
    f: impl FnOnce(Option<&mut T>) -> R,
) -> R {
    let mut f = Some(f);
    let mut call = |kept: Option<&mut T>| f.take().map(|f| f(kept));
    let lent = key.try_with(|cell| match cell.try_borrow_mut() {
        Ok(mut kept) => call(Some(&mut kept)),
        Err(_) => call(None),
    });
    lent.unwrap_or_else(|_| call(None))
        .expect("it is called once: with what is kept, or without")
}

/// Lends the reader of this thread; a new one if there is none to lend.
pub(crate) fn with_reader<R>(f: impl FnOnce(&mut ValueReader) -> R) -> R {
    lend(&READ, |buffers| match buffers {
        Some(buffers) => f(&mut buffers.reader),
        // Called from within a closure of `get_with`.
        None => f(&mut ValueReader::new()),
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
    let mut value = VALUE.try_with(RefCell::take).unwrap_or_default();
    let result = f(&mut value);
    shorten(&mut value, KEPT_BYTES_MAX);
    let _ = VALUE.try_with(|cell| cell.replace(value));
    result
}

/// Lends the read buffers of this thread; None if there are none to lend.
pub(crate) fn with_buffers<R>(f: impl FnOnce(Option<&mut ReadBuffers>) -> R) -> R {
    lend(&READ, |buffers| match buffers {
        Some(buffers) => {
            let result = f(Some(buffers));
            shorten(&mut buffers.value, KEPT_BYTES_MAX);
            buffers.reader.shorten(KEPT_BYTES_MAX);
            result
        }
        None => f(None),
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
