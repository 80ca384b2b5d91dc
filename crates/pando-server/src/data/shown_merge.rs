//! What sets have in common or together, encoded for a reply piece by piece, as of one moment
//! (decisions 130 and 131).
//!
//! The first line of the reply has the number of members. So sets are merged twice, and nothing is
//! kept; members of sorted sets are sorted. As `data/shown_rows.rs`, not for event loops.

use pando_resp::{Version, Writer};
use pando_sync::Arc;
use pandodb::{Lsn, Snapshot, Table};

use super::combination::{Aggregate, Operation};
use super::elements::{self, ElementKeys};
use super::keyspace::{Row, RowError, ValueType};
use super::merge_source::MergeSource;
use super::merged_rows::{Merge, Step};
use super::packed::{Strings, strings_of_one};
use super::scratch::Scratch;
use super::shown_rows::{Broken, Request, Shows, show_member, value_at};
use super::sorter::{Sorted, Sorter};
use super::tree_head::TreeHead;

/// Steps of a merge in one turn, at most.
const STEPS: usize = 16 << 10;
/// Bytes of rows that are read of all sets at a time, about, and of each of them.
const PAGES_BYTES: usize = 256 << 10;
const PAGE_BYTES_MIN: usize = 512;
const PAGE_BYTES_MAX: usize = 64 << 10;

