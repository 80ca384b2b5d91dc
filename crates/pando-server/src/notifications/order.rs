//! When events may be published: in the order of their commits, over all loops.
//!
//! A loop that is about to commit something with events *announces* that, with the newest LSN of
//! the log at that time, its *bound*; then it commits; and then it hands its events over, with the
//! LSN of the commit, or withdraws. Events of the commit L are published when no announcement has a
//! bound below L.
//!
//! **Events are published in the order of LSNs.** Let X be a commit with events, before L, that was
//! not handed over when somebody looks whether L may be published. X was announced before it had
//! its LSN, so its bound is below its LSN, which is below L. L was handed over after it had its
//! LSN, so X was announced by then, and it still is: so L waits. Whoever announces himself later
//! gets an LSN above L.
//!
//! **Nothing stays behind.** What is ready when an announcement ends is published by whoever ends
//! it, or by the one who is publishing at that moment: he looks again under the same lock before he
//! stops.
//!
//! A commit that waits withdraws, and announces itself again. One that an engine thread carries out
//! meanwhile cannot, for it may get its LSN at any time: it stays announced, but holds others back
//! only until their events take [`HELD_BYTES_MAX`]. A loop may stand still inside its commit, for a
//! page that it has to read: it holds others back until their events take [`STALLED_BYTES_MAX`].
//! What it hands over then comes behind them.

use std::collections::{BTreeMap, BTreeSet};

use pandodb::Lsn;

use super::recorded::Recorded;

/// Bytes of events for which a commit that an engine thread carries out is waited for.
const HELD_BYTES_MAX: usize = 4 << 20;
/// Bytes of events for which any commit is waited for.
const STALLED_BYTES_MAX: usize = 64 << 20;
/// Bytes of events that wait for the one who publishes before others wait for him.
const BEHIND_BYTES_MAX: usize = 64 << 10;
/// What the events of a commit take besides, about.
const BATCH_BYTES: usize = 64;

/// The events of a commit, and what it publishes.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) events: Recorded,
    /// They may be shown once this LSN is durable.
    pub(super) after: Option<Lsn>,
}

impl Batch {
    fn bytes(&self) -> usize {
        self.events.memory() + BATCH_BYTES
    }
}

/// An announcement: its bound, and its number.
pub(super) type Announced = (Lsn, u64);

/// Announcements, and events that wait for them.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Number of the next announcement, or of the next batch.
    next: u64,
    announced: BTreeSet<Announced>,
    /// Those of commits that engine threads carry out.
    elsewhere: BTreeSet<Announced>,
    /// By the LSN of their commits; what belongs to none is behind the commit with its LSN, in the
    /// order in which it came.
    waiting: BTreeMap<(Lsn, u64), Batch>,
    waiting_bytes: usize,
    /// Somebody publishes a batch.
    is_publishing: bool,
}

impl Order {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Announces a commit whose LSN will be above `bound`.
    pub(super) fn announce(&mut self, bound: Lsn) -> Announced {
        let announced = (bound, self.number());
        self.announced.insert(announced);
        announced
    }

    /// Notes that an engine thread carries the commit out.
    pub(super) fn goes_elsewhere(&mut self, announced: Announced) {
        self.announced.remove(&announced);
        self.elsewhere.insert(announced);
    }

    /// Ends an announcement.
    pub(super) fn withdraw(&mut self, announced: Announced) {
        self.announced.remove(&announced);
        self.elsewhere.remove(&announced);
    }

    /// Takes the events of the commit `lsn`.
    pub(super) fn hand_over(&mut self, lsn: Lsn, batch: Batch) {
        self.waiting_bytes += batch.bytes();
        // In front of what was told behind this commit before it was handed over itself.
        let former = self.waiting.insert((lsn, 0), batch);
        assert!(former.is_none(), "a commit has an LSN of its own");
    }

