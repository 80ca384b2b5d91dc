//! A key that a command has to itself, since it has met many conflicts (decision 088).

use pando_sync::Arc;
use pando_sync::time::{Duration, Instant};

use crate::client::contended_keys::ContendedKey;
use crate::shared::Shared;

/// How long a command may have a key to itself. What takes longer goes on beside others, and
/// reserves the key anew after as many conflicts.
const RESERVED_MAX: Duration = Duration::from_secs(1);

/// A key that no other command begins to write, until this is dropped: at the end of the command,
/// or of its connection.
pub(crate) struct Reservation {
    shared: Arc<Shared>,
    key: ContendedKey,
    since: Instant,
}

impl Reservation {
    /// Stands for what `ContendedKeys::reserve` has begun at `now`.
    pub(super) fn new(shared: Arc<Shared>, key: ContendedKey, now: Instant) -> Self {
        Self {
            shared,
            key,
            since: now,
        }
    }

    /// Returns true if others have waited long enough.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= RESERVED_MAX
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let tell = |of| self.shared.tell_turn(of);
        self.shared.contended.end_reservation(self.key, tell);
    }
}
