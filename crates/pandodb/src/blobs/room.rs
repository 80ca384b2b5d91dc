//! Room for buffers of chunks: as many large values as fit into a share of the memory budget are on
//! their way at the same time; the others wait for their turn, in the order of their arrival
//! (decision 045).
//!
//! Values on their way in and values on their way out have separate rooms, so that clients that do
//! not read never delay those that write. Blocking calls have one buffer per thread; it is counted,
//! but waits for nobody.

use std::collections::BTreeMap;
use std::task::Waker;

use pando_sync::{Arc, Mutex};

/// Fraction of the memory budget for the buffers of one direction.
const SHARE: u64 = 32;

/// The room of one direction: see the module.
#[derive(Debug)]
pub(crate) struct ChunkRoom {
    bytes_max: u64,
    state: Mutex<RoomState>,
}

/// Guarded by `ChunkRoom::state`.
#[derive(Debug, Default)]
struct RoomState {
    /// Bytes of the buffers whose turn it is.
    used: u64,
    /// Bytes of the buffers that do not wait.
    beside: u64,
    /// Number of the next turn.
    next: u64,
    /// Turns that wait, by number.
    waiting: BTreeMap<u64, RoomWaiter>,
}

#[derive(Debug)]
struct RoomWaiter {
    bytes: u64,
    waker: Waker,
}

impl RoomState {
    /// Admits waiting turns from the first on, as long as they fit, and returns their wakers. If
    /// nobody else has a turn, the first is admitted whatever the size of its buffer.
    fn admit(&mut self, bytes_max: u64) -> Vec<Waker> {
        let mut admitted = Vec::new();
        while let Some(first) = self.waiting.first_entry() {
            let bytes = first.get().bytes;
            if self.used > 0 && self.used + bytes > bytes_max {
                break;
            }
            self.used += bytes;
            admitted.push(first.remove().waker);
        }
        admitted
    }
}

/// A place in the queue, and later in the room; given back on drop.
#[derive(Debug)]
pub(crate) struct ChunkTurn {
    room: Arc<ChunkRoom>,
    bytes: u64,
    /// `None` if it does not wait.
    number: Option<u64>,
}

impl ChunkRoom {
    /// Makes the room of one direction, for a store with `max_memory`.
    pub(crate) fn new(max_memory: u64) -> Arc<Self> {
        Arc::new(Self {
            bytes_max: max_memory / SHARE,
            state: Mutex::default(),
        })
    }

    /// Asks for a buffer of `bytes` bytes; [`ChunkTurn::poll`] says when it may be made.
    pub(crate) fn ask(this: &Arc<Self>, bytes: u64, waker: &Waker) -> ChunkTurn {
        let mut state = this.state.lock();
        let number = state.next;
        state.next += 1;
        let waker = waker.clone();
        state.waiting.insert(number, RoomWaiter { bytes, waker });
        // This may call its own waker, which costs one spurious wake-up.
        let admitted = state.admit(this.bytes_max);
        drop(state);
        admitted.into_iter().for_each(Waker::wake);
        ChunkTurn {
            room: this.clone(),
            bytes,
            number: Some(number),
        }
    }

    /// Counts a buffer of `bytes` bytes of a blocking call.
    pub(crate) fn count(this: &Arc<Self>, bytes: u64) -> ChunkTurn {
        this.state.lock().beside += bytes;
        ChunkTurn {
            room: this.clone(),
            bytes,
            number: None,
        }
    }

    /// Most bytes for the buffers that wait for their turn.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes of all buffers.
    pub(crate) fn used_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.used + state.beside
    }
}

impl ChunkTurn {
    /// Returns true once the buffer may be made; until then `waker` is woken when it may.
    pub(crate) fn poll(&self, waker: &Waker) -> bool {
        let Some(number) = self.number else {
            return true;
        };
        let mut state = self.room.state.lock();
        match state.waiting.get_mut(&number) {
            None => true,
            Some(waiting) => {
                waiting.waker.clone_from(waker);
                false
            }
        }
    }
}

impl Drop for ChunkTurn {
    fn drop(&mut self) {
        let mut state = self.room.state.lock();
        let taken = match self.number {
            None => Some(&mut state.beside),
            Some(number) if state.waiting.remove(&number).is_none() => Some(&mut state.used),
            Some(_) => None,
        };
        if let Some(taken) = taken {
            assert!(*taken >= self.bytes, "a turn is given back once");
            *taken -= self.bytes;
        }
        let admitted = state.admit(self.room.bytes_max);
        drop(state);
        admitted.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use std::task::Wake;

    use pando_sync::WakerArc;
    use pando_sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Calls(AtomicU64);

    impl Wake for Calls {
        fn wake(self: WakerArc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests for chunk buffers are granted in order, as others are given back.
    #[test]
    fn turns_come_in_order_and_go_on_when_one_ends() {
        let room = ChunkRoom::new(SHARE * 100);
        let calls: Vec<_> = (0..5).map(|_| WakerArc::new(Calls::default())).collect();
        let ask = |at: usize, bytes| ChunkRoom::ask(&room, bytes, &Waker::from(calls[at].clone()));
        let called = |at: usize| calls[at].0.load(Ordering::Relaxed);
        let first = ask(0, 60);
        let second = ask(1, 40);
        assert!(first.poll(Waker::noop()) && second.poll(Waker::noop()));
        let third = ask(2, 50);
        // This request would fit, but it comes after one that does not.
        let fourth = ask(3, 0);
        assert!(!third.poll(&Waker::from(calls[2].clone())));
        assert_eq!((room.used_bytes(), called(2), called(3)), (100, 0, 0));
        drop(second);
        assert_eq!((room.used_bytes(), called(2)), (60, 0));
        drop(first);
        assert_eq!((room.used_bytes(), called(2), called(3)), (50, 1, 1));
        assert!(third.poll(Waker::noop()) && fourth.poll(Waker::noop()));
        // No request waits for one that was given up.
        let fifth = ask(4, 90);
        let sixth = ask(0, 10);
        assert!(!fifth.poll(Waker::noop()) && !sixth.poll(Waker::noop()));
        drop(fifth);
        assert!(sixth.poll(Waker::noop()));
        drop((third, fourth, sixth));
        assert_eq!(room.used_bytes(), 0);
    }

    /// A request that exceeds all room is granted once no other request holds room. Blocking calls
    /// are counted, but never wait.
    #[test]
    fn one_alone_has_its_turn_whatever_it_needs_and_blocking_calls_do_not_wait() {
        let room = ChunkRoom::new(SHARE * 100);
        let blocking = ChunkRoom::count(&room, 1000);
        assert!(blocking.poll(Waker::noop()));
        let large = ChunkRoom::ask(&room, 500, Waker::noop());
        let small = ChunkRoom::ask(&room, 1, Waker::noop());
        assert!(large.poll(Waker::noop()) && !small.poll(Waker::noop()));
        assert_eq!(room.used_bytes(), 1500);
        drop(large);
        assert!(small.poll(Waker::noop()));
        drop((blocking, small));
        assert_eq!(room.used_bytes(), 0);
    }
}
