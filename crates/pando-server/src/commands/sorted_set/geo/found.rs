//! What a search has found, in memory.

use std::ops::Range;

use super::super::bounds::Bounds;
use super::super::order::SortedSet;
use crate::context::{Context, Near, Run, replies};
use crate::data::near_walk::NearMember;
use crate::data::shape::{Around, Order};
use crate::data::tree_head::TreeHead;

/// A member that was found.
pub(super) struct Match {
    pub(super) distance: f64,
    pub(super) score: f64,
    name: Vec<u8>,
}

/// Bytes that a match takes besides those of its member.
const MATCH_BYTES: usize = size_of::<Match>();

impl Match {
    pub(super) fn member(&self) -> NearMember<'_> {
        NearMember {
            distance: self.distance,
            score: self.score,
            name: &self.name,
        }
    }
}

/// What is found, and where it is looked for.
pub(super) struct Found {
    bytes_max: usize,
    around: Around,
    bytes: usize,
    list: Vec<Match>,
}

impl Found {
    pub(super) fn new(context: &Context<'_>, around: Around) -> Self {
        Self {
            bytes_max: context.engine().reply_bytes_max,
            around,
            bytes: 0,
            list: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Looks at a sorted set that is in memory.
    pub(super) fn look(&mut self, set: &SortedSet, ranges: &[Range<u64>]) -> Run {
        for range in ranges {
            let ranks = Bounds::of_whole_scores(range.clone()).ranks(set, false);
            ranks
                .map(|rank| set.element(rank))
                .try_for_each(|of| self.take(of))?;
        }
        Ok(())
    }

    /// Looks at the large sorted set with this head, which was read last. What it has is read
    /// before any of it is compared again, so that a run which goes on after a wait does nothing
    /// twice.
    pub(super) fn look_at_large(
        &mut self,
        context: &mut Context<'_>,
        (head, ranges): (TreeHead, &[Range<u64>]),
    ) -> Run {
        let (mut near, mut count) = (Vec::new(), 0);
        for range in ranges {
            let around = Around {
                enough: self.around.enough - count,
                ..self.around
            };
            if around.enough == 0 {
                break;
            }
            let scores = range.start as f64..range.end as f64;
            let found = context.near(head, scores, around)?;
            count += found.len();
            near.push(found);
        }
        let mut members = near.iter().flat_map(Near::members);
        members.try_for_each(|member| self.take(member?))
    }

    /// Takes a member if it lies in the shape, and it is not enough.
    fn take(&mut self, (score, name): (f64, &[u8])) -> Run {
        let distance = self.around.distance(score);
        let Some(distance) = distance.filter(|_| self.list.len() < self.around.enough) else {
            return Ok(());
        };
        self.bytes += MATCH_BYTES + name.len();
        if self.bytes > self.bytes_max {
            return Err(replies::TOO_MANY_LONG.into());
        }
        self.list.push(Match {
            distance,
            score,
            name: name.to_vec(),
        });
        if let Some(order) = self.around.order
            && order.is_to_be_cut(self.list.len())
        {
            self.cut_to(order);
        }
        Ok(())
    }

    /// Drops those that are not wanted.
    fn cut_to(&mut self, order: Order) {
        let distances: Vec<f64> = self.list.iter().map(|found| found.distance).collect();
        let (places, _) = order.cut(&distances);
        let (mut place, mut kept) = (0, places.into_iter().peekable());
        self.list.retain(|_| {
            place += 1;
            kept.next_if_eq(&(place - 1)).is_some()
        });
        let lengths = self.list.iter().map(|found| found.name.len());
        self.bytes = lengths.map(|length| MATCH_BYTES + length).sum();
    }

    /// Returns what was found: in this order, if there is one, those that are wanted.
    pub(super) fn in_order(self, order: Option<Order>) -> Vec<Match> {
        let mut list = self.list;
        if let Some(order) = order {
            list.sort_by(|a, b| order.compare(a.distance, b.distance));
            list.truncate(order.count);
        }
        list
    }
}
