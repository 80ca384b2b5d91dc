//! The elements of a large collection, encoded for a reply piece by piece, as of one moment
//! (decision 130).
//!
//! Whoever reads them may wait for the disk: these are not for event loops.

use std::ops::Bound;

use pando_resp::{Version, Writer};
use pandodb::{Error, Iter, Lsn, Snapshot, Table, ValueStream};

use super::elements::{self, Kind, START_BYTES};
use super::keyspace::{Row, RowError, ValueType, has_ended};
use super::list_block::Elements;
use super::tree_head::TreeHead;

/// What is shown of each element.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Shown {
    /// The name of a field or member.
    Name,
    /// The value of a field.
    Value,
    /// Both of them.
    NameAndValue,
    /// An element of a list.
    Element,
    /// A member of a sorted set; and its score, if this writes one.
    Member(Option<fn(&mut Writer<'_>, f64)>),
}

impl Shown {
    /// The rows that have it.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Self::Name | Self::Value | Self::NameAndValue => Kind::Name,
            Self::Element => Kind::Position,
            Self::Member(_) => Kind::Score,
        }
    }
}

/// Neighbours among the elements of a collection, in their order or the other way round.
#[derive(Debug, Clone)]
pub(crate) struct Stretch {
    /// The head that the key must have: places were counted with it.
    pub(crate) head: TreeHead,
    /// The last swap of the table of the elements when it was found.
    pub(crate) last_swap: Lsn,
    /// The row in which it begins, or ends if it is shown backwards.
    pub(crate) row: Vec<u8>,
    /// Elements of this row that are passed over.
    pub(crate) skipped: usize,
    pub(crate) count: usize,
}

/// What a command asks for.
pub(crate) trait Request: std::fmt::Debug + Send {
    /// Returns true if elements are sorted until their number is known, which takes memory and
    /// space on disk.
    fn sorts(&self) -> bool {
        false
    }

    /// Begins the reply at the present moment. Returns `None` if that is not what the command has
    /// found: then it looks again. Blocks.
    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken>;
}

/// Elements that are left of a reply.
pub(crate) trait Shows: std::fmt::Debug + Send {
    /// Everything that was committed up to this one is shown.
    fn lsn(&self) -> Lsn;

    /// Returns the number of elements; `None`: it counts on with the next call. To be called before
    /// the first piece, until it is known. Blocks.
    fn count(&mut self) -> Result<Option<usize>, Broken>;

    /// Returns true if nothing is shown but the number of elements.
    fn is_count(&self) -> bool {
        false
    }

    /// Appends elements to `piece` until it has `bytes` bytes, or slightly more, or others are to
    /// have their turn, or nothing is left. Returns whether something is. Blocks.
    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken>;
}

/// What a command shows of a collection.
#[derive(Debug, Clone)]
pub(crate) struct RowsRequest {
    /// The table of the key, and what the key is called there.
    pub(crate) keys: Table,
    pub(crate) stored: Vec<u8>,
    pub(crate) value_type: ValueType,
    /// The table of the elements.
    pub(crate) members: Table,
    /// `None`: all.
    pub(crate) stretch: Option<Stretch>,
    pub(crate) is_backwards: bool,
    pub(crate) shown: Shown,
    pub(crate) version: Version,
    /// What has expired then is left out.
    pub(crate) now_ms: u64,
}

/// Elements of one collection.
#[derive(Debug)]
struct ShownRows {
    lsn: Lsn,
    rows: Iter<'static>,
    is_backwards: bool,
    is_blocks: bool,
    shown: Shown,
    version: Version,
    now_ms: u64,
    /// Elements before the first one, and those that are left to be shown.
    skipped: usize,
    left: usize,
}

impl Request for RowsRequest {
    fn begin(&self) -> Result<Option<Box<dyn Shows>>, Broken> {
        let snapshot = self.keys.db().snapshot()?;
        let Some(head) = self.head_at(&snapshot)? else {
            return Ok(None);
        };
        let kind = self.shown.kind();
        let start = elements::start(head.id, kind);
        let behind = elements::behind(head.id, kind);
        let mut bounds = (Bound::Included(&start[..]), Bound::Excluded(&behind[..]));
        let (mut skipped, mut count) = (0, head.len());
        match &self.stretch {
            Some(stretch) => {
                match self.is_backwards {
                    true => bounds.1 = Bound::Included(&stretch.row),
                    false => bounds.0 = Bound::Included(&stretch.row),
                }
                (skipped, count) = (stretch.skipped, stretch.count);
            }
            None if head.timed > 0 => count = count.saturating_sub(self.expired(&snapshot, head)?),
            None => {}
        }
        Ok(Some(Box::new(ShownRows {
            lsn: snapshot.lsn(),
            rows: snapshot.range(&self.members, bounds).into_owned(),
            is_backwards: self.is_backwards,
            is_blocks: head.is_blocks,
            shown: self.shown,
            version: self.version,
            now_ms: self.now_ms,
            skipped,
            left: count,
        })))
    }
}

impl RowsRequest {
    /// Returns the head that the key has at the moment of `snapshot`, if it is as it must be.
    pub(super) fn head_at(&self, snapshot: &Snapshot) -> Result<Option<TreeHead>, Error> {
        let of = (self.value_type, self.now_ms);
        let Some(head) = head_at(snapshot, (&self.keys, &self.stored), of)? else {
            return Ok(None);
        };
        // In a database that has changed places with another one, the same head may be of another
        // collection.
        let is_same = |stretch: &Stretch| {
            stretch.head == head && self.members.last_swap() == stretch.last_swap
        };
        Ok(self.stretch.as_ref().is_none_or(is_same).then_some(head))
    }

