//! When connections want to be woken: one time each, in the order of time.
//!
//! A time is set, changed and taken back in logarithmic time, so what is here is what somebody
//! still waits for: a connection that goes takes its time with it.

use std::collections::BTreeSet;

use pando_sync::time::Instant;

use crate::loop_handle::Token;

/// Times of the connections of one loop. Each connection knows its own.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    by_time: BTreeSet<(Instant, Token)>,
}

impl Timers {
    /// `token` wants to be woken at `wanted`, and no longer at `known`, which it is brought to.
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

    /// Takes out whoever is due at `now`; its connection knows no time then.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Token> {
        let first = self.by_time.first().filter(|(time, _)| *time <= now);
        let due = *first?;
        self.by_time.remove(&due);
        Some(due.1)
    }

    /// The next time.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// How many there are.
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
