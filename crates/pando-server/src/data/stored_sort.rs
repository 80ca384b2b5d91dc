//! The rows of a list of what SORT has for a large collection (decision 131).

use pandodb::Error;

use super::combination::Merged;
use super::elements::position_key;
use super::keyspace::RowError;
use super::list_block::{Block, encode_long, is_long};
use super::new_rows::{NewRows, NextRows};
use super::packed::Strings;
use super::shown_rows::Broken;
use super::shown_sort::{ShownSort, SortRequest};
use super::tree_head::{FIRST_POSITION, TreeHead};

/// Bytes of a result up to which it is handed on, and no rows are made of it: Redis may show that a
/// longer one is a listpack, and no rows say so.
const LITTLE_BYTES: usize = 256 << 10;
/// Elements of one call, at most.
const STEPS: usize = 4096;

/// Makes the rows.
#[derive(Debug)]
pub(crate) struct StoredSort {
    request: SortRequest,
    /// The head of the collection: its key may have another one by now, or in the store.
    head: TreeHead,
    id: u64,
    element_bytes_max: usize,
    /// Not there before it has begun.
    sort: Option<ShownSort>,
    is_counted: bool,
    merged: Merged,
    block: Block,
    value: Vec<u8>,
    key: Vec<u8>,
    row: Vec<u8>,
}

impl StoredSort {
    /// Returns the rows of the list `id`, each of whose elements has so many bytes at most, and
    /// which is made of the collection with this head.
    pub(crate) fn new(
        (request, head): (SortRequest, TreeHead),
        id: u64,
        element_bytes_max: usize,
    ) -> Self {
        let mut block = Block::default();
        block.clear();
        Self {
            request,
            head,
            id,
            element_bytes_max,
            sort: None,
            is_counted: false,
            merged: Merged {
                little: Some(Strings::default()),
                ..Merged::default()
            },
            block,
            value: Vec::new(),
            key: Vec::new(),
            row: Vec::new(),
        }
    }

    /// Adds the element that was read last. Returns false if there are rows enough for a
    /// transaction.
    fn add(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        let (bytes, most) = (self.value.len(), self.element_bytes_max);
        if bytes > most {
            return Err(format!(
                "an element of {bytes} bytes is too long: the most is {most}"
            ));
        }
        self.merged.count += 1;
        let Some(little) = &mut self.merged.little else {
            return Ok(self.add_to_rows(rows));
        };
        little.push(&self.value);
        if little.bytes() < LITTLE_BYTES {
            return Ok(true);
        }
        let all = self.merged.little.take().unwrap_or_default();
        let mut has_room = true;
        for element in all.iter() {
            self.value.clear();
            self.value.extend_from_slice(element);
            has_room = self.add_to_rows(rows);
        }
        Ok(has_room)
    }

    fn add_to_rows(&mut self, rows: &mut NextRows) -> bool {
        if is_long(self.value.len()) {
            let has_room = self.end_block(rows);
            encode_long(&self.value, &mut self.row);
            return self.push_row(rows) && has_room;
        }
        let mut has_room = true;
        if !self.block.has_room(&self.value) {
            has_room = self.end_block(rows);
        }
        self.block.push(&self.value);
        has_room
    }

    /// Adds the block, if it has elements, and begins another one.
    fn end_block(&mut self, rows: &mut NextRows) -> bool {
        if self.block.len() == 0 {
            return true;
        }
        self.row.clear();
        self.row.extend_from_slice(self.block.full_row());
        self.block.clear();
        self.push_row(rows)
    }

    fn push_row(&mut self, rows: &mut NextRows) -> bool {
        let position = FIRST_POSITION + self.merged.rows;
        self.merged.rows += 1;
        position_key(self.id, &position.to_be_bytes(), &mut self.key);
        rows.push(&self.key, &self.row)
    }
}

impl StoredSort {
    /// See [`NewRows::next`].
    fn step(&mut self, rows: &mut NextRows) -> Result<bool, Broken> {
        let Some(sort) = &mut self.sort else {
            let snapshot = self.request.rows.keys.db().snapshot()?;
            self.sort = Some(self.request.sorted(snapshot, self.head));
            return Ok(true);
        };
        if !self.is_counted {
            self.is_counted = sort.counted()?.is_some();
            return Ok(true);
        }
        for _ in 0..STEPS {
            let sort = self.sort.as_mut().ok_or(RowError::Damaged)?;
            if !sort.next_value(self.element_bytes_max, &mut self.value)? {
                self.end_block(rows);
                return Ok(false);
            }
            if !self.add(rows).map_err(Broken::Text)? {
                break;
            }
        }
        Ok(true)
    }
}

impl NewRows for StoredSort {
    fn next(&mut self, rows: &mut NextRows) -> Result<bool, String> {
        match self.step(rows) {
            Err(Broken::Engine(Error::SnapshotEnded)) => {
                self.merged.is_lost = true;
                Ok(false)
            }
            // The collection may have changed since its head was read.
            Err(Broken::Row(_)) => {
                self.merged.is_torn = true;
                Ok(false)
            }
            other => other.map_err(Broken::text),
        }
    }

    fn merged(&mut self) -> Option<Merged> {
        Some(self.merged.clone())
    }
}
