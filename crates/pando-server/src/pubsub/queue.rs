//! Messages for one client, in their order.

use std::collections::VecDeque;

use pando_sync::Arc;

use super::message::{Delivery, MessageBytes};

/// So many places are counted at a time: publishers of all loops share the count.
const PLACES: usize = 16;
/// The memory of a place.
const PLACE_BYTES: u64 = size_of::<Delivery>() as u64;

/// A queue of messages. Counts the memory of its places while it exists, but for the first few:
/// most queues are short.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    deliveries: VecDeque<Delivery>,
    /// Number of places that are counted, behind the first [`PLACES`].
    counted: usize,
    /// Where they are.
    count: Option<Arc<MessageBytes>>,
}

impl Queue {
    pub(super) fn push(&mut self, delivery: Delivery) {
        if self.deliveries.len() >= self.counted + PLACES {
            let count = self.count.get_or_insert_with(|| delivery.message.count());
            count.add(PLACES as u64 * PLACE_BYTES);
            self.counted += PLACES;
        }
        self.deliveries.push_back(delivery);
    }

    /// Takes the oldest message.
    pub(crate) fn pop(&mut self) -> Option<Delivery> {
        self.deliveries.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.sub(self.counted as u64 * PLACE_BYTES);
        }
    }
}