    /// Returns the number of fields that have expired.
    fn expired(&self, snapshot: &Snapshot, head: TreeHead) -> Result<usize, Error> {
        let from = elements::start(head.id, Kind::Time);
        let to = [&from[..], &self.now_ms.to_be_bytes()].concat();
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let mut count = 0;
        let mut rows = snapshot.range(&self.members, bounds);
        rows.for_each_ref(|_, _| count += 1)?;
        Ok(count)
    }
}

/// Returns the value that the key `stored` of a table has at the moment of `snapshot`. Of one in
/// chunks, which may be long, no more than its head is read.
pub(super) fn value_at(
    snapshot: &Snapshot,
    (keys, stored): (&Table, &[u8]),
) -> Result<Option<ValueStream>, Error> {
    match snapshot.get_reader(keys, stored) {
        Err(Error::NoSuchTable { .. }) => Ok(None),
        found => found,
    }
}

/// Returns the head that the key `stored` of a table has at the moment of `snapshot`, if it has a
/// large collection of this type that is not over at `now_ms`.
pub(super) fn head_at(
    snapshot: &Snapshot,
    (keys, stored): (&Table, &[u8]),
    (value_type, now_ms): (ValueType, u64),
) -> Result<Option<TreeHead>, Error> {
    let Some(value) = value_at(snapshot, (keys, stored))? else {
        return Ok(None);
    };
    let value = value.head();
    // Whatever cannot be decoded is for the command, which looks again, to tell.
    let Ok(row) = Row::decode(stored, value) else {
        return Ok(None);
    };
    let payload = &value[row.payload..];
    let is_there = row.value_type == value_type && !row.is_over(now_ms);
    if !is_there || !TreeHead::is_of(payload) {
        return Ok(None);
    }
    Ok(TreeHead::decode(payload).ok())
}

/// Appends a member of a sorted set to `piece`; and its score, if `write_score` writes one.
pub(super) fn show_member(
    (piece, version): (&mut Vec<u8>, Version),
    (score, member): (f64, &[u8]),
    write_score: Option<fn(&mut Writer<'_>, f64)>,
) {
    let mut reply = Writer::new(piece, version);
    if write_score.is_some() && version == Version::Resp3 {
        reply.array(2);
    }
    reply.bulk(member);
    if let Some(write_score) = write_score {
        write_score(&mut reply, score);
    }
}

/// Why no more of a reply can be read.
#[derive(Debug)]
pub(crate) enum Broken {
    Engine(Error),
    /// A row cannot be decoded, or rows are missing.
    Row(RowError),
    Text(String),
    /// The command refuses what it has found, with this error.
    Refused(String),
}

impl Broken {
    /// Returns it as a text for the client.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Engine(error) => error.to_string(),
            Self::Row(_) => "a row is damaged, or is missing".to_owned(),
            Self::Text(text) => text,
            Self::Refused(text) => text.trim_start_matches("ERR ").to_owned(),
        }
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<RowError> for Broken {
    fn from(error: RowError) -> Self {
        Self::Row(error)
    }
}

impl Shows for ShownRows {
    fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn count(&mut self) -> Result<Option<usize>, Broken> {
        Ok(Some(self.left))
    }

    fn fill(&mut self, piece: &mut Vec<u8>, bytes: usize) -> Result<bool, Broken> {
        while self.left > 0 && piece.len() < bytes {
            let row = match self.is_backwards {
                true => self.rows.next_back_ref(),
                false => self.rows.next_ref(),
            };
            let (key, value) = row.ok_or(RowError::Damaged)??;
            if key.len() < START_BYTES {
                return Err(RowError::Damaged.into());
            }
            let mut reply = Writer::new(piece, self.version);
            match self.shown {
                Shown::Name | Shown::Value | Shown::NameAndValue => {
                    let row = elements::decode_name(key, value)?;
                    if row.deadline.is_some_and(|of| has_ended(of, self.now_ms)) {
                        continue;
                    }
                    if !matches!(self.shown, Shown::Value) {
                        reply.bulk(row.name);
                    }
                    if !matches!(self.shown, Shown::Name) {
                        reply.bulk(row.value);
                    }
                    self.left -= 1;
                }
                Shown::Element => {
                    let mut elements = match self.is_blocks {
                        true => Elements::of(value)?,
                        false => Elements::of_one(value)?,
                    };
                    let skipped = self.skipped.min(elements.left());
                    elements.skip(skipped)?;
                    self.skipped -= skipped;
                    let shown = elements.left().min(self.left);
                    elements.write(shown, &mut reply)?;
                    self.left -= shown;
                }
                Shown::Member(write_score) => {
                    let member = elements::decode_score(key, value)?;
                    show_member((piece, self.version), member, write_score);
                    self.left -= 1;
                }
            }
        }
        Ok(self.left > 0)
    }
}

#[cfg(test)]
mod tests {
    use pandodb::Db;
    use pandodb::statistics::Ticker;

    use super::*;

    /// A key that had a collection may have a long string by the time a thread looks.
    #[test]
    fn no_long_string_is_read_where_a_collection_is_looked_for() {
        let db = Db::builder().max_memory(8 << 20).open_in_memory().unwrap();
        let keys = db.table("keys").unwrap();
        let long = vec![7; 8 << 20];
        let put = keys.put_streamed(b"key", long.len() as u64, &long[..]);
        put.unwrap();
        let snapshot = db.snapshot().unwrap();
        let reads = || db.statistics().get(Ticker::ChunkReads);
        let before = reads();
        let found = head_at(&snapshot, (&keys, b"key"), (ValueType::Set, 0)).unwrap();
        assert_eq!((found, reads() - before), (None, 0));
    }
}