/// What is shown of the members.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ShownMembers {
    /// They, in the order of their hashes.
    Unsorted,
    /// They, by their scores; and these, if this writes one.
    ByScore(Option<fn(&mut Writer<'_>, f64)>),
    /// Their number, up to this one.
    Count(usize),
}

/// The sets that a command combines for its reply.
#[derive(Debug, Clone)]
pub(crate) struct MergeRequest {
    /// The table of the keys.
    pub(crate) keys: Table,
    /// What they are called there, and what their scores are multiplied with.
    pub(crate) inputs: Vec<(Vec<u8>, f64)>,
    pub(crate) members: Table,
    pub(crate) element_keys: ElementKeys,
    pub(crate) operation: Operation,
    pub(crate) aggregate: Aggregate,
    /// The types that the keys may have.
    pub(crate) types: &'static [ValueType],
    pub(crate) shown: ShownMembers,
    pub(crate) scratch: Arc<Scratch>,
    pub(crate) version: Version,
    /// What has expired then is not there.
    pub(crate) now_ms: u64,
}

/// A set at the moment of the reply.
#[derive(Debug)]
struct Content {
    elements: Elements,
    is_scored: bool,
    weight: f64,
}

#[derive(Debug)]
enum Elements {
    Packed(Strings),
    Large(TreeHead),
}

impl Content {
    fn len(&self) -> usize {
        match &self.elements {
            Elements::Packed(strings) if self.is_scored => strings.len() / 2,
            Elements::Packed(strings) => strings.len(),
            Elements::Large(head) => head.len(),
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

/// Members by their scores.
#[derive(Debug)]
struct ShownByScore {
    lsn: Lsn,
    version: Version,
    write_score: Option<fn(&mut Writer<'_>, f64)>,
    /// What is not sorted yet.
    merge: Option<Merge>,
    sorter: Sorter,
    sorted: Option<Sorted>,
    left: usize,
}

impl Request for MergeRequest {
    fn sorts(&self) -> bool {
        matches!(self.shown, ShownMembers::ByScore(_))
    }

    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
        let snapshot = self.keys.db().snapshot()?;
        let mut contents = Vec::with_capacity(self.inputs.len());
        for (stored, weight) in &self.inputs {
            match self.content_at(&snapshot, stored, *weight)? {
                Some(content) => contents.push(content),
                None => return Ok(None),
            }
        }
        if self.operation != Operation::Difference {
            // In this order Redis adds scores, which matters for fractions.
            contents.sort_by_key(Content::len);
        }
        let merge = self.merge(&snapshot, &contents);
        if let ShownMembers::ByScore(write_score) = self.shown {
            return Ok(Some(Box::new(ShownByScore {
                lsn: snapshot.lsn(),
                version: self.version,
                write_score,
                merge: Some(merge),
                sorter: Sorter::new(self.scratch.clone(), false),
                sorted: None,
                left: 0,
            })));
        }
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
    /// Returns the set that a key has at the moment of `snapshot`; `None` if it has another value.
    fn content_at(
        &self,
        snapshot: &Snapshot,
        stored: &[u8],
        weight: f64,
    ) -> Result<Option<Content>, Broken> {
        let empty = || {
            Ok(Some(Content {
                elements: Elements::Packed(Strings::default()),
                is_scored: false,
                weight,
            }))
        };
        let Some(value) = value_at(snapshot, (&self.keys, stored))? else {
            return empty();
        };
        let value = value.head();
        let row = Row::decode(stored, value)?;
        if row.is_over(self.now_ms) {
            return empty();
        }
        if !self.types.contains(&row.value_type) {
            return Ok(None);
        }
        let payload = &value[row.payload..];
        let elements = match TreeHead::is_of(payload) {
            true => Elements::Large(TreeHead::decode(payload)?),
            false => Elements::Packed(Strings::decode(payload, strings_of_one(row.value_type))?),
        };
        Ok(Some(Content {
            elements,
            is_scored: row.value_type == ValueType::SortedSet,
            weight,
        }))
    }

    fn merge(&self, snapshot: &Snapshot, contents: &[Content]) -> Merge {
        let page_bytes = PAGES_BYTES / contents.len().max(1);
        let page_bytes = page_bytes.clamp(PAGE_BYTES_MIN, PAGE_BYTES_MAX);
        let sources = contents.iter().map(|content| {
            let how = (content.is_scored, content.weight);
            match &content.elements {
                Elements::Large(head) => {
                    let rows = (self.members.clone(), head.id);
                    MergeSource::of_rows(rows, page_bytes, how).at(snapshot.clone())
                }
                Elements::Packed(strings) => {
                    MergeSource::of_strings(strings, &self.element_keys, how)
                }
            }
        });
        Merge::new(sources.collect(), (self.operation, self.aggregate))
    }
}

impl Shows for ShownMerge {
    fn lsn(&self) -> Lsn {
        self.snapshot.lsn()
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        for _ in 0..STEPS {
            match self.merge.step()? {
                Step::Member(..) => self.count += 1,
                Step::Passed => {}
                Step::End => {
                    self.merge = self.request.merge(&self.snapshot, &self.contents);
                    return Ok(Some(self.count));
                }
            }
            if matches!(self.request.shown, ShownMembers::Count(most) if self.count >= most) {
                return Ok(Some(self.count));
            }
        }
        // Others may have their turns before this one has the next.
        self.merge.forget_ahead();
        Ok(None)
    }

    fn is_count(&self) -> bool {
        matches!(self.request.shown, ShownMembers::Count(_))
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        for _ in 0..STEPS {
            if self.count == 0 || piece.len() >= bytes {
                break;
            }
            match self.merge.step()? {
                Step::Member(name, _) => {
                    Writer::new(piece, self.request.version).bulk(&name);
                    self.count -= 1;
                }
                Step::Passed => {}
                Step::End => return Err(RowError::Damaged.into()),
            }
        }
        // It may be long until the client has taken this piece.
        self.merge.forget_ahead();
        Ok(self.count > 0)
    }
}

impl Shows for ShownByScore {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        if let Some(merge) = &mut self.merge {
            for _ in 0..STEPS {
                match merge.step()? {
                    Step::Member(name, score) => {
                        let key = [&elements::ordered(score)[..], &name];
                        let pushed = self.sorter.push(&key, &score.to_le_bytes());
                        pushed.map_err(Broken::Text)?;
                    }
                    Step::Passed => {}
                    Step::End => {
                        // With it, the snapshot is given back.
                        self.merge = None;
                        break;
                    }
                }
            }
            return Ok(None);
        }
        self.sorted = self.sorter.settle(STEPS).map_err(Broken::Text)?;
        self.left = self.sorter.len();
        Ok(self.sorted.as_ref().map(|_| self.left))
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        let sorted = self.sorted.as_mut().ok_or(RowError::Damaged)?;
        while self.left > 0 && piece.len() < bytes {
            let next = sorted.next().map_err(Broken::Text)?;
            let (key, score) = next.ok_or(RowError::Damaged)?;
            let score = score.try_into().map_err(|_| RowError::Damaged)?;
            let member = (f64::from_le_bytes(score), &key[size_of::<u64>()..]);
            show_member((piece, self.version), member, self.write_score);
            self.left -= 1;
        }
        Ok(self.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use pandodb::Db;

    use super::*;

    /// Adds so many members to the set `id`, each with a number that is a multiple of `step`.
    fn add(members: &Table, keys: &ElementKeys, (id, count, step): (u64, u32, u32)) -> Content {
        let (mut key, mut row) = (Vec::new(), Vec::new());
        for number in 0..count {
            let name = (number * step).to_string();
            keys.name(id, name.as_bytes(), &mut key);
            keys.value(name.as_bytes(), (b"", None), &mut row);
            members.put(&key, &row).unwrap();
        }
        let head = TreeHead {
            count: u64::from(count),
            ..TreeHead::new(id)
        };
        Content {
            elements: Elements::Large(head),
            is_scored: false,
            weight: 1.0,
        }
    }

    /// A client that reads slowly has no rows in memory, and is shown each member once.
    #[test]
    fn no_rows_are_kept_for_the_next_piece() {
        let db = Db::builder().open_in_memory().unwrap();
        let (keys, members) = (db.table("keys").unwrap(), db.table("members").unwrap());
        let element_keys = ElementKeys::new(db.hash_key(), db.key_bytes_max());
        for (operation, expected) in [
            (Operation::Union, 40_000),
            (Operation::Intersection, 10_000),
            (Operation::Difference, 20_000),
        ] {
            let of = |of| add(&members, &element_keys, of);
            let contents = vec![of((1, 30_000, 1)), of((2, 20_000, 3))];
            let request = MergeRequest {
                keys: keys.clone(),
                inputs: Vec::new(),
                members: members.clone(),
                element_keys,
                operation,
                aggregate: Aggregate::Sum,
                types: &[ValueType::Set],
                shown: ShownMembers::Unsorted,
                scratch: Scratch::new(""),
                version: Version::Resp3,
                now_ms: 0,
            };
            let snapshot = db.snapshot().unwrap();
            let merge = request.merge(&snapshot, &contents);
            let (mut shown, mut turns) = (
                ShownMerge {
                    request,
                    snapshot,
                    contents,
                    merge,
                    count: 0,
                },
                0,
            );
            let count = loop {
                if let Some(count) = shown.count().unwrap() {
                    break count;
                }
                assert_eq!(shown.merge.ahead(), 0);
                turns += 1;
            };
            assert!(
                count == expected && turns > 0,
                "{operation:?} {count} {turns}"
            );
            let mut names = std::collections::BTreeSet::new();
            let mut has_more = true;
            while has_more {
                let mut piece = Vec::new();
                has_more = shown.fill(&mut piece, 5000).unwrap();
                assert_eq!(shown.merge.ahead(), 0);
                let text = String::from_utf8(piece).unwrap();
                names.extend(text.lines().skip(1).step_by(2).map(str::to_owned));
            }
            assert_eq!(names.len(), expected, "{operation:?}");
        }
    }
}
