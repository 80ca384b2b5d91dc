//! Commits that read what other threads have committed. They must have been able to run one after
//! the other in the order of their LSNs, and what a crash leaves must include everything that the
//! surviving commits have read.
//!
//! Each thread has one entry for this. Its value is the number of the commit that wrote it, and the
//! numbers that this commit has read from all threads, its own included.

use std::collections::BTreeSet;

use pando_sync::{park, thread_waker};
use pandodb::nonblocking::{Outcome, Pending, Polled, Reactor, ValidatedBatch};
use pandodb::{Db, Error, Table};

use crate::failure::{Result, fail};
use crate::state::{Place, State, shared_table};

/// Returns the place of the entry of thread `thread`.
pub fn place(thread: usize) -> Place {
    (shared_table(0), format!("order-{thread}").into_bytes())
}

/// A commit.
#[derive(Debug, Clone)]
pub struct Look {
    /// Its LSN.
    pub lsn: u64,
    /// The thread that made it.
    pub thread: usize,
    /// Its number; greater than that of any earlier commit of the thread.
    pub number: u64,
    /// The numbers that it has read, by thread; 0 if there was none.
    pub read: Vec<u64>,
}

impl Look {
    /// Returns the value that records this.
    pub fn value(number: u64, read: &[u64]) -> Vec<u8> {
        let numbers = [number].into_iter().chain(read.iter().copied());
        numbers.flat_map(u64::to_le_bytes).collect()
    }
}

fn numbers(value: &[u8]) -> Vec<u64> {
    let parts = value.as_chunks::<8>().0.iter();
    parts.map(|part| u64::from_le_bytes(*part)).collect()
}

/// Returns the number in a thread's entry; 0 if there is none.
fn number_in(state: Option<&State>, thread: usize) -> u64 {
    let value = state.and_then(|state| state.get(&place(thread)));
    value
        .and_then(|value| numbers(value).first().copied())
        .unwrap_or(0)
}

/// Checks that the commits could have run one after the other in the order of their LSNs, on top of
/// `initial`. `unknown` has the commits (thread and number) that ended with an error.
///
/// # Errors
/// A commit has read something that the order of LSNs excludes.
pub fn check_live(
    mut looks: Vec<Look>,
    initial: &[State],
    unknown: &BTreeSet<(usize, u64)>,
) -> Result<()> {
    looks.sort_unstable_by_key(|look| look.lsn);
    let threads = looks.iter().map(|look| look.read.len()).max().unwrap_or(0);
    let mut now: Vec<u64> = (0..threads)
        .map(|thread| number_in(initial.get(thread), thread))
        .collect();
    for pair in looks.windows(2) {
        if pair[0].lsn == pair[1].lsn {
            return fail(format!("two commits at LSN {}: {pair:?}", pair[0].lsn));
        }
    }
    for look in &looks {
        for (thread, (read, now)) in look.read.iter().zip(&now).enumerate() {
            if read != now && !unknown.contains(&(thread, *read)) {
                return fail(format!(
                    "{look:?} has read commit {read} of thread {thread}, and at its LSN {now} is \
                     the newest"
                ));
            }
        }
        now[look.thread] = look.number;
    }
    Ok(())
}

/// Checks that everything that the commits in `found`, by thread, have read exists, too.
///
/// # Errors
/// A commit exists without one that it has read.
pub fn check_found(found: &[State]) -> Result<()> {
    for (thread, state) in found.iter().enumerate() {
        let Some(value) = state.get(&place(thread)) else {
            continue;
        };
        for (of, read) in numbers(value).iter().skip(1).enumerate() {
            let there = number_in(found.get(of), of);
            if there < *read {
                return fail(format!(
                    "the commit of thread {thread} that is there has read commit {read} of thread \
                     {of}, and {there} is there"
                ));
            }
        }
    }
    Ok(())
}

/// What one thread needs to make such commits.
pub struct Seat {
    reactor: Reactor,
    transaction: ValidatedBatch,
}

/// How a commit has ended, and what it wrote if it got that far.
pub struct Tried {
    /// The value that it wrote, or may have written.
    pub value: Option<Vec<u8>>,
    /// Its LSN, and the numbers that it has read.
    pub end: pandodb::Result<(u64, Vec<u64>)>,
}

