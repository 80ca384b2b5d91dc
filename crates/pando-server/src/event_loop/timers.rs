//! Wake-up times of connections: at most one per connection, ordered by time.
//!
//! A time is set, changed and removed in logarithmic time, so that the set holds nothing stale: a
//! connection that is closed removes its time.

use std::collections::BTreeSet;

use pando_sync::time::Instant;

use crate::loop_handle::Token;

/// Wake-up times of the connections of one loop. Each connection stores its own, too.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Instant, Token)>,
}

impl Timers {
    /// Replaces the time `known` of `token` by `wanted`, and sets `known` to it.
    pub(crate) fn set(
        &mut self,
        token: Token,
        known: &mut Option<Instant>,
        wanted: Option<Instant>,
    ) {
        if *known == wanted {
            return;
        }
        if let Some(time) = known.take() {
            let was_there = self.by_time.remove(&(time, token));
            assert!(was_there, "a known time is here until it is due");
        }
        if let Some(time) = wanted {
            self.by_time.insert((time, token));
        }
        *known = wanted;
    }

    /// Removes and returns a token that is due at `now`; the caller clears the time in its
    /// connection.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Token> {
        let first = self.by_time.first().filter(|(time, _)| *time <= now);
        let due = *first?;
        self.by_time.remove(&due);
        Some(due.1)
    }

    /// Returns the earliest time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Returns the number of timers.
    pub(crate) fn len(&self) -> usize {
        self.by_time.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_sync::time::{Duration, now};

    fn token(index: u32) -> Token {
        Token::Connection {
            index,
            generation: 7,
        }
    }

    #[test]
    fn what_is_set_again_or_taken_back_is_not_due_any_more() {
        let mut timers = Timers::default();
        let start = now();
        let at = |ms| Some(start + Duration::from_millis(ms));
        let mut known = [None; 3];
        timers.set(token(0), &mut known[0], at(30));
        timers.set(token(1), &mut known[1], at(10));
        timers.set(token(2), &mut known[2], at(10));
        timers.set(token(0), &mut known[0], at(20));
        assert_eq!((timers.len(), timers.next()), (3, at(10)));
        timers.set(token(1), &mut known[1], None);
        assert_eq!(known, [at(20), None, at(10)]);
        assert_eq!(timers.pop_due(start), None);
        let late = start + Duration::from_secs(1);
        assert_eq!(timers.pop_due(late), Some(token(2)));
        assert_eq!(timers.pop_due(late), Some(token(0)));
        assert_eq!((timers.pop_due(late), timers.len()), (None, 0));
    }
}
