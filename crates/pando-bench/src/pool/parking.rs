//! Where an operation is kept while its page is being read.

use pando_format::cast::usize_of;
use pando_pool::LoadTicket;
use pando_sync::time::Instant;

/// An operation that waits.
#[derive(Debug)]
pub(crate) struct Parked {
    /// Takes the page when its read has ended.
    pub(crate) ticket: LoadTicket,
    /// When the operation began; its latency counts from here.
    pub(crate) begun: Instant,
}

/// Stores the waiting operations of one thread.
pub(crate) trait Park {
    /// Stores an operation; returns the tag that identifies it. There is room for as many
    /// operations as reads may be in flight.
    fn park(&mut self, parked: Parked) -> u64;

    /// Removes and returns the operation with this tag; once per tag.
    fn unpark(&mut self, tag: u64) -> Parked;

    /// Returns the number of parked operations.
    fn parked(&self) -> usize;

    /// Removes and returns all operations.
    fn take_all(&mut self) -> Vec<Parked>;
}

/// Like the engine: slots that are allocated once.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Vec<Option<Parked>>,
    free: Vec<usize>,
}

impl Slots {
    /// Makes room for `depth` operations, which never grows.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
        }
    }
}

impl Park for Slots {
    fn park(&mut self, parked: Parked) -> u64 {
        let tag = self
            .free
            .pop()
            .expect("there is a slot for each read in flight");
        self.slots[tag] = Some(parked);
        tag as u64
    }

    fn unpark(&mut self, tag: u64) -> Parked {
        let tag = usize_of(tag);
        let parked = self.slots[tag].take().expect("each tag completes once");
        self.free.push(tag);
        parked
    }

    fn parked(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn take_all(&mut self) -> Vec<Parked> {
        self.free = (0..self.slots.len()).rev().collect();
        self.slots.iter_mut().filter_map(Option::take).collect()
    }
}
