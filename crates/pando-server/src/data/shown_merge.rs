//! What sets have in common or together, encoded for a reply piece by piece, as of one moment
//! (decision 130).
//!
//! They are merged twice: the first line of the reply has the number of members, and nothing is
//! kept. As `data/shown_rows.rs`, not for event loops.

use pando_resp::{Version, Writer};
use pandodb::{Error, Lsn, Snapshot, Table};

use super::combination::{Aggregate, Operation};
use super::elements::ElementKeys;
use super::keyspace::{Row, RowError, ValueType};
use super::merge_source::MergeSource;
use super::merged_rows::{Merge, Step};
use super::packed::Strings;
use super::shown_rows::{Broken, Request, Shows};
use super::tree_head::TreeHead;

/// Steps of a merge in one turn, at most.
const STEPS: usize = 16 << 10;
/// Bytes of rows that are read of all sets at a time, about, and of each of them.
const PAGES_BYTES: usize = 256 << 10;
const PAGE_BYTES_MIN: usize = 512;
const PAGE_BYTES_MAX: usize = 64 << 10;

/// The sets that a command combines for its reply.
#[derive(Debug, Clone)]
pub(crate) struct MergeRequest {
    /// The table of the keys, and what they are called there.
    pub(crate) keys: Table,
    pub(crate) stored: Vec<Vec<u8>>,
    pub(crate) members: Table,
    pub(crate) element_keys: ElementKeys,
    pub(crate) operation: Operation,
    pub(crate) version: Version,
    /// What has expired then is not there.
    pub(crate) now_ms: u64,
}

/// A set at the moment of the reply.
#[derive(Debug)]
enum Content {
    Packed(Strings),
    Large(TreeHead),
}

impl Content {
    fn len(&self) -> usize {
        match self {
            Self::Packed(members) => members.len(),
            Self::Large(head) => head.len(),
        }
    }
}

/// The members that are left of a reply.
#[derive(Debug)]
struct ShownMerge {
    request: MergeRequest,
    snapshot: Snapshot,
    contents: Vec<Content>,
    merge: Merge,
    /// Members that were counted; once that is done, those that are left to be shown.
    count: usize,
}

impl Request for MergeRequest {
    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
        let snapshot = self.keys.db().snapshot()?;
        let mut contents = Vec::with_capacity(self.stored.len());
        for stored in &self.stored {
            match self.content_at(&snapshot, stored)? {
                Some(content) => contents.push(content),
                None => return Ok(None),
            }
        }
        if self.operation == Operation::Intersection {
            contents.sort_by_key(Content::len);
        }
        let merge = self.merge(&snapshot, &contents);
        Ok(Some(Box::new(ShownMerge {
            request: self.clone(),
            snapshot,
            contents,
            merge,
            count: 0,
        })))
    }
}

impl MergeRequest {
    /// Returns the set that a key has at the moment of `snapshot`; `None` if it is no set.
    fn content_at(&self, snapshot: &Snapshot, stored: &[u8]) -> Result<Option<Content>, Broken> {
        let mut value = Vec::new();
        let empty = || Ok(Some(Content::Packed(Strings::default())));
        match snapshot.get_into(&self.keys, stored, &mut value) {
            Ok(true) => {}
            Ok(false) | Err(Error::NoSuchTable { .. }) => return empty(),
            Err(error) => return Err(error.into()),
        }
        let row = Row::decode(stored, &value)?;
        if row.is_over(self.now_ms) {
            return empty();
        }
        if row.value_type != ValueType::Set {
            return Ok(None);
        }
        let payload = &value[row.payload..];
        Ok(Some(match TreeHead::is_of(payload) {
            true => Content::Large(TreeHead::decode(payload)?),
            false => Content::Packed(Strings::decode(payload, 1)?),
        }))
    }

    fn merge(&self, snapshot: &Snapshot, contents: &[Content]) -> Merge {
        let page_bytes = PAGES_BYTES / contents.len().max(1);
        let page_bytes = page_bytes.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        let sources = contents.iter().map(|content| match content {
            Content::Large(head) => {
                let rows = (self.members.clone(), head.id);
                MergeSource::of_rows(rows, page_bytes, (false, 1.0)).at(snapshot.clone())
            }
            Content::Packed(members) => {
                let members = members.iter().map(|member| (member, &[][..]));
                MergeSource::of_members(members, &self.element_keys, (false, 1.0))
            }
        });
        Merge::new(sources.collect(), (self.operation, Aggregate::Sum))
    }
}

impl Shows for ShownMerge {
    fn lsn(&self) -> Lsn {
        self.snapshot.lsn()
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        for _ in 0..STEPS {
            match self.merge.step().map_err(Broken::Text)? {
                Step::Member(..) => self.count += 1,
                Step::Passed => {}
                Step::End => {
                    self.merge = self.request.merge(&self.snapshot, &self.contents);
                    return Ok(Some(self.count));
                }
            }
        }
        Ok(None)
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        for _ in 0..STEPS {
            if self.count == 0 || piece.len() >= bytes {
                break;
            }
            match self.merge.step().map_err(Broken::Text)? {
                Step::Member(name, _) => {
                    Writer::new(piece, self.request.version).bulk(&name);
                    self.count -= 1;
                }
                Step::Passed => {}
                Step::End => return Err(RowError::Damaged.into()),
            }
        }
        Ok(self.count > 0)
    }
}