    /// Takes what belongs to no commit, and is told behind the commit `lsn`.
    pub(super) fn hand_over_behind(&mut self, lsn: Lsn, batch: Batch) {
        self.waiting_bytes += batch.bytes();
        let number = self.number();
        self.waiting.insert((lsn, number), batch);
    }

    /// Returns the lowest bound that holds events back.
    fn bound(&self) -> Option<Lsn> {
        let elsewhere = self.elsewhere.first();
        let elsewhere = elsewhere.filter(|_| self.waiting_bytes <= HELD_BYTES_MAX);
        let announced = self.announced.first();
        let announced = announced.filter(|_| self.waiting_bytes <= STALLED_BYTES_MAX);
        let all = announced.into_iter().chain(elsewhere);
        all.map(|(bound, _)| *bound).min()
    }

    /// Returns the next events to be published, after which the caller calls this again, as the one
    /// who publishes; `None` if nothing may be published by him.
    pub(super) fn next(&mut self, is_publisher: bool) -> Option<Batch> {
        if self.is_publishing && !is_publisher {
            return None;
        }
        let bound = self.bound();
        let first = self.waiting.first_entry();
        let ready = first.filter(|entry| bound.is_none_or(|bound| entry.key().0 <= bound));
        let batch = ready.map(std::collections::btree_map::OccupiedEntry::remove);
        self.is_publishing = batch.is_some();
        self.waiting_bytes -= batch.as_ref().map_or(0, Batch::bytes);
        batch
    }

    /// Returns true if so much waits for the one who publishes that nobody should add to it.
    pub(super) fn is_crowded(&self) -> bool {
        self.is_publishing && self.waiting_bytes > BEHIND_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::recorded::Told;

    fn batch(name: &'static str, key: &[u8]) -> Batch {
        let mut events = Recorded::default();
        events.add(0, key, name);
        Batch {
            events,
            after: None,
        }
    }

    /// Returns the key of its only event.
    fn key_of(batch: &Batch) -> &[u8] {
        let first = batch.events.iter().next();
        match first {
            Some(Told::Event { key, .. }) => key,
            told => panic!("no event: {told:?}"),
        }
    }

    /// A commit on its way, in steps that others may come between.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Step {
        Announce,
        Append,
        HandOver,
        Publish,
        Done,
    }

    /// Some commits at the same time, of loops that are at some step each.
    struct Loops {
        order: Order,
        steps: Vec<(Step, Option<Announced>, Lsn)>,
        newest: u64,
        published: Vec<u64>,
        publishing: Option<usize>,
    }

