//! Checks that the rows of a store fit together: what heads of large collections, streams and
//! strings in pieces say, and what rows there are (`tree_head.rs`, `elements.rs`, `stream_head.rs`,
//! `stream_rows.rs`, `piece_head.rs`).

use std::collections::{HashMap, HashSet};

use pando_sync::thread::sleep;
use pando_sync::time::Duration;
use pandodb::{Db, Snapshot, Table};

use super::elements::{self, Kind, decode_element, decode_given_up, decode_name, decode_score};
use super::keyspace::{DATABASES, Row, RowError, ValueType, shown_of};
use super::list_block::Elements;
use super::piece_head::{HEAD_BYTES, PieceHead};
use super::stream_head::StreamHead;
use super::stream_id::StreamId;
use super::stream_rows::{ConsumerRow, GroupRow, PendingRow};
use super::tree_head::TreeHead;

/// Number of problems that are described.
const PROBLEMS_MAX: usize = 100;
/// Rows that no key has are looked at so often, before they are a problem,
const LOOKS_MAX: usize = 50;
/// and so much time apart: a batch that removes them ends meanwhile.
const PAUSE: Duration = Duration::from_millis(20);

/// What [`check_rows`] has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowsReport {
    /// Number of keys of all databases, expired ones included.
    pub keys: u64,
    /// Number of collections, streams and strings whose elements or pieces have rows of their own.
    pub large: u64,
    /// Number of these rows.
    pub rows: u64,
    /// Number of rows of collections that were given up, which the cleaner of a server removes.
    pub given_up: u64,
    /// Number of problems.
    pub problems: u64,
    /// The first hundred of them, for people: database, key, what contradicts what.
    pub descriptions: Vec<String>,
}

impl RowsReport {
    fn add(&mut self, problem: impl FnOnce() -> String) {
        self.problems += 1;
        if self.descriptions.len() < PROBLEMS_MAX {
            self.descriptions.push(problem());
        }
    }
}

/// Compares the heads of all large collections, streams and strings in pieces with their rows, as
/// of one moment. Reads all of the store, and keeps some 100 bytes for each of them. Blocks;
/// others may read and write meanwhile.
///
/// # Errors
/// The store cannot be read.
pub fn check_rows(db: &Db) -> pandodb::Result<RowsReport> {
    let snapshot = db.snapshot()?;
    let mut report = RowsReport::default();
    for number in 0..DATABASES {
        let Some(keys) = db.existing_table(&format!("db/{number}/keys")) else {
            continue;
        };
        let mut heads = heads_of(&snapshot, &keys, &mut report)?;
        if let Some(members) = db.existing_table(&format!("db/{number}/members")) {
            check_members(&snapshot, &members, &mut heads, &mut report)?;
        }
        for head in heads.into_values() {
            report.add(|| format!("{} has no rows", head.name));
        }
    }
    Ok(report)
}

/// A large collection, a stream or a string in pieces, as its head has it.
#[derive(Debug)]
struct Head {
    /// Database and key, for people.
    name: String,
    value_type: ValueType,
    is: Is,
}

#[derive(Debug)]
enum Is {
    Collection(TreeHead),
    Stream(StreamHead),
    Pieces(PieceHead),
}

fn decoded(stored: &[u8], value: &[u8]) -> Result<Option<(ValueType, u64, Is)>, String> {
    let row = Row::decode(stored, value).map_err(|error| format!("{error:?}"))?;
    let payload = &value[row.payload..];
    let (id, is) = match row.value_type {
        ValueType::String => return Ok(None),
        ValueType::Pieces => {
            let head = PieceHead::decode(payload).map_err(|error| format!("{error:?}"))?;
            (head.id, Is::Pieces(head))
        }
        ValueType::Patched => {
            // The bytes of the chunks are behind it.
            let (payload, chunks) = payload.split_at_checked(HEAD_BYTES).unwrap_or_default();
            let head = PieceHead::decode_patched(payload).map_err(|error| format!("{error:?}"))?;
            if u64::from(head.length) != chunks.len() as u64 {
                return Err(format!(
                    "{} bytes, and {} by its head",
                    chunks.len(),
                    head.length
                ));
            }
            (head.id, Is::Pieces(head))
        }
        ValueType::Stream => {
            let head = StreamHead::decode(payload).map_err(|error| format!("{error:?}"))?;
            (head.id, Is::Stream(head))
        }
        _ if !TreeHead::is_of(payload) => return Ok(None),
        _ => {
            let head = TreeHead::decode(payload).map_err(|error| format!("{error:?}"))?;
            if head.is_blocks && row.value_type != ValueType::List {
                return Err("it is no list, and its head is that of one in blocks".to_owned());
            }
            (head.id, Is::Collection(head))
        }
    };
    Ok(Some((row.value_type, id, is)))
}

