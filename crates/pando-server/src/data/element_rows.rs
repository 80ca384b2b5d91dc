//! The elements of a large collection, one after the other, as of one moment.
//!
//! Whoever reads them may wait for the disk: these are not for event loops.

use std::collections::VecDeque;
use std::ops::Bound;

use pandodb::{Iter, Snapshot};

use super::elements;
use super::keyspace::RowError;
use super::list_block::Elements;
use super::shown_rows::{Broken, RowsRequest, Shown};
use super::tree_head::TreeHead;

/// The elements of a collection, one after the other.
#[derive(Debug)]
pub(super) struct ElementRows {
    rows: Iter<'static>,
    shown: Shown,
    is_blocks: bool,
    is_backwards: bool,
    /// Those of a row that come next.
    block: VecDeque<Vec<u8>>,
}

impl ElementRows {
    /// The elements of the collection that `request` names, which has this head at the moment of
    /// `snapshot`.
    pub(super) fn new(
        request: &RowsRequest,
        snapshot: &Snapshot,
        head: TreeHead,
        is_backwards: bool,
    ) -> Self {
        let kind = request.shown.kind();
        let start = elements::start(head.id, kind);
        let behind = elements::behind(head.id, kind);
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(&behind[..]));
        Self {
            rows: snapshot.range(&request.members, bounds).into_owned(),
            shown: request.shown,
            is_blocks: head.is_blocks,
            is_backwards,
            block: VecDeque::new(),
        }
    }

    /// Replaces `out` by the next element. Returns false if there is none.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Broken> {
        out.clear();
        if self.block.is_empty() {
            let row = match self.is_backwards {
                true => self.rows.next_back_ref(),
                false => self.rows.next_ref(),
            };
            let Some(row) = row else {
                return Ok(false);
            };
            let (key, value) = row?;
            match self.shown {
                Shown::Element => {
                    let mut elements = match self.is_blocks {
                        true => Elements::of(value)?,
                        false => Elements::of_one(value)?,
                    };
                    let (count, block) = (elements.left(), &mut self.block);
                    match self.is_backwards {
                        true => elements.take(count, |of| block.push_front(of.to_vec()))?,
                        false => elements.take(count, |of| block.push_back(of.to_vec()))?,
                    }
                }
                Shown::Member(_) => {
                    let (_, member) = elements::decode_score(key, value)?;
                    out.extend_from_slice(member);
                    return Ok(true);
                }
                Shown::Name | Shown::Value | Shown::NameAndValue => {
                    let row = elements::decode_name(key, value)?;
                    out.extend_from_slice(row.name);
                    return Ok(true);
                }
            }
        }
        *out = self.block.pop_front().ok_or(RowError::Damaged)?;
        Ok(true)
    }
}