    const KEYS: [&[u8]; 8] = [b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7"];

    impl Loops {
        fn new(count: usize) -> Self {
            Self {
                order: Order::default(),
                steps: vec![(Step::Announce, None, Lsn(0)); count],
                newest: 0,
                published: Vec::new(),
                publishing: None,
            }
        }

        /// Lets a loop make its next step; `conflicts` if it withdraws instead of appending.
        fn step(&mut self, at: usize, conflicts: bool) {
            let (step, announced, lsn) = self.steps[at];
            self.steps[at] = match step {
                Step::Announce => {
                    let announced = self.order.announce(Lsn(self.newest));
                    (Step::Append, Some(announced), lsn)
                }
                Step::Append if conflicts => {
                    self.order.withdraw(announced.expect("it is announced"));
                    (Step::Publish, None, lsn)
                }
                Step::Append => {
                    self.newest += 1;
                    (Step::HandOver, announced, Lsn(self.newest))
                }
                Step::HandOver => {
                    self.order.withdraw(announced.expect("it is announced"));
                    let key = KEYS[usize::try_from(lsn.0).expect("they are few")];
                    self.order.hand_over(lsn, batch("set", key));
                    (Step::Publish, None, lsn)
                }
                Step::Publish => self.publish(at, lsn),
                Step::Done => unreachable!("it has ended"),
            };
        }

        /// Publishing a batch is a step of its own: what it shows is seen at its end.
        fn publish(&mut self, at: usize, lsn: Lsn) -> (Step, Option<Announced>, Lsn) {
            let is_publisher = self.publishing == Some(at);
            match self.order.next(is_publisher) {
                Some(batch) => {
                    assert!(is_publisher || self.publishing.is_none(), "one at a time");
                    self.publishing = Some(at);
                    self.published.push(u64::from(key_of(&batch)[0] - b'0'));
                    (Step::Publish, None, lsn)
                }
                None => {
                    if is_publisher {
                        self.publishing = None;
                    }
                    (Step::Done, None, lsn)
                }
            }
        }
    }

    /// Runs the loops in the order that the digits of `choice` say; returns how many choices there
    /// were at each step, so that all can be tried.
    fn run(count: usize, choices: &[usize], conflicts: usize) -> Vec<usize> {
        let mut loops = Loops::new(count);
        let mut made = Vec::new();
        loop {
            let live: Vec<usize> = (0..count)
                .filter(|at| loops.steps[*at].0 != Step::Done)
                .collect();
            if live.is_empty() {
                break;
            }
            let choice = choices.get(made.len()).copied().unwrap_or(0);
            made.push(live.len());
            let at = live[choice];
            loops.step(at, conflicts >> at & 1 == 1);
            let expected: Vec<u64> = (1..=loops.published.len() as u64).collect();
            assert_eq!(loops.published, expected, "{choices:?}");
        }
        let all = count - conflicts.count_ones() as usize;
        assert_eq!(
            loops.published.len(),
            all,
            "something stays behind: {choices:?}"
        );
        assert!(loops.order.waiting.is_empty() && loops.order.announced.is_empty());
        assert_eq!(loops.order.waiting_bytes, 0);
        made
    }

    /// Three loops that commit at once, in each order that their steps can have, each of them with
    /// or without a conflict.
    #[test]
    fn events_come_in_the_order_of_their_commits_in_all_interleavings() {
        let mut runs = 0_u64;
        for conflicts in 0..8 {
            let mut choices: Vec<usize> = Vec::new();
            loop {
                let made = run(3, &choices, conflicts);
                runs += 1;
                choices.resize(made.len(), 0);
                // The next one, as an odometer counts.
                let last = (0..made.len())
                    .rev()
                    .find(|at| choices[*at] + 1 < made[*at]);
                let Some(last) = last else { break };
                choices[last] += 1;
                choices.truncate(last + 1);
            }
        }
        assert!(runs > 10_000, "{runs}");
    }

    #[test]
    fn a_commit_that_stands_still_holds_back_only_so_much() {
        let mut order = Order::default();
        let stalled = order.announce(Lsn(0));
        let long = vec![b'k'; STALLED_BYTES_MAX / 2];
        order.hand_over(Lsn(1), batch("set", &long));
        assert!(order.next(false).is_none(), "it may be the commit before");
        order.hand_over(Lsn(2), batch("set", &long));
        assert!(order.next(false).is_some());
        assert!(order.next(true).is_none(), "no more than that");
        order.withdraw(stalled);
        assert!(order.next(false).is_some());
    }

    #[test]
    fn a_commit_elsewhere_holds_back_only_so_much() {
        let mut order = Order::default();
        let elsewhere = order.announce(Lsn(0));
        order.goes_elsewhere(elsewhere);
        order.hand_over(Lsn(1), batch("set", b"a"));
        assert!(order.next(false).is_none(), "it may be the commit before");
        let long = vec![b'k'; HELD_BYTES_MAX];
        order.hand_over(Lsn(2), batch("set", &long));
        let first = order.next(false).expect("too much waits");
        assert_eq!(key_of(&first), b"a");
        assert!(
            order.is_crowded() && order.next(false).is_none(),
            "somebody publishes"
        );
        assert!(order.next(true).is_some());
        order.hand_over(Lsn(3), batch("set", b"b"));
        assert!(order.next(true).is_none() && !order.is_crowded());
        order.withdraw(elsewhere);
        assert!(order.next(false).is_some());
        assert!(order.next(true).is_none());
    }
}
