//! Leaves that lost most of their records, queued for the maintenance thread (decision 019).

use std::collections::VecDeque;

use pando_sync::Mutex;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_sync::time::{Duration, Instant, now};
use pando_tree::{LeafFill, Tree};

/// Number of queued leaves from which on writers wait.
const UNDERFULL_LEAVES_MAX: usize = 1 << 14;
/// Number of queued leaves that are looked at without waiting for more.
const GATHERED: usize = 32;
/// How long fewer leaves wait for others: to wake the thread costs a commit more than the note.
const GATHERING: Duration = Duration::from_millis(20);

/// A leaf: its tree, and a key that it covers.
type Note = (Tree, Box<[u8]>);

/// Queue of leaves that lost their last record, or most of their records.
#[derive(Debug, Default)]
pub(crate) struct UnderfullLeaves {
    queue: Mutex<Queue>,
    /// Number of notes in `queue`, which commits read without the lock. Written under it.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queue {
    /// Oldest first.
    notes: VecDeque<Note>,
    /// When the first note came after there was none.
    since: Option<Instant>,
    /// An empty leaf has woken the thread since then.
    is_told: bool,
    /// A scan has met an empty leaf since then: they are looked at without waiting for more.
    is_urgent: bool,
    /// The thread looks at notes that it has taken.
    is_worked_on: bool,
}

impl UnderfullLeaves {
    fn change<T>(&self, change: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock();
        let done = change(&mut queue);
        self.len.store(queue.notes.len(), Ordering::Relaxed);
        done
    }

    /// Queues a leaf; the caller is inside the gate, so this does not wait for room. Returns true
    /// if the maintenance thread should be woken: for the first empty leaf, so that it knows when
    /// to look, and when enough have come. Merging is not urgent, and a leaf whose records come and
    /// go should not wake the thread each time.
    #[must_use]
    pub(crate) fn push(&self, tree: Tree, key: &[u8], fill: LeafFill) -> bool {
        self.change(|queue| {
            let newest = queue.notes.back();
            if newest.is_none() {
                (queue.since, queue.is_told, queue.is_urgent) = (Some(now()), false, false);
            }
            let is_new = newest.is_none_or(|(noted, at)| *noted != tree || **at != *key);
            if is_new {
                queue.notes.push_back((tree, Box::from(key)));
            }
            let tells = fill == LeafFill::Empty && !queue.is_told;
            queue.is_told |= tells;
            tells || is_new && queue.notes.len() == GATHERED
        })
    }

    /// Has the queue looked at now, since a scan has met a leaf without records: whoever takes
    /// entries from one end of a tree passes over all of them each time. If none is queued, this
    /// one is: it may have become empty before a crash, and nobody has noted it then. Returns true
    /// if the maintenance thread should be woken.
    #[must_use]
    #[cold]
    pub(crate) fn meet(&self, tree: Tree, key: &[u8]) -> bool {
        // Relaxed: the queue may change at once.
        if self.len.load(Ordering::Relaxed) == 0 {
            let _of_many = self.push(tree, key, LeafFill::Empty);
        }
        self.change(|queue| !std::mem::replace(&mut queue.is_urgent, true))
    }

    /// Takes the oldest leaf; who has looked at what was taken says so ([`UnderfullLeaves::rest`]).
    pub(crate) fn pop(&self) -> Option<Note> {
        self.change(|queue| {
            let note = queue.notes.pop_front();
            queue.is_worked_on |= note.is_some();
            note
        })
    }

    /// What was taken was looked at.
    pub(crate) fn rest(&self) {
        self.queue.lock().is_worked_on = false;
    }

    /// Returns a leaf that was taken, as the oldest.
    pub(crate) fn put_back(&self, note: Note) {
        self.change(|queue| queue.notes.push_front(note));
    }

    /// False if writers should wait until the maintenance thread has caught up.
    pub(crate) fn has_room(&self) -> bool {
        // Relaxed: a few writers may exceed the limit.
        self.len.load(Ordering::Relaxed) < UNDERFULL_LEAVES_MAX
    }

