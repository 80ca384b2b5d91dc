//! Parts of large collections: which one a command needs, and what was loaded.

use std::ops::{Bound, Range};

use pando_sync::Arc;
use pandodb::Lsn;

use super::search::Spot;
use crate::data::deadlines::Deadlines;
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType, has_ended};
use crate::data::list_block::Elements;
use crate::data::packed::{Strings, strings_of_one};
use crate::data::shape::{Around, Order};
use crate::data::stream_rows::PendingFilter;
use crate::data::tree_head::TreeHead;

/// Bytes that an element takes in memory besides its own, about.
pub(super) const ELEMENT_BYTES: usize = 32;

/// What was loaded of a large collection.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) head: TreeHead,
    /// Place of the first element that was loaded, if they are neighbours.
    pub(crate) first: usize,
    /// Number of elements that were loaded.
    pub(crate) count: usize,
    /// The elements as they were loaded.
    pub(in crate::context) load: Arc<Load>,
}

impl Loaded {
    /// Returns true if the last element of the collection is among those that were loaded, or, if
    /// none was, behind which the part lies.
    pub(in crate::context) fn reaches_end(&self) -> bool {
        self.first + self.count == self.head.len()
    }

    /// Returns what was loaded of a collection of this type, from place `first` on.
    pub(in crate::context) fn of(
        value_type: ValueType,
        (head, first): (TreeHead, usize),
        load: Arc<Load>,
    ) -> Self {
        Self {
            head,
            first,
            count: load.strings.len() / strings_of_one(value_type),
            load,
        }
    }
}

