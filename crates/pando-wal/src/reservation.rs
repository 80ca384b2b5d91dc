//! Reservations of room in the log, taken where waiting is allowed and spent where it is not.

use std::fmt;

use pando_sync::{Mutex, WaitList};

use crate::tail::Tail;

/// The tail with its lock, and the wait list for room in it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SharedTail {
    /// Its lock is held briefly, by every reservation and every append.
    pub(crate) tail: Mutex<Tail>,
    /// Wakers that wait for [`crate::Log::try_reserve`] to succeed.
    pub(crate) space: WaitList,
}

/// Room for one record in buffer and file, given back on drop.
pub struct LogReservation<'a> {
    shared: &'a SharedTail,
    /// Length of the record in bytes, 0 when spent.
    record: u64,
}

impl<'a> LogReservation<'a> {
    /// Makes the reservation of `record` bytes, which the caller has taken from the tail.
    pub(crate) fn new(shared: &'a SharedTail, record: u64) -> Self {
        debug_assert!(record > 0, "0 stands for a reservation that is spent");
        Self { shared, record }
    }

    /// Returns the length in bytes, header included, of the largest record that it covers.
    pub fn record_bytes(&self) -> u64 {
        self.record
    }

    /// Returns whether it belongs to the log with this tail.
    pub(crate) fn is_of(&self, shared: &SharedTail) -> bool {
        std::ptr::eq(self.shared, shared)
    }

    /// Spends the reservation and returns its bytes. The caller releases them in its own critical
    /// section under the tail's lock.
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
