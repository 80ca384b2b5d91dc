//! Which commands wait for the end of their round, to run with those of other connections
//! ([`super::round_run`]).

use crate::client::contended_keys::ContendedKey;
use crate::context::progress::Progress;

/// Maximum number of commands that wait for the end of a round.
const COMMANDS_MAX: usize = 64;
/// Number of keys that are remembered.
const KEYS: usize = 256;

/// A command that runs at the end of the round. Those of one key, and of these the same commands,
/// come one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Joined {
    pub(crate) key: ContendedKey,
    /// Number of the command in the index.
    pub(crate) id: usize,
}

/// Which commands of a loop run at the end of its round.
pub(crate) struct Joining {
    /// Number of further commands that may join; 0 while there is no other connection.
    room: usize,
    /// Keys that commands have named, each by its mark and with the last client that has.
    recent: [(u64, u64); KEYS],
    /// What the commands that run share.
    pub(super) progress: Box<Progress>,
}

impl Default for Joining {
    fn default() -> Self {
        Self {
            room: 0,
            recent: [(0, 0); KEYS],
            progress: Box::default(),
        }
    }
}

impl Joining {
    /// The next connection has its turn, and `joined` commands wait for the end of the round;
    /// `has_others`: there are other connections, or such commands.
    #[inline]
    pub(crate) fn open(&mut self, joined: usize, has_others: bool) {
        self.room = match has_others {
            true => COMMANDS_MAX.saturating_sub(joined),
            false => 0,
        };
    }

    /// Returns true if a command may join.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.room > 0
    }

    /// Notes that a command of a client names a key. Returns true if another client was the last to
    /// do so, as far as their marks tell.
    #[inline]
    pub(super) fn note(&mut self, key: &[u8], client: u64) -> bool {
        let mark = mark_of(key);
        let place = &mut self.recent[(mark >> 56) as usize % KEYS];
        let (last, by) = std::mem::replace(place, (mark, client));
        last == mark && by != client
    }
}

/// Returns a number of both ends of a key, with which most others have another one: for each
/// command that comes alone, so it must cost little.
#[inline]
fn mark_of(key: &[u8]) -> u64 {
    let end = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let ends = match key.len() {
        8.. => end(key.first_chunk()).rotate_left(29) ^ end(key.last_chunk()),
        _ => key.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    // The fractional part of the golden ratio: Knuth, The Art of Computer Programming, 6.4.
    (ends ^ key.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
