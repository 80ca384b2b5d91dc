//! A key that a command has to itself, since it has met many conflicts (decision 088).

use pando_sync::Arc;
use pando_sync::time::{Duration, Instant, now};

use crate::client::contended_keys::{ContendedKey, Reserved};
use crate::shared::Shared;

/// How long a command may have a key to itself, at first. What takes longer goes on beside others,
/// and reserves the key anew after as many conflicts, or after the first change that has it begin
/// anew.
const RESERVED_MAX: Duration = Duration::from_secs(1);
/// How many times as long it has it the next time, and how often that grows.
const FACTOR: u32 = 4;
const GROWTH_MAX: u32 = 3;

/// A key that no other command begins to write, until this is dropped: at the end of the command,
/// or of its connection.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    key: ContendedKey,
    reserved: Reserved,
    until: Instant,
}

impl Reservation {
    /// Reserves a key; `None` if another command has it, or if its place is taken. A command that
    /// was not done in the time of `before` reservations gets that much more.
    pub(super) fn begin(shared: &Arc<Shared>, key: ContendedKey, before: u32) -> Option<Self> {
        // Not from the clock of a turn, which is that of its beginning: the runs that met the
        // conflicts may have taken longer than a reservation lasts.
        let until = now() + RESERVED_MAX * FACTOR.pow(before.min(GROWTH_MAX));
        let reserved = shared.contended.reserve(key, until)?;
        Some(Self {
            shared: shared.clone(),
            key,
            reserved,
            until,
        })
    }

    /// Returns true if others have waited long enough.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let tell = |of| self.shared.tell_turn(of);
        (self.shared.contended).end_reservation(self.key, self.reserved, tell);
    }
}
