//! Buffers of reads, which the thread keeps from one call to the next.

use std::cell::RefCell;

use pando_tree::ValueReader;

use crate::read::point::LendReader;

thread_local! {
    /// Buffers of point reads of this thread.
    static READ: RefCell<ReadBuffers> = RefCell::default();
    /// Buffer into which gets of futures copy values.
    static VALUE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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
        with_reader(f)
    }
}

/// Lends a buffer of this thread; another one if the call is nested.
pub(crate) fn with_value<R>(f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    let mut value = VALUE.take();
    let result = f(&mut value);
    VALUE.set(value);
    result
}

/// Lends the read buffers of this thread; None if the call is nested.
pub(crate) fn with_buffers<R>(f: impl FnOnce(Option<&mut ReadBuffers>) -> R) -> R {
    READ.with(|cell| match cell.try_borrow_mut() {
        Ok(mut buffers) => f(Some(&mut buffers)),
        Err(_) => f(None),
    })
}
