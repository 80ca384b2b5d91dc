//! `pending`: where the state of an operation is kept while its page is read. The device does
//! nothing.
//!
//! The wrapper holds what a continuation needs beside the claim (a copy of a short key, what to do
//! at the end), so that boxing it is what boxing one for each read would be.

use pando_format::cast::usize_of;

use super::options::AblationOptions;
use super::rounds::{self, Variant};
use crate::error::Result;
use crate::phase::{self, Observer, Phase};
use crate::pool::null::NullChannel;
use crate::pool::pages::Pages;
use crate::pool::parking::{Park, Parked, Slots};
use crate::pool::pending::{Pending, PoolPlan};
use crate::pool::{PoolOptions, PoolWorkload};
use crate::record::Record;

/// Bytes of a key that a wrapper keeps.
const KEY_BYTES: usize = 32;
const WORKLOAD: &str = "pending";

/// The state that is made for a read.
#[derive(Debug)]
struct Wrapper {
    parked: Parked,
    key: [u8; KEY_BYTES],
}

/// What a read is completed through; behind a pointer to its methods, as a stored continuation is.
trait Complete: std::fmt::Debug + Send {
    fn complete(self: Box<Self>) -> Parked;
}

impl Complete for Wrapper {
    fn complete(self: Box<Self>) -> Parked {
        debug_assert_eq!(self.key, key_of(&self.parked));
        self.parked
    }
}

fn key_of(parked: &Parked) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&parked.ticket.page().0.to_be_bytes());
    key
}

/// Tags of as many places as reads may be in flight.
#[derive(Debug)]
struct Tags<T> {
    places: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Tags<T> {
    fn new(depth: usize) -> Self {
        Self {
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
        }
    }

    fn put(&mut self, value: T) -> u64 {
        let tag = self
            .free
            .pop()
            .expect("there is a place for each read in flight");
        self.places[tag] = Some(value);
        tag as u64
    }

    fn take(&mut self, tag: u64) -> T {
        let tag = usize_of(tag);
        let value = self.places[tag].take().expect("each tag completes once");
        self.free.push(tag);
        value
    }

    fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.free = (0..self.places.len()).rev().collect();
        self.places.iter_mut().filter_map(Option::take)
    }
}

/// Allocates a box for each read.
#[derive(Debug)]
struct Boxed(Tags<Box<dyn Complete>>);

impl Park for Boxed {
    fn park(&mut self, parked: Parked) -> u64 {
        let key = key_of(&parked);
        self.0.put(Box::new(Wrapper { parked, key }))
    }

    fn unpark(&mut self, tag: u64) -> Parked {
        self.0.take(tag).complete()
    }

    fn parked(&self) -> usize {
        self.0.len()
    }

    fn take_all(&mut self) -> Vec<Parked> {
        self.0.drain().map(Complete::complete).collect()
    }
}

/// Uses one wrapper again and again.
#[derive(Debug)]
struct Reused {
    parked: Option<Parked>,
    key: [u8; KEY_BYTES],
}

impl Reused {
    fn take(&mut self) -> Parked {
        let parked = self.parked.take().expect("it was filled when it was taken");
        debug_assert_eq!(self.key, key_of(&parked));
        parked
    }
}

/// Takes boxes from a pool, and returns them.
#[derive(Debug)]
#[expect(
    clippy::vec_box,
    reason = "the boxes are what a pool of wrappers keeps"
)]
struct Pooled {
    tags: Tags<Box<Reused>>,
    idle: Vec<Box<Reused>>,
}

impl Park for Pooled {
    fn park(&mut self, parked: Parked) -> u64 {
        let new = || {
            let (parked, key) = (None, [0; KEY_BYTES]);
            Box::new(Reused { parked, key })
        };
        let mut wrapper = self.idle.pop().unwrap_or_else(new);
        wrapper.key = key_of(&parked);
        wrapper.parked = Some(parked);
        self.tags.put(wrapper)
    }

    fn unpark(&mut self, tag: u64) -> Parked {
        let mut wrapper = self.tags.take(tag);
        let parked = wrapper.take();
        self.idle.push(wrapper);
        parked
    }

    fn parked(&self) -> usize {
        self.tags.len()
    }

    fn take_all(&mut self) -> Vec<Parked> {
        self.tags
            .drain()
            .map(|mut wrapper| wrapper.take())
            .collect()
    }
}

pub(super) fn run(options: &AblationOptions, observer: &mut dyn Observer) -> Result<()> {
    let below = PoolOptions {
        workloads: vec![PoolWorkload::Null],
        size_bytes: options.size_bytes,
        max_memory: options.max_memory,
        page_bytes: options.page_bytes,
        queue_depth: options.queue_depth,
        threads: options.threads(),
        ..PoolOptions::default()
    };
    let page_size = below.check()?;
    let pages = Pages::new(&below, page_size, PoolWorkload::Null, observer)?;
    let plan = PoolPlan {
        workload: PoolWorkload::Null,
        pages: &pages,
        pages_count: below.pages(),
        page_bytes: options.page_bytes,
        queue_depth: options.queue_depth,
        seed: options.seed,
    };
    let variants = [
        Variant::other("boxed", "a wrapper is allocated for each read"),
        Variant::other("pooled", "wrappers come from a pool and go back to it"),
        Variant::ours("slots that are made once"),
    ];
    let depth = options.queue_depth;
    let mut turn = |index: usize, observer: &mut dyn Observer| match index {
        0 => measure(options, &plan, || Boxed(Tags::new(depth)), 1.0, observer),
        1 => {
            let pooled = || Pooled {
                tags: Tags::new(depth),
                idle: Vec::with_capacity(depth),
            };
            measure(options, &plan, pooled, 0.0, observer)
        }
        _ => measure(options, &plan, || Slots::new(depth), 0.0, observer),
    };
    rounds::run(options, &variants, &mut turn, observer)
}

fn measure<P: Park>(
    options: &AblationOptions,
    plan: &PoolPlan<'_>,
    parking: impl Fn() -> P + Sync,
    allocations_per_op: f64,
    observer: &mut dyn Observer,
) -> Result<Record> {
    let phase = Phase {
        name: WORKLOAD,
        threads: options.threads(),
        beside: false,
        total: options.total(),
        duration: options.duration,
        warmup: options.warmup,
        interval: None,
        rate: None,
        call_ops: 1,
    };
    let depth = options.queue_depth;
    let make = |index| {
        let channel = NullChannel::new(depth);
        Ok(Pending::new(plan, channel, parking(), index))
    };
    let measured = phase::run(&phase, make, observer, &mut || ())?;
    let mut record = Record::new(WORKLOAD, "ours", options.threads(), options.seed);
    record.set_measured(&measured);
    record.io_backend = Some(PoolWorkload::Null.name().to_owned());
    record.queue_depth = Some(depth);
    record.page_size = Some(options.page_bytes);
    record.max_memory = Some(options.max_memory);
    record.size_bytes = Some(options.size_bytes);
    // By construction: the wrapper is all that a variant allocates.
    record.allocations_per_op = Some(allocations_per_op);
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::Tags;

    #[test]
    fn a_tag_finds_what_was_put_under_it() {
        let mut tags = Tags::new(3);
        let (a, b) = (tags.put('a'), tags.put('b'));
        assert_eq!((tags.take(a), tags.len()), ('a', 1));
        let c = tags.put('c');
        assert_eq!((tags.take(c), tags.take(b), tags.len()), ('c', 'b', 0));
        tags.put('d');
        assert_eq!(tags.drain().collect::<String>(), "d");
        assert_eq!(tags.len(), 0);
    }
}