/// Returns the heads of a table of keys, by the ids of their collections.
fn heads_of(
    snapshot: &Snapshot,
    keys: &Table,
    report: &mut RowsReport,
) -> pandodb::Result<HashMap<u64, Head>> {
    let mut heads = HashMap::new();
    let database = keys.name().trim_end_matches("/keys").to_owned();
    let mut rows = snapshot.iter(keys);
    while let Some((stored, value)) = rows.next_ref().transpose()? {
        report.keys += 1;
        let (key, _) = shown_of(keys.name(), stored);
        let name = || format!("{database}, key {}", key.escape_ascii());
        match decoded(stored, value) {
            Ok(None) => {}
            Ok(Some((value_type, id, is))) => {
                report.large += 1;
                let head = Head {
                    name: name(),
                    value_type,
                    is,
                };
                if let Some(other) = heads.insert(id, head) {
                    report.add(|| format!("{} has the rows of {}", name(), other.name));
                }
            }
            Err(error) => report.add(|| format!("{}: {error}", name())),
        }
    }
    Ok(heads)
}

/// What rows a collection has.
#[derive(Debug, Default)]
struct Found {
    id: u64,
    /// By kind, as in keys.
    counts: HashMap<u8, u64>,
    /// Number of elements of a list.
    elements: u64,
    /// Number of fields with deadlines.
    timed: u64,
    /// Hashes of pairs of member and score, added and subtracted: 0 if both orders are the same.
    pairs: u64,
    /// The first and last ID of entries.
    ids: Option<(StreamId, StreamId)>,
    /// What the rows of groups, and those of consumers, say.
    group_pending: u64,
    group_consumers: u64,
    consumer_pending: u64,
    /// Rows that cannot be decoded.
    damaged: u64,
    /// Positions or pieces that the head says nothing is at.
    outside: u64,
}

impl Found {
    fn count(&self, kind: Kind) -> u64 {
        self.counts.get(&(kind as u8)).copied().unwrap_or(0)
    }

    /// Takes a row. Returns `None` if it cannot be decoded.
    fn take(&mut self, head: &Head, key: &[u8], value: &[u8]) -> Option<()> {
        let kind = *key.get(8)?;
        *self.counts.entry(kind).or_default() += 1;
        let rest = &key[elements::START_BYTES..];
        match (kind, &head.is) {
            (b'E', Is::Collection(_)) => {
                let row = decode_name(key, value).ok()?;
                self.timed += u64::from(row.deadline.is_some());
                if head.value_type == ValueType::SortedSet {
                    let score = f64::from_le_bytes(row.value.try_into().ok()?);
                    self.pairs = self.pairs.wrapping_add(pair(row.name, score));
                }
            }
            (b'S', Is::Collection(_)) => {
                let (score, member) = decode_score(key, value).ok()?;
                self.pairs = self.pairs.wrapping_sub(pair(member, score));
            }
            (b'L', Is::Collection(of)) => {
                self.elements += match of.is_blocks {
                    true => elements_of(value).ok()?,
                    false => decode_element(value).map(|_| 1).ok()?,
                };
                self.outside += u64::from(!has_position(of, rest));
            }
            (b'X', Is::Stream(_)) => {
                let (id, _) = StreamId::split(rest)?;
                let (first, _) = self.ids.unwrap_or((id, id));
                self.ids = Some((first, id));
            }
            (b'G', Is::Stream(_)) => {
                let group = GroupRow::decode(value).ok()?;
                self.group_pending += group.pending;
                self.group_consumers += group.consumers;
            }
            (b'C', Is::Stream(_)) => {
                let number = u64::from_be_bytes(*rest.get(8..)?.first_chunk()?);
                self.consumer_pending += ConsumerRow::decode(number, value).ok()?.pending;
            }
            (b'B', Is::Pieces(of)) => {
                let places = of.places(elements::piece_number(rest)?);
                let end = places.start + value.len() as u64;
                let length = u64::from(of.length);
                let is_whole = head.value_type == ValueType::Pieces && of.is_in_one_piece();
                let is_outside = end > places.end || end > length || is_whole && end != length;
                self.outside += u64::from(is_outside);
            }
            (b'P', Is::Stream(_)) => drop(PendingRow::decode(value).ok()?),
            (b'T', Is::Collection(_)) | (b'I' | b'N' | b'Q', Is::Stream(_)) => {}
            _ => return None,
        }
        Some(())
    }