    /// Returns true while the thread looks at leaves, or will soon, since it knows of some.
    pub(crate) fn is_looked_at(&self) -> bool {
        let queue = self.queue.lock();
        let some = queue.notes.len();
        let is_known = queue.is_told || queue.is_urgent;
        queue.is_worked_on || some >= GATHERED || some > 0 && is_known
    }

    /// Returns how long the thread may wait for more leaves before it looks at those that are
    /// queued; `None` if none are.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let queue = self.queue.lock();
        match queue.notes.len() {
            0 => None,
            GATHERED.. => Some(Duration::ZERO),
            _ if queue.is_urgent => Some(Duration::ZERO),
            _ => {
                let age = queue.since.map(|since| now().duration_since(since));
                Some(GATHERING.saturating_sub(age.unwrap_or(GATHERING)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_format::{PageId, TreeId};

    use super::*;

    fn tree() -> Tree {
        Tree {
            id: TreeId(7),
            root: PageId(1),
        }
    }

    /// Two wakes for a batch: one for its beginning, and one for its end. All are taken at once.
    #[test]
    fn one_wake_serves_many_leaves() {
        let leaves = UnderfullLeaves::default();
        assert_eq!(leaves.due_in(), None);
        for round in 0..3 {
            let note = |number: u32, fill| leaves.push(tree(), &number.to_be_bytes(), fill);
            assert!(!note(0, LeafFill::Underfull), "merging can wait");
            assert!(!leaves.is_looked_at());
            let woken: Vec<u32> = (1..100)
                .filter(|number| note(*number, LeafFill::Empty))
                .collect();
            assert_eq!(woken, [1, 31], "round {round}");
            assert!(leaves.is_looked_at());
            assert_eq!(leaves.due_in(), Some(Duration::ZERO));
            for number in 0..100_u32 {
                let (_, key) = leaves.pop().expect("a note");
                assert_eq!(*key, number.to_be_bytes());
            }
            assert_eq!((leaves.pop(), leaves.due_in()), (None, None));
            assert!(leaves.is_looked_at());
            leaves.rest();
            assert!(!leaves.is_looked_at());
        }
    }

    #[test]
    fn a_few_leaves_wait_for_a_bounded_time() {
        let leaves = UnderfullLeaves::default();
        let begun = now();
        assert!(leaves.push(tree(), b"a", LeafFill::Empty));
        let mut wait = leaves.due_in();
        while let Some(left) = wait.filter(|left| !left.is_zero()) {
            assert!(left <= GATHERING);
            // A note that repeats the newest one, or comes later, makes it no longer.
            assert!(!leaves.push(tree(), b"a", LeafFill::Empty));
            pando_sync::thread::sleep(Duration::from_millis(1));
            let next = leaves.due_in();
            assert!(next < wait, "{next:?} behind {wait:?}");
            wait = next;
        }
        assert!(now().duration_since(begun) >= GATHERING);
        // What could not be done now is not begun anew.
        let note = leaves.pop().unwrap();
        leaves.put_back(note);
        assert_eq!(leaves.due_in(), Some(Duration::ZERO));
    }

    /// One that a scan has met does not wait for others, nor do those before it; who comes later
    /// does.
    #[test]
    fn a_leaf_that_was_met_does_not_wait() {
        let leaves = UnderfullLeaves::default();
        assert!(leaves.push(tree(), b"a", LeafFill::Empty));
        assert_ne!(leaves.due_in(), Some(Duration::ZERO));
        assert!(leaves.meet(tree(), b"a"));
        assert_eq!(leaves.due_in(), Some(Duration::ZERO));
        assert!(leaves.is_looked_at());
        assert!(!leaves.meet(tree(), b"b"), "the thread knows");
        while leaves.pop().is_some() {}
        leaves.rest();
        // One that nobody knew of.
        assert!(leaves.meet(tree(), b"c"));
        assert_eq!(leaves.due_in(), Some(Duration::ZERO));
        assert!(leaves.pop().is_some());
        leaves.rest();
        assert!(leaves.push(tree(), b"d", LeafFill::Empty));
        assert_ne!(leaves.due_in(), Some(Duration::ZERO));
    }
}