impl Seat {
    /// Creates it for the calling thread.
    ///
    /// # Errors
    /// The device has no channel to give.
    pub fn new(db: &Db) -> pandodb::Result<Self> {
        Ok(Self {
            reactor: Reactor::new(db, thread_waker())?,
            transaction: ValidatedBatch::new(db),
        })
    }

    /// Reads the entries of `threads` threads in `table`, and writes that of `thread`. Starts over
    /// after each conflict.
    pub fn commit(&mut self, table: &Table, threads: usize, thread: usize, number: u64) -> Tried {
        let mut value = None;
        let end = loop {
            match self.try_once(table, threads, thread, number, &mut value) {
                Ok(Some(end)) => break Ok(end),
                Ok(None) => {}
                Err(error) => break Err(error),
            }
        };
        Tried { value, end }
    }

    /// Returns `None` after a conflict.
    fn try_once(
        &mut self,
        table: &Table,
        threads: usize,
        thread: usize,
        number: u64,
        value: &mut Option<Vec<u8>>,
    ) -> pandodb::Result<Option<(u64, Vec<u64>)>> {
        *value = None;
        self.transaction.begin_again();
        let (mut read, mut found) = (Vec::new(), Vec::new());
        for of in 0..threads {
            loop {
                match self.transaction.get(table, &place(of).1, &mut found)? {
                    Polled::Ready(_) => break,
                    Polled::Pending(pending) => self.wait(pending)?,
                }
            }
            read.push(numbers(&found).first().copied().unwrap_or(0));
        }
        let new = Look::value(number, &read);
        self.transaction.put(table, &place(thread).1, &new)?;
        *value = Some(new);
        loop {
            match self.transaction.try_commit(&mut self.reactor) {
                Ok(Polled::Ready(Outcome::Committed(lsn))) => {
                    let lsn = lsn.expect("it has written");
                    self.transaction.reset();
                    return Ok(Some((lsn.0, read)));
                }
                Ok(Polled::Ready(Outcome::Conflict { .. })) => return Ok(None),
                Ok(Polled::Pending(pending)) => self.wait(pending)?,
                Err(error) => {
                    if matches!(error, Error::Full { .. }) {
                        *value = None;
                    }
                    return Err(error);
                }
            }
        }
    }

    fn wait(&mut self, pending: Pending) -> pandodb::Result<()> {
        self.reactor.park(pending, &thread_waker())?;
        self.reactor.flush();
        park();
        self.reactor.poll()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Effect;

    fn look(lsn: u64, thread: usize, number: u64, read: [u64; 2]) -> Look {
        Look {
            lsn,
            thread,
            number,
            read: read.to_vec(),
        }
    }

    #[test]
    fn an_order_that_is_not_serial_is_found() {
        let looks = vec![
            look(10, 0, 1, [0, 0]),
            look(30, 1, 2, [1, 1]),
            look(20, 1, 1, [1, 0]),
        ];
        check_live(looks.clone(), &[], &BTreeSet::new()).unwrap();
        let mut wrong = looks.clone();
        // The read misses a write with a smaller LSN.
        wrong[1].read[0] = 0;
        assert!(check_live(wrong, &[], &BTreeSet::new()).is_err());
        let mut wrong = looks.clone();
        wrong[2].lsn = 5;
        assert!(check_live(wrong, &[], &BTreeSet::new()).is_err());
        let mut twice = looks;
        twice[2].lsn = 10;
        assert!(check_live(twice, &[], &BTreeSet::new()).is_err());
    }

    #[test]
    fn who_reads_what_has_ended_with_an_error_is_right() {
        let looks = vec![look(10, 0, 1, [0, 7])];
        assert!(check_live(looks.clone(), &[], &BTreeSet::new()).is_err());
        check_live(looks, &[], &BTreeSet::from([(1, 7)])).unwrap();
    }

    #[test]
    fn a_commit_without_what_it_has_read_is_found() {
        let state = |thread: usize, number: u64, read: [u64; 2]| {
            let mut state = State::default();
            state.apply(&Effect::Put(place(thread), Look::value(number, &read)));
            state
        };
        check_found(&[state(0, 5, [4, 2]), state(1, 2, [0, 1])]).unwrap();
        assert!(check_found(&[state(0, 5, [4, 2]), state(1, 1, [0, 0])]).is_err());
        assert!(check_found(&[state(0, 5, [4, 2]), State::default()]).is_err());
    }
}
