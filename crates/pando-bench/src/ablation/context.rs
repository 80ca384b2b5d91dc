//! The context of a read: its buffers, what the device reports, and times. It is built for each
//! read, or put back to its initial state.

use std::any::Any;
use std::collections::BTreeMap;
use std::hint::black_box;

use crate::error::{Error, Result};
use crate::kv::CallWay;
use crate::operations::Operations;
use crate::phase::{Calls, Done};
use pando_device::IoBuf;
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::time::Duration;
use pando_sync::{CoreLocal, Rank, RwLock};

/// Allocations of a context that is built: the page's buffer (memory, and the count of those that
/// have a part of it) and the space for what is decompressed.
const ALLOCATIONS: u64 = 3;

/// The context of one read.
#[derive(Debug)]
pub(super) struct Context {
    /// What the device reports, as keys and values. Nobody looks at it here; most devices report
    /// nothing.
    notes: RwLock<BTreeMap<String, String>>,
    attachment: Option<Box<dyn Any + Send + Sync>>,
    requests: u32,
    elapsed: Option<Duration>,
    page: IoBuf,
    decompressed: Vec<u8>,
}

/// Number of contexts that were built, and the time that took.
#[derive(Debug)]
pub(super) struct Built {
    count: CoreLocal<AtomicU64>,
}

impl Built {
    pub(super) fn new() -> Self {
        Self {
            count: CoreLocal::new("contexts built", |_| AtomicU64::new(0)),
        }
    }

    pub(super) fn contexts(&self) -> u64 {
        // Relaxed, here and below: a count that orders nothing.
        self.count
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    pub(super) fn allocations(&self) -> u64 {
        ALLOCATIONS * self.contexts()
    }
}

impl Context {
    pub(super) fn new(page_bytes: usize, built: &Built) -> Self {
        built.count.here().fetch_add(1, Ordering::Relaxed);
        Self {
            notes: RwLock::new(Rank::Leaf, BTreeMap::new()),
            attachment: None,
            requests: 0,
            elapsed: None,
            page: IoBuf::new(page_bytes),
            decompressed: Vec::with_capacity(page_bytes),
        }
    }

    /// Resets the context to its initial state, but keeps the memory of its buffers.
    pub(super) fn reset(&mut self) {
        if !self.notes.read().is_empty() {
            self.notes.write().clear();
        }
        self.attachment = None;
        self.requests = 0;
        self.elapsed = None;
        self.decompressed.clear();
        black_box(&self.page);
    }

    /// True if the context is in its initial state.
    pub(super) fn is_clean(&self) -> bool {
        let said_nothing = self.notes.read().is_empty() && self.attachment.is_none();
        said_nothing && self.requests == 0 && self.elapsed.is_none() && self.decompressed.is_empty()
    }
}

/// Calls that each have a context; the thread that writes meanwhile has none.
#[derive(Debug)]
pub(super) struct WithContext<'a> {
    /// True: the thread has one context and resets it. False: each call builds one.
    pub(super) is_reused: bool,
    pub(super) page_bytes: usize,
    pub(super) built: &'a Built,
}

impl CallWay for WithContext<'_> {
    type State = Option<Context>;

    fn call(
        &self,
        own: &mut Option<Context>,
        operations: &mut Operations<'_>,
        limit: u64,
    ) -> Result<Option<Done>> {
        if !operations.is_counted() {
            return operations.call(limit);
        }
        let kept = own.take().filter(|_| self.is_reused);
        let mut context = kept.unwrap_or_else(|| Context::new(self.page_bytes, self.built));
        context.reset();
        if !context.is_clean() {
            return Err(Error::Wrong {
                workload: "fetch",
                what: "a context was not clean".to_owned(),
            });
        }
        let done = operations.call(limit);
        if self.is_reused {
            *own = Some(context);
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_that_was_used_is_clean_after_a_reset() {
        let built = Built::new();
        let mut context = Context::new(4096, &built);
        assert!(context.is_clean());
        context
            .notes
            .write()
            .insert("server".to_owned(), "7".to_owned());
        context.attachment = Some(Box::new(7_u32));
        context.requests = 2;
        context.elapsed = Some(Duration::ZERO);
        context.decompressed.push(1);
        assert!(!context.is_clean());
        context.reset();
        assert!(context.is_clean());
        assert_eq!((built.contexts(), built.allocations()), (1, 3));
    }
}
