//! Leaves that lost most of their records, queued for the maintenance thread (decision 019).

use std::collections::VecDeque;

use pando_sync::Mutex;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_tree::{LeafFill, Tree};

/// Number of queued leaves from which on writers wait.
const UNDERFULL_LEAVES_MAX: usize = 1 << 14;
/// Number of queued leaves that wakes the thread if none of them is empty. Merging is not urgent,
/// and a leaf whose records come and go should not wake the thread each time.
const UNDERFULL_LEAVES_WAKE: usize = 32;

/// A leaf: its tree, and a key that it covers.
type Note = (Tree, Box<[u8]>);

/// Queue of leaves that lost their last record, or most of their records.
#[derive(Debug, Default)]
pub(crate) struct UnderfullLeaves {
    /// Oldest first.
    queue: Mutex<VecDeque<Note>>,
    /// Length of `queue`, which commits read without the lock. Written under it.
    len: AtomicUsize,
}

impl UnderfullLeaves {
    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Note>) -> T) -> T {
        let mut queue = self.queue.lock();
        let done = change(&mut queue);
        self.len.store(queue.len(), Ordering::Relaxed);
        done
    }

    /// Queues a leaf; the caller is inside the gate, so this does not wait for room. Returns true
    /// if the maintenance thread should be woken.
    #[must_use]
    pub(crate) fn push(&self, tree: Tree, key: &[u8], fill: LeafFill) -> bool {
        self.change(|queue| {
            let newest = queue.back();
            if newest.is_none_or(|(noted, at)| *noted != tree || **at != *key) {
                queue.push_back((tree, Box::from(key)));
            }
            fill == LeafFill::Empty || queue.len() >= UNDERFULL_LEAVES_WAKE
        })
    }

    /// Takes the oldest leaf.
    pub(crate) fn pop(&self) -> Option<Note> {
        self.change(VecDeque::pop_front)
    }

    /// Returns a leaf that was taken, as the oldest.
    pub(crate) fn put_back(&self, note: Note) {
        self.change(|queue| queue.push_front(note));
    }

    /// False if writers should wait until the maintenance thread has caught up.
    pub(crate) fn has_room(&self) -> bool {
        // Relaxed: a few writers may exceed the limit.
        self.len.load(Ordering::Relaxed) < UNDERFULL_LEAVES_MAX
    }

    /// True if no leaf is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
}
