//! Keeping, finding and confirming the heads that commands of a pipeline run share when they read
//! (`read_stretch.rs`; decision 119).

use pandodb::Lsn;
use pandodb::nonblocking::{Polled, Reads};

use super::load::head_of;
use super::read_stretch::ReadStretch;
use crate::context::{Context, Found, Interrupted};
use crate::data::keyspace::{Row, ValueType};
use crate::data::tree_head::TreeHead;

impl Context<'_> {
    /// Keeps the row that was read last, whose head is this one, for the commands behind this one;
    /// or goes on with the one that a command before it has kept. Returns false if the command has
    /// to look at the head again itself.
    pub(super) fn goes_on_in_stretch(&mut self, head: &TreeHead) -> bool {
        if !self.is_together || self.exec_index.is_some() {
            return false;
        }
        if let Some(stretch) = &self.progress.read_stretch {
            return stretch.head == *head;
        }
        let key = self.arguments.at(1);
        let last_swap = self.progress.beside_swap;
        let scratch = &*self.data().scratch;
        let (stored, row) = (&scratch.stored, &scratch.value);
        let Ok(of) = Row::decode(stored, row) else {
            return false;
        };
        // Of a string in pieces more is found than its row and what that was.
        let is_string = matches!(of.value_type, ValueType::Pieces | ValueType::Patched);
        if is_string || head_of(&of, row) != Ok(Some(*head)) {
            return false;
        }
        self.progress.read_stretch = Some(Box::new(ReadStretch {
            key: key.to_vec(),
            row: row.clone(),
            head: *head,
            last_swap,
            found: None,
        }));
        true
    }

    /// Returns what [`Context::find`] would find of `key`, whose row a command before this one has
    /// kept.
    #[inline(never)]
    pub(in crate::context) fn find_in_stretch(&mut self, key: &[u8]) -> Result<Found, Interrupted> {
        self.leave_to_itself()?;
        let stretch = self.progress.read_stretch.take();
        let Some(mut stretch) = stretch.filter(|stretch| stretch.is_of(key)) else {
            // The command before it has not been confirmed: nobody is to see its reply.
            return Err(Interrupted::ReadsMany);
        };
        let data = self.data();
        let scratch = &mut *data.scratch;
        scratch.value.clear();
        scratch.value.extend_from_slice(&stretch.row);
        let (row, former) = match stretch.found {
            Some(found) => found,
            None => {
                data.engine.folder.store(key, &mut scratch.stored);
                let found = self.found_plain(key)?;
                (found.row, found.former)
            }
        };
        // All commands of a run have one clock: what has not expired for one lives for the others.
        stretch.found = Some((row, former));
        self.progress.read_stretch = Some(stretch);
        Ok(Found {
            row,
            former,
            ..Found::default()
        })
    }

    /// Reads the head that was kept once more, and forgets it. Returns from which LSN on it may be
    /// shown; `None` if it is another one, or cannot be read now.
    pub(crate) fn end_read_stretch(&mut self) -> Option<Option<Lsn>> {
        let stretch = self.progress.read_stretch.take()?;
        let keys = &self.database().keys;
        let data = self.data();
        let scratch = &mut *data.scratch;
        data.engine.folder.store(&stretch.key, &mut scratch.stored);
        let row = &mut scratch.head_row;
        row.clear();
        let mut shown_from = None;
        let found = Reads::of(keys).get(&scratch.stored, row, &mut shown_from);
        let is_same = matches!(found, Ok(Polled::Ready(true))) && *row == stretch.row;
        let is_same = is_same && stretch.last_swap == Some(self.last_swap());
        is_same.then_some(shown_from)
    }
}