/// The elements that a command needs. A packed collection is read whole all the same.
pub(crate) enum Part<'p> {
    All,
    /// Those with these names, each once. They come in this order or, if they are many, in that of
    /// their rows.
    Named(&'p [&'p [u8]]),
    /// Those at the places that it returns for the number of all.
    Places(&'p dyn Fn(usize) -> Range<usize>),
    /// What has to be known of a list to put something before an element that was found, or, if
    /// it is true, behind it.
    Beside(&'p Spot, bool),
    /// Those at these places, in this order.
    Each(&'p [usize]),
    /// Of the fields at these places those that live, in this order, until they are so many. Only
    /// where places can be told (`may_rank`).
    Drawn(&'p [usize], usize),
    /// Of the elements at these places, counted with those that the transaction has removed, those
    /// that are left, in this order, until they are so many. Only where it has removed elements and
    /// added none (`removals`).
    Left(&'p [usize], usize),
    /// All fields that live: what has expired takes no memory.
    Living,
    /// From a place of an iteration on, about so many, by name.
    Iterated(u64, usize),
}

/// Bytes of an element, if it is not known to have more.
const LONG_BYTES: usize = 128;
/// Bytes of a short element in a block.
const SHORT_BYTES: usize = 8;
/// Bytes of the elements of a leaf, about.
const LEAF_BYTES: usize = 4096;

/// What is loaded, and for which command of EXEC.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::context) struct Goal {
    pub(in crate::context) exec_index: Option<usize>,
    pub(in crate::context) database: usize,
    /// The last swap of the table of elements, so that nothing that was gathered before is mixed
    /// with what is read behind it, not even if a second swap brings the same head back.
    pub(in crate::context) last_swap: Lsn,
    pub(in crate::context) head: TreeHead,
    /// The rows that show the elements.
    pub(in crate::context) kind: Kind,
    /// They have values besides their names.
    pub(in crate::context) has_values: bool,
    pub(in crate::context) from: Bound<Vec<u8>>,
    /// The last row that is wanted, or the first one backwards; `None`: all of its kind.
    pub(in crate::context) until: Option<Vec<u8>>,
    pub(in crate::context) is_backwards: bool,
    /// Number of elements that are passed over first.
    pub(in crate::context) skipped: usize,
    /// Number of elements to be loaded.
    pub(in crate::context) count: usize,
    /// If it is given, fields that have expired are left out, and so many others are enough.
    pub(in crate::context) living: Option<usize>,
    /// Places may be those of elements that the transaction has removed, or behind the last one.
    pub(in crate::context) passes_removed: bool,
    /// Which of the rows of pending entries are wanted, and counted.
    pub(in crate::context) pending: Option<PendingFilter>,
    /// Only members that lie near a place are wanted.
    pub(in crate::context) around: Option<Around>,
    /// Rows of a list are wanted as they are, with their positions, up to so many bytes.
    pub(in crate::context) window: Option<usize>,
    /// Of many elements that are wanted by their names: the hash of all these names.
    pub(in crate::context) names: Option<u64>,
}

impl Goal {
    /// Returns what the keys of all rows of its kind begin with.
    pub(in crate::context) fn prefix(&self) -> [u8; elements::START_BYTES] {
        elements::start(self.head.id, self.kind)
    }

    /// Turns to the last element, to go backwards, and passes over `skipped` first.
    pub(in crate::context) fn turn_back(&mut self, skipped: usize) {
        let end = elements::behind(self.head.id, self.kind);
        self.from = Bound::Excluded(end.to_vec());
        self.is_backwards = true;
        self.skipped = skipped;
    }

    /// Returns the number of strings of an element.
    pub(in crate::context) fn strings_of_one(&self) -> usize {
        let has_two = self.kind != Kind::Position && self.has_values;
        1 + usize::from(has_two || self.window.is_some())
    }
}

/// A part that is being loaded, or was. It survives an interruption, and the next run goes on with
/// it, or has it again, if the head has not changed. Else a command that reads several parts would
/// begin with the first one after each wait.
#[derive(Debug)]
pub(crate) struct Load {
    pub(in crate::context) goal: Goal,
    /// Where the scan goes on.
    pub(in crate::context) from: Bound<Vec<u8>>,
    pub(in crate::context) skipped: usize,
    /// Number of elements that are missing.
    pub(in crate::context) left: usize,
    /// Of many elements that are wanted by their names: the places of the names that differ, in the
    /// order of the rows.
    pub(in crate::context) names: Vec<u32>,
    pub(in crate::context) strings: Strings,
    /// Deadlines of fields, also of those that have expired and were not left out.
    pub(in crate::context) deadlines: Deadlines,
    /// Of a list: the position of each element, or of each block if it is one in blocks.
    pub(in crate::context) positions: Strings,
    /// Of a list in blocks: the number of elements of each.
    pub(in crate::context) counts: Vec<usize>,
    /// Of a list in blocks: the number of elements that were loaded before those that are wanted,
    /// or behind them if they are read backwards: blocks are loaded whole.
    pub(in crate::context) lead: usize,
    /// Distance of the last one of the members near a place when they were cut to those that are
    /// wanted: only those that come before it are, from then on.
    pub(in crate::context) last_distance: Option<f64>,
    /// Where an iteration goes on; 0: it has reached the end.
    pub(in crate::context) cursor: u64,
    /// Elements behind those that are wanted, if some are to be kept for the next command.
    pub(in crate::context) ahead: Option<Box<Behind>>,
}

/// Elements that were read behind those that are wanted.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    pub(in crate::context) strings: Strings,
    pub(in crate::context) positions: Strings,
}

impl Load {
    pub(in crate::context) fn new(goal: Goal) -> Self {
        Self {
            from: goal.from.clone(),
            skipped: goal.skipped,
            left: goal.count,
            names: Vec::new(),
            strings: Strings::default(),
            deadlines: Deadlines::default(),
            positions: Strings::default(),
            counts: Vec::new(),
            lead: 0,
            last_distance: None,
            cursor: 0,
            ahead: None,
            goal,
        }
    }

    /// Returns the bytes that what was loaded takes in memory, about.
    pub(in crate::context) fn bytes(&self) -> usize {
        let bytes = self.strings.bytes() + self.strings.len() * ELEMENT_BYTES;
        // Names of fields with deadlines are there twice.
        let bytes = bytes * (2 - usize::from(self.deadlines.is_empty()));
        bytes + self.names.len() * size_of::<u32>()
    }

    /// Puts elements that were read backwards, if they were, into the order of the collection.
    pub(in crate::context) fn put_in_order(&mut self, is_backwards: bool) {
        if is_backwards {
            self.strings.reverse(self.goal.strings_of_one());
            self.positions.reverse(1);
            self.counts.reverse();
        }
    }

    /// Returns true if it is of a list in blocks.
    pub(in crate::context) fn is_of_blocks(&self) -> bool {
        self.goal.kind == Kind::Position && self.goal.head.is_blocks
    }

    /// Passes over one of the elements that are to be passed over.
    pub(in crate::context) fn pass_one(&mut self) -> bool {
        self.skipped -= 1;
        true
    }

    /// Passes over the row of a block with so many elements if none of them is wanted; else the
    /// block is to be added. Returns true if it was passed over.
    pub(in crate::context) fn pass_block(&mut self, elements: usize) -> bool {
        if self.skipped >= elements {
            self.skipped -= elements;
            return true;
        }
        // Only the first block has any before those that are wanted.
        self.lead += self.skipped;
        self.left += self.skipped;
        self.skipped = 0;
        false
    }

    /// Adds all elements of a block.
    fn add_block(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        let mut elements = Elements::of(value)?;
        let count = elements.left();
        let before = self.strings.len();
        while let Some(element) = elements.next()? {
            self.strings.push(element);
        }
        if self.goal.is_backwards {
            // All of it is reversed once it is loaded.
            self.strings.reverse_from(before);
        }
        self.positions.push(elements::position_of(key));
        self.counts.push(count);
        self.left = self.left.saturating_sub(count);
        Ok(())
    }

    /// Changes to the elements behind those that are wanted, or back.
    pub(in crate::context) fn turn_to_ahead(&mut self) {
        if let Some(ahead) = &mut self.ahead {
            std::mem::swap(&mut self.strings, &mut ahead.strings);
            std::mem::swap(&mut self.positions, &mut ahead.positions);
        }
    }

    /// Returns none of the elements of a collection, which has this head, by rows of this kind.
    pub(in crate::context) fn empty(head: TreeHead, kind: Kind, has_values: bool) -> Self {
        Self::new(Goal {
            exec_index: None,
            database: 0,
            last_swap: Lsn::default(),
            head,
            kind,
            has_values,
            from: Bound::Unbounded,
            until: None,
            is_backwards: false,
            skipped: 0,
            count: 0,
            living: None,
            passes_removed: false,
            pending: None,
            around: None,
            window: None,
            names: None,
        })
    }

    /// Returns elements that were chosen from those of `all`.
    pub(in crate::context) fn of(strings: Strings, all: &Self) -> Self {
        let mut load = Self::new(all.goal.clone());
        load.strings = strings;
        load.deadlines = all.deadlines.clone();
        load
    }

    /// Makes room for what it may get of a leaf with so many rows.
    pub(in crate::context) fn make_room(&mut self, rows: usize) {
        if self.goal.kind == Kind::Time {
            return;
        }
        if self.is_of_blocks() {
            let elements = self.left.min(LEAF_BYTES / SHORT_BYTES);
            self.strings.reserve(elements, LEAF_BYTES);
            self.positions.reserve(rows, rows * size_of::<u64>());
            return;
        }
        let elements = rows.min(self.left);
        let bytes = (elements * LONG_BYTES).min(LEAF_BYTES);
        self.strings
            .reserve(elements * self.goal.strings_of_one(), bytes);
        if self.goal.kind == Kind::Position {
            self.positions
                .reserve(elements, elements * size_of::<u64>());
        }
    }

    /// Returns true if nothing of it is missing.
    pub(in crate::context) fn is_complete(&self) -> bool {
        let count = self.strings.len() / self.goal.strings_of_one();
        self.left == 0 || self.goal.living.is_some_and(|enough| count >= enough)
    }

    /// As [`Load::add`], but passes over a field that has expired at `now_ms` if these are to be
    /// left out.
    pub(in crate::context) fn add_living(
        &mut self,
        (key, value): (&[u8], &[u8]),
        now_ms: u64,
    ) -> Result<(), RowError> {
        if self.goal.living.is_some()
            // Only fields expire, which are found by name.
            && self.goal.kind == Kind::Name
            && let Some(deadline) = elements::decode_name(key, value)?.deadline
            && has_ended(deadline, now_ms)
        {
            self.left = self.left.saturating_sub(1);
            return Ok(());
        }
        self.add(key, value)
    }

    /// Cuts members near a place to those that are wanted of them.
    pub(in crate::context) fn cut_to(
        &mut self,
        (around, order): (&Around, Order),
    ) -> Result<(), RowError> {
        let scores = (1..self.strings.len()).step_by(2).map(|at| {
            let score = self.strings.at(at).try_into();
            score.map(f64::from_le_bytes).map_err(|_| RowError::Damaged)
        });
        let distances = scores.map(|score| around.distance(score?).ok_or(RowError::Damaged));
        let distances = distances.collect::<Result<Vec<f64>, RowError>>()?;
        let (places, last) = order.cut(&distances);
        let mut kept = Strings::default();
        for place in places {
            kept.push(self.strings.at(2 * place));
            kept.push(self.strings.at(2 * place + 1));
        }
        self.strings = kept;
        self.last_distance = Some(last);
        Ok(())
    }

    /// Adds the element of the row at `key`.
    pub(in crate::context) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), RowError> {
        match self.goal.kind {
            Kind::Position if self.goal.window.is_some() => {
                self.strings.push(elements::position_of(key));
                self.strings.push(value);
            }
            Kind::Position if self.goal.head.is_blocks => return self.add_block(key, value),
            Kind::Position => {
                self.strings.push(elements::decode_element(value)?);
                let position = elements::position_of(key);
                self.positions.push(position);
            }
            Kind::Score => {
                let (score, member) = elements::decode_score(key, value)?;
                self.strings.push(member);
                self.strings.push(&score.to_le_bytes());
            }
            Kind::Piece
            | Kind::Entry
            | Kind::Group
            | Kind::Consumer
            | Kind::ConsumerName
            | Kind::Pending
            | Kind::Owned => {
                self.strings
                    .push(key.get(elements::START_BYTES..).ok_or(RowError::Damaged)?);
                if self.goal.has_values {
                    self.strings.push(value);
                }
            }
            Kind::Name => {
                let row = elements::decode_name(key, value)?;
                self.strings.push(row.name);
                if self.goal.has_values {
                    self.strings.push(row.value);
                }
                if row.deadline.is_some() && !self.goal.has_values {
                    return Err(RowError::Damaged);
                }
                if let Some(deadline) = row.deadline {
                    self.deadlines.set(row.name, deadline);
                }
            }
            Kind::Time | Kind::Id => return Err(RowError::Damaged),
        }
        self.left = self.left.saturating_sub(1);
        Ok(())
    }
}

/// Returns the kind of the rows that show the elements of a collection in its order.
pub(in crate::context) fn kind_of(value_type: ValueType) -> Kind {
    match value_type {
        ValueType::List => Kind::Position,
        ValueType::SortedSet => Kind::Score,
        _ => Kind::Name,
    }
}