    /// Returns pairs of numbers that have to be equal, with what they are of.
    fn numbers(&self, head: &Head) -> Vec<(&'static str, u64, u64)> {
        let count = |kind| self.count(kind);
        let mut numbers = vec![
            ("damaged rows", 0, self.damaged),
            ("rows at places that it does not have", 0, self.outside),
        ];
        match &head.is {
            Is::Collection(of) => {
                let elements = match head.value_type {
                    ValueType::List => self.elements,
                    _ => count(Kind::Name),
                };
                numbers.push(("elements", of.count, elements));
                numbers.push(("fields with deadlines", of.timed, self.timed));
                numbers.push(("deadlines of fields", of.timed, count(Kind::Time)));
                if head.value_type == ValueType::SortedSet {
                    numbers.push(("members by score", of.count, count(Kind::Score)));
                    numbers.push(("the difference of members and scores", 0, self.pairs));
                }
            }
            Is::Pieces(of) => {
                numbers.push(("pieces", of.count.into(), count(Kind::Piece)));
            }
            Is::Stream(of) => {
                let consumers = count(Kind::Consumer);
                let pending = count(Kind::Pending);
                let (first, last) = self.ids.unwrap_or_default();
                let is_first = self.ids.is_none() || first == of.first;
                numbers.extend([
                    ("entries", of.length, count(Kind::Entry)),
                    ("rows that name it", 1, count(Kind::Id)),
                    ("groups", of.groups, count(Kind::Group)),
                    ("consumers of its groups", self.group_consumers, consumers),
                    ("names of consumers", consumers, count(Kind::ConsumerName)),
                    ("pending entries of its groups", self.group_pending, pending),
                    ("those of its consumers", self.consumer_pending, pending),
                    ("pending entries by consumer", pending, count(Kind::Owned)),
                    (
                        "first entries that are not the first",
                        0,
                        u64::from(!is_first),
                    ),
                    ("entries behind the last one", 0, u64::from(last > of.last)),
                ]);
            }
        }
        numbers
    }
}

/// Returns true if an element or a block of the list with this head may be at `position`.
fn has_position(of: &TreeHead, position: &[u8]) -> bool {
    let (low, behind) = (
        of.low.to_be_bytes(),
        of.high.saturating_add(1).to_be_bytes(),
    );
    let is_number = position.len() == size_of::<u64>();
    position >= &low[..] && position < &behind[..] && (is_number || !of.is_numbered)
}

/// Returns the number of elements of a block.
fn elements_of(row: &[u8]) -> Result<u64, RowError> {
    let mut elements = Elements::of(row)?;
    let mut count = 0;
    while elements.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Returns a hash of a member with its score.
fn pair(member: &[u8], score: f64) -> u64 {
    use std::hash::Hasher as _;
    let mut hasher = siphasher::sip::SipHasher24::new();
    hasher.write(member);
    hasher.write(&elements::ordered(score));
    hasher.finish()
}

/// Compares the rows of a table of elements with the heads, and takes those out that have rows.
fn check_members(
    snapshot: &Snapshot,
    members: &Table,
    heads: &mut HashMap<u64, Head>,
    report: &mut RowsReport,
) -> pandodb::Result<()> {
    let (mut given_up, mut orphans) = (HashSet::new(), Vec::new());
    let mut found = Found::default();
    let mut head: Option<Head> = None;
    let mut rows = snapshot.iter(members);
    while let Some((key, value)) = rows.next_ref().transpose()? {
        let id = elements::id_of(key);
        if id == 0 {
            given_up.extend(decode_given_up(key));
            continue;
        }
        if id != found.id {
            compare(head.take(), &found, &mut orphans, report);
            head = heads.remove(&id);
            if let Some(Head {
                name,
                is: Is::Collection(of),
                ..
            }) = &head
                && of.is_blocks
                && !members.is_weighted()
            {
                report.add(|| format!("{name}: it lies in blocks, which its table does not weigh"));
            }
            found = Found {
                id,
                ..Found::default()
            };
        }
        match &head {
            Some(head) => {
                report.rows += 1;
                found.damaged += u64::from(found.take(head, key, value).is_none());
            }
            None if given_up.contains(&id) => report.given_up += 1,
            None => found.damaged += 1,
        }
    }
    compare(head, &found, &mut orphans, report);
    for (id, rows) in still_there(members, orphans)? {
        let table = members.name();
        report.add(|| format!("{table}: {rows} rows of {id}, which no key has"));
    }
    Ok(())
}

/// Takes the ids out whose rows are gone. Rows of what was given up go without being kept for
/// snapshots (decision 132), together with the row that says so: while that happens, who reads them
/// may miss the latter and see the former.
fn still_there(members: &Table, mut orphans: Vec<(u64, u64)>) -> pandodb::Result<Vec<(u64, u64)>> {
    for _ in 0..LOOKS_MAX {
        let mut left = Vec::new();
        for (id, rows) in orphans {
            let first = id.to_be_bytes();
            let mut rows_from = members.range(&first[..]..);
            let next = rows_from.next_key().transpose()?;
            if next.is_some_and(|key| elements::id_of(key) == id) {
                left.push((id, rows));
            }
        }
        orphans = left;
        if orphans.is_empty() {
            break;
        }
        sleep(PAUSE);
    }
    Ok(orphans)
}

/// Tells what head and rows of one collection contradict each other in; rows without a head are
/// among the `orphans`, by their id.
fn compare(
    head: Option<Head>,
    found: &Found,
    orphans: &mut Vec<(u64, u64)>,
    report: &mut RowsReport,
) {
    let Some(head) = head else {
        if found.damaged > 0 {
            orphans.push((found.id, found.damaged));
        }
        return;
    };
    for (what, wanted, there) in found.numbers(&head) {
        if wanted != there {
            let name = &head.name;
            report.add(|| format!("{name}: {what}: {there} rows, and {wanted} by its head"));
        }
    }
}
