//! How much may wait for a subscriber: `client-output-buffer-limit pubsub`.

use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Duration;

/// Memory for subscriptions, and for messages that wait, before the store is open.
const BYTES_MAX_AT_START: u64 = 4 * 1024 * 1024;

/// Limits of all subscribers. Relaxed throughout: none depends on another one.
#[derive(Debug)]
pub(crate) struct SubscriberLimits {
    /// Who has more bytes waiting is closed at once; 0: no limit.
    hard_bytes: AtomicU64,
    /// Who has more for longer than `soft_s` is closed; 0: no limit.
    soft_bytes: AtomicU64,
    soft_s: AtomicU64,
    /// Memory for the subscriptions of all clients together. When the messages that wait for them
    /// take as much again, who holds much of that is closed.
    bytes_max: AtomicU64,
}

impl Default for SubscriberLimits {
    fn default() -> Self {
        Self {
            hard_bytes: AtomicU64::new(32 << 20),
            soft_bytes: AtomicU64::new(8 << 20),
            soft_s: AtomicU64::new(60),
            bytes_max: AtomicU64::new(BYTES_MAX_AT_START),
        }
    }
}

impl SubscriberLimits {
    /// Returns the hard limit, the soft limit, and the seconds of the soft limit.
    pub(crate) fn get(&self) -> (u64, u64, u64) {
        (
            self.hard_bytes.load(Ordering::Relaxed),
            self.soft_bytes.load(Ordering::Relaxed),
            self.soft_s.load(Ordering::Relaxed),
        )
    }

    pub(crate) fn set(&self, hard_bytes: u64, soft_bytes: u64, soft_s: u64) {
        self.hard_bytes.store(hard_bytes, Ordering::Relaxed);
        self.soft_bytes.store(soft_bytes, Ordering::Relaxed);
        self.soft_s.store(soft_s, Ordering::Relaxed);
    }

    /// Returns the bytes from which on a client is closed.
    pub(crate) fn hard(&self) -> usize {
        match self.hard_bytes.load(Ordering::Relaxed) {
            0 => usize::MAX,
            bytes => usize::try_from(bytes).unwrap_or(usize::MAX),
        }
    }

    /// Returns true if `bytes` is more than the soft limit.
    pub(crate) fn is_over_soft(&self, bytes: usize) -> bool {
        let soft = self.soft_bytes.load(Ordering::Relaxed);
        soft > 0 && bytes as u64 > soft
    }

    /// Returns how long a client may be over the soft limit.
    pub(crate) fn soft_time(&self) -> Duration {
        Duration::from_secs(self.soft_s.load(Ordering::Relaxed))
    }

    /// Returns how much may wait in one mailbox while all messages that wait take `used` bytes.
    ///
    /// Once their memory is taken, it is a quarter of that: so one who does not read is closed, and
    /// not those who are a turn behind. The more they take beyond it, the less it is; at twice the
    /// memory it is nothing, so that many who hold little take no more.
    pub(crate) fn share(&self, used: u64) -> usize {
        let most = self.bytes_max();
        if used <= most {
            return usize::MAX;
        }
        let share = most.saturating_mul(2).saturating_sub(used) / 4;
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_a_mailbox_falls_from_a_quarter_to_nothing() {
        let limits = SubscriberLimits::default();
        limits.set_bytes_max(1000);
        let cases = [(0, usize::MAX), (1000, usize::MAX), (1004, 249)];
        let more = [(1600, 100), (2000, 0), (u64::MAX, 0)];
        for (used, share) in cases.into_iter().chain(more) {
            assert_eq!(limits.share(used), share, "{used}");
        }
    }
}
