//! A reservation of room in the log, taken where waiting is allowed and spent where it is not.

use std::fmt;

use pando_sync::{Mutex, WaitList};

use crate::tail::Tail;

/// The tail behind its lock, and those that wait for room in it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SharedTail {
    pub(crate) tail: Mutex<Tail>,
    pub(crate) space: WaitList,
}

/// Room for one record in buffer and file. Given back when dropped.
pub struct LogReservation<'a> {
    shared: &'a SharedTail,
    /// Bytes of the record; 0 when spent.
    record: u64,
}

impl<'a> LogReservation<'a> {
    /// The caller has reserved `record` bytes.
    pub(crate) fn new(shared: &'a SharedTail, record: u64) -> Self {
        debug_assert!(record > 0, "0 stands for a reservation that is spent");
        Self { shared, record }
    }

    /// Largest record that it pays for, in bytes of the log.
    pub fn record_bytes(&self) -> u64 {
        self.record
    }

    /// True if it belongs to the log with this tail.
    pub(crate) fn is_of(&self, shared: &SharedTail) -> bool {
        std::ptr::eq(self.shared, shared)
    }

    /// The caller releases the bytes in its own apply section under the lock.
    pub(crate) fn spend(mut self) -> u64 {
        std::mem::take(&mut self.record)
    }
}

impl Drop for LogReservation<'_> {
    fn drop(&mut self) {
        if self.record != 0 {
            self.shared.tail.lock().release(self.record);
            self.shared.space.notify_all();
        }
    }
}

impl fmt::Debug for LogReservation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReservation")
            .field("record", &self.record)
            .finish_non_exhaustive()
    }
}
