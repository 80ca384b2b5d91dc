//! The rows of a new sorted set that has the members of another one that lie near a place. They are
//! those of one moment if the head of that is the same before they are read and when the new one is
//! named.

use pando_sync::Arc;

use super::combination::Merged;
use super::near_walk::{NearMember, NearWalk};
use super::new_members::NewMembers;
use super::new_rows::{NewRows, NextRows};
use super::scratch::Scratch;
use super::shape::Order;
use super::shown_near::{next, push};
use super::shown_rows::Broken;
use super::sorter::{Sorted, Sorter};

/// Records that are sorted in one turn, about.
const RECORDS: usize = 16 << 10;

/// Reads the members, and makes the rows.
#[derive(Debug)]
pub(crate) struct NearRows {
    /// What was not read yet; `None`: all was.
    walk: Option<NearWalk>,
    /// If not all of them are wanted: what sorts them, and what it has sorted.
    sorter: Option<Sorter>,
    sorted: Option<Sorted>,
    /// Members that are wanted still.
    left: usize,
    made: NearMembers,
}

#[derive(Debug)]
struct NearMembers {
    /// The scores are the distances, and not the geohashes.
    has_distances: bool,
    made: NewMembers,
}

impl NearMembers {
    fn add(&mut self, member: NearMember<'_>, rows: &mut NextRows) -> Result<bool, String> {
        let score = match self.has_distances {
            true => member.distance,
            false => member.score,
        };
        self.made.add((member.name, score), rows)
    }
}

impl NearRows {
    /// Returns those of what `walk` finds, or, if there is an order, of the first ones of that.
    pub(crate) fn new(
        walk: NearWalk,
        (order, scratch): (Option<Order>, Arc<Scratch>),
        (has_distances, made): (bool, NewMembers),
    ) -> Self {
        let sorter = order.map(|order| Sorter::new(scratch, order.is_descending));
        Self {
            walk: Some(walk),
            sorter,
            sorted: None,
            left: order.map_or(usize::MAX, |order| order.count),
            made: NearMembers {
                has_distances,
                made,
            },
        }
    }
}

impl NewRows for NearRows {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        if let Some(walk) = &mut self.walk {
            let has_more = walk.walk(|member| match &mut self.sorter {
                Some(sorter) => push(sorter, member).map(|()| true),
                None => self.made.add(member, rows).map_err(Broken::Text),
            });
            if !has_more.map_err(Broken::text)? {
                self.walk = None;
            }
            return Ok(self.walk.is_some() || self.sorter.is_some());
        }
        let Some(sorter) = &mut self.sorter else {
            return Ok(false);
        };
        let Some(sorted) = &mut self.sorted else {
            self.sorted = sorter.settle(RECORDS)?;
            self.left = self.left.min(sorter.len());
            return Ok(true);
        };
        while self.left > 0 {
            let member = next(sorted).map_err(Broken::text)?;
            self.left -= 1;
            if !self.made.add(member, rows)? {
                break;
            }
        }
        Ok(self.left > 0)
    }

    fn merged(&mut self) -> Option<Merged> {
        Some(self.made.made.merged())
    }
}
