//! Leaves that lost most of their records, noted for the maintenance thread (decision 019).

use std::collections::VecDeque;

use pando_sync::Mutex;
use pando_sync::atomic::{AtomicUsize, Ordering};
use pando_tree::{LeafFill, Tree};

/// Underfull leaves that may wait.
const UNDERFULL_LEAVES_MAX: usize = 1 << 14;
/// So many wake the thread, if none of them is empty: merging them is not urgent, and a leaf whose
/// records come and go does not wake it each time.
const UNDERFULL_LEAVES_WAKE: usize = 32;

type Note = (Tree, Box<[u8]>);

/// Leaves that lost their last record, or most of them, by a key that they covered.
#[derive(Debug, Default)]
pub(crate) struct UnderfullLeaves {
    queue: Mutex<VecDeque<Note>>,
    /// Length of `queue`, which commits look at without the lock. Written under it.
    len: AtomicUsize,
}

impl UnderfullLeaves {
    fn change<T>(&self, change: impl FnOnce(&mut VecDeque<Note>) -> T) -> T {
        let mut queue = self.queue.lock();
        let done = change(&mut queue);
        self.len.store(queue.len(), Ordering::Relaxed);
        done
    }

    /// Notes a leaf; the caller is in the gate and waits for nothing. True if the maintenance
    /// thread should be woken.
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

    pub(crate) fn pop(&self) -> Option<Note> {
        self.change(VecDeque::pop_front)
    }

    pub(crate) fn put_back(&self, note: Note) {
        self.change(|queue| queue.push_front(note));
    }

    /// False when writers are to wait until the maintenance thread has caught up.
    pub(crate) fn has_room(&self) -> bool {
        // Relaxed: a bound that a few may pass.
        self.len.load(Ordering::Relaxed) < UNDERFULL_LEAVES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }
}
