//! The members of a large sorted set that lie near a place, encoded for a reply piece by piece, as
//! of one moment (decisions 130 and 131).
//!
//! The first line of the reply has their number. So the members are read twice, if they come in the
//! order of their geohashes; those that come by their distances are sorted. As
//! `data/shown_rows.rs`, not for event loops.

use pando_resp::{Version, Writer};
use pando_sync::Arc;
use pandodb::{Lsn, Table};

use super::elements;
use super::keyspace::{RowError, ValueType};
use super::near_walk::{NearMember, NearWalk, Search};
use super::scratch::Scratch;
use super::shown_rows::{Broken, Request, Shows, head_at};
use super::sorter::{Sorted, Sorter};
use super::tree_head::TreeHead;

/// Records that are sorted in one turn, about.
const RECORDS: usize = 16 << 10;
/// Bytes of the distance and of the score of a member.
const NUMBER_BYTES: usize = size_of::<f64>();

/// What is shown of a member besides its name.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras {
    pub(crate) distance: bool,
    pub(crate) hash: bool,
    pub(crate) coordinates: bool,
}

/// How members are shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Show {
    pub(crate) write: fn(&mut Writer<'_>, NearMember<'_>, Extras),
    pub(crate) extras: Extras,
}

impl Show {
    fn append(&self, (piece, version): (&mut Vec<u8>, Version), member: NearMember<'_>) {
        let mut reply = Writer::new(piece, version);
        (self.write)(&mut reply, member, self.extras);
    }
}

/// What a search shows.
#[derive(Debug, Clone)]
pub(crate) struct NearRequest {
    /// The table of the key, and what the key is called there.
    pub(crate) keys: Table,
    pub(crate) stored: Vec<u8>,
    /// The table of the members.
    pub(crate) members: Table,
    /// If the center is the place of a member: the head that the key must have, and the last swap
    /// of the table of members.
    pub(crate) seen: Option<(TreeHead, Lsn)>,
    pub(crate) search: Search,
    pub(crate) show: Show,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) version: Version,
    /// What has expired then is not there.
    pub(crate) now_ms: u64,
}

/// Members in the order of their geohashes.
#[derive(Debug)]
struct ShownNear {
    lsn: Lsn,
    version: Version,
    show: Show,
    walk: NearWalk,
    /// Members that were counted; once that is done, those that are left to be shown.
    count: usize,
}

/// Members by their distances.
#[derive(Debug)]
struct ShownByDistance {
    lsn: Lsn,
    version: Version,
    show: Show,
    /// What is not sorted yet.
    walk: Option<NearWalk>,
    count_max: usize,
    sorter: Sorter,
    sorted: Option<Sorted>,
    left: usize,
}

impl Request for NearRequest {
    fn sorts(&self) -> bool {
        self.search.around.order.is_some()
    }

    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
        let snapshot = self.keys.db().snapshot()?;
        let of = (ValueType::SortedSet, self.now_ms);
        let Some(head) = head_at(&snapshot, (&self.keys, &self.stored), of)? else {
            return Ok(None);
        };
        let is_same = |(seen, last_swap): &(TreeHead, Lsn)| {
            *seen == head && *last_swap == self.members.last_swap()
        };
        if !self.seen.as_ref().is_none_or(is_same) {
            return Ok(None);
        }
        let (lsn, version, show) = (snapshot.lsn(), self.version, self.show);
        let walk = NearWalk::new((self.members.clone(), head.id), self.search.clone());
        let walk = walk.at(snapshot);
        let shows: Box<dyn Shows> = match self.search.around.order {
            None => Box::new(ShownNear {
                lsn,
                version,
                show,
                walk,
                count: 0,
            }),
            Some(order) => Box::new(ShownByDistance {
                lsn,
                version,
                show,
                walk: Some(walk),
                count_max: order.count,
                sorter: Sorter::new(self.scratch.clone(), order.is_descending),
                sorted: None,
                left: 0,
            }),
        };
        Ok(Some(shows))
    }
}

impl Shows for ShownNear {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        let has_more = self.walk.walk(|_| {
            self.count += 1;
            Ok(true)
        })?;
        if has_more {
            return Ok(None);
        }
        self.walk.rewind();
        Ok(Some(self.count))
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        let (show, version, left) = (self.show, self.version, &mut self.count);
        let has_more = self.walk.walk(|member| {
            show.append((piece, version), member);
            *left = left.checked_sub(1).ok_or(RowError::Damaged)?;
            Ok(*left > 0 && piece.len() < bytes)
        })?;
        match has_more || self.count == 0 {
            true => Ok(self.count > 0),
            false => Err(RowError::Damaged.into()),
        }
    }
}

/// Has a sorter take a member.
pub(super) fn push(sorter: &mut Sorter, member: NearMember<'_>) -> Result<(), Broken> {
    let mut payload = Vec::with_capacity(2 * NUMBER_BYTES + member.name.len());
    payload.extend_from_slice(&member.distance.to_le_bytes());
    payload.extend_from_slice(&member.score.to_le_bytes());
    payload.extend_from_slice(member.name);
    let pushed = sorter.push(&[&elements::ordered(member.distance)], &payload);
    pushed.map_err(Broken::Text)
}

/// Returns the next one of the members that a sorter was given.
pub(super) fn next(sorted: &mut Sorted) -> Result<NearMember<'_>, Broken> {
    let record = sorted.next().map_err(Broken::Text)?;
    let (_, payload) = record.ok_or(RowError::Damaged)?;
    let (distance, rest) = payload.split_first_chunk().ok_or(RowError::Damaged)?;
    let (score, name) = rest.split_first_chunk().ok_or(RowError::Damaged)?;
    Ok(NearMember {
        distance: f64::from_le_bytes(*distance),
        score: f64::from_le_bytes(*score),
        name,
    })
}

impl Shows for ShownByDistance {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        if let Some(walk) = &mut self.walk {
            let has_more = walk.walk(|member| push(&mut self.sorter, member).map(|()| true))?;
            if !has_more {
                // With it, the snapshot is given back.
                self.walk = None;
            }
            return Ok(None);
        }
        self.sorted = self.sorter.settle(RECORDS).map_err(Broken::Text)?;
        self.left = self.sorter.len().min(self.count_max);
        Ok(self.sorted.as_ref().map(|_| self.left))
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        let sorted = self.sorted.as_mut().ok_or(RowError::Damaged)?;
        while self.left > 0 && piece.len() < bytes {
            let member = next(sorted)?;
            self.show.append((piece, self.version), member);
            self.left -= 1;
        }
        Ok(self.left > 0)
    }
}
