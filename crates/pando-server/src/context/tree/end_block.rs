//! Ends of lists in blocks: an element is added to, or removed from, the block at the end. A
//! stretch of a pipeline has that in memory, and writes it with the head (`kept_head.rs`).
//!
//! A command that fails leaves the block of those before it: it changes a block that was kept once
//! nothing can fail any more, or works with a copy.

use std::ops::Bound;

use pando_resp::Writer;
use pandodb::nonblocking::Polled;

use super::changes::{Changes, less};
use super::edition::Edition;
use super::kept_head::{Beside, Held};
use super::list_end::{EndBlock, ListEnd};
use super::source::Source;
use crate::context::{Context, Data, Interrupted, Run};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::list_block;
use crate::data::tree_head::TreeHead;

impl Changes<'_> {
    /// Adds elements at an end, one after the other; `last` is the block there, and becomes the new
    /// one. It is not written; those that are full before it are.
    fn push_blocks<'e>(
        &mut self,
        (head, last): (&mut TreeHead, &mut EndBlock),
        end: ListEnd,
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Run {
        for element in elements {
            self.add_to_edition(element);
            head.count += 1;
            if last.has_room(element) {
                last.push(element, end);
                continue;
            }
            self.put_end_block(head.id, last)?;
            last.begin(head, end);
            last.is_long = list_block::is_long(element.len());
            match last.is_long {
                true => self.put_element(head.id, &last.position, element)?,
                false => last.push(element, end),
            }
        }
        Ok(())
    }

    /// Writes the block, if it has changed. The edition was told of each element.
    fn put_end_block(&mut self, id: u64, of: &EndBlock) -> Run {
        if of.has_changed {
            elements::position_key(id, &of.position, &mut self.key);
            self.row.clear();
            self.row.extend_from_slice(of.block.row());
            self.put_unnoted()?;
        }
        Ok(())
    }

    /// Deletes the block, which has no elements left.
    fn delete_end_block(&mut self, head: &mut TreeHead, of: &EndBlock, end: ListEnd) {
        self.delete_element(head.id, &of.position);
        head.narrow(end, &of.position);
    }
}

impl Context<'_> {
    /// As [`Context::push_at_end`], of a list in blocks.
    pub(super) fn push_block<'e>(
        &mut self,
        key: &[u8],
        (mut held, end): (Held, ListEnd),
        mut elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<usize, Interrupted> {
        let (mut last, was_kept) = self.end_block(&mut held.head, end)?;
        let (first, more) = (elements.next(), elements.clone().next());
        let (Some(element), None) = (first, more) else {
            let all = first.into_iter().chain(elements);
            return self.push_several(key, (held, end), (last, was_kept), all);
        };
        if !last.has_room(element) {
            let all = std::iter::once(element);
            return self.push_several(key, (held, end), (last, was_kept), all);
        }
        let before = held.head;
        held.head.count += 1;
        self.end_edition(&mut held.head, element);
        last.push(element, end);
        self.note_end((&before, &held.head), (end, &last));
        self.end_with_block(key, held, Some(last))?;
        Ok(held.head.len())
    }

    /// As [`Context::push_block`]; may write further blocks.
    fn push_several<'e>(
        &mut self,
        key: &[u8],
        (mut held, end): (Held, ListEnd),
        (mut last, was_kept): (EndBlock, bool),
        elements: impl Iterator<Item = &'e [u8]>,
    ) -> Result<usize, Interrupted> {
        let (head, before) = (held.head, was_kept.then(|| last.clone()));
        let mut changes = self.changes(&held.head)?;
        let pushed = changes.push_blocks((&mut held.head, &mut last), end, elements);
        let buffers = changes.finish(&mut held.head);
        self.give_back(buffers);
        if let Err(interrupted) = pushed {
            self.keep_block(before);
            return Err(interrupted);
        }
        self.note_end((&head, &held.head), (end, &last));
        self.end_with_block(key, held, Some(last))?;
        Ok(held.head.len())
    }

    /// As [`Context::pop_at_end`], of a list in blocks.
    pub(super) fn pop_block(&mut self, key: &[u8], (mut held, end): (Held, ListEnd)) -> Run {
        let (mut last, was_kept) = self.end_block(&mut held.head, end)?;
        let before = held.head;
        let shown = self.reply_last(&mut last, end).and_then(|()| {
            // If there is none left, the head is of a later moment than the row.
            held.head.count = less(held.head.count, 1)?;
            Ok(())
        });
        if let Err(interrupted) = shown {
            self.keep_block(was_kept.then_some(last));
            return Err(interrupted);
        }
        if last.block.len() > 1 {
            last.pop(end);
            let position = std::mem::take(&mut last.position);
            self.end_edition(&mut held.head, &position);
            last.position = position;
            self.note_end((&before, &held.head), (end, &last));
            return self.end_with_block(key, held, Some(last));
        }
        let mut changes = self.changes(&held.head)?;
        changes.delete_end_block(&mut held.head, &last, end);
        let buffers = changes.finish(&mut held.head);
        self.give_back(buffers);
        self.note_end((&before, &held.head), (end, &last));
        self.end_with_block(key, held, None)
    }

    /// Replies with the element at the end of the block.
    fn reply_last(&mut self, last: &mut EndBlock, end: ListEnd) -> Run {
        let scratch = &self.data.as_ref().expect("a row was read").scratch;
        let element = match last.is_long {
            true => elements::decode_element(&scratch.element_row)?,
            false => last.last(end).ok_or(RowError::Damaged)?,
        };
        let length = element.len();
        Writer::new(self.out, self.session.version).bulk(element);
        self.check_element_reply(length)
    }

    /// Gives `head` the edition of a command that has changed one element, of which it has `bytes`.
    fn end_edition(&mut self, head: &mut TreeHead, bytes: &[u8]) {
        let mut edition = Edition::behind(head.edition, self.progress.seed());
        edition.add(bytes, None);
        head.edition = edition.finish();
    }

    /// Notes that a command has changed a list at an end, where `last` is or was the block.
    fn note_end(&mut self, heads: (&TreeHead, &TreeHead), end: (ListEnd, &EndBlock)) {
        let database = self.session.database;
        self.progress.known_ends.note(database, heads, end);
    }

    /// Writes or keeps the head of a list, and the block at its end: the last thing that a command
    /// does.
    fn end_with_block(&mut self, key: &[u8], held: Held, last: Option<EndBlock>) -> Run {
        if self.keeps_head() {
            self.end_with_head((key, ValueType::List), held, Beside::Nothing)?;
            self.keep_block(last);
            return Ok(());
        }
        if let Some(last) = last {
            self.write_end_block(held.head, &last)?;
            self.data().scratch.end_block = last;
        }
        self.end_with_head((key, ValueType::List), held, Beside::Nothing)
    }

    /// Writes a block that has changed. It still counts as changed: what is written here may be
    /// undone.
    pub(super) fn write_end_block(&mut self, head: TreeHead, last: &EndBlock) -> Run {
        let mut changes = self.changes(&head)?;
        let put = changes.put_end_block(head.id, last);
        let buffers = changes.give_up();
        self.give_back(buffers);
        put
    }

    /// Keeps the block with the head that is kept.
    fn keep_block(&mut self, last: Option<EndBlock>) {
        if let Some(kept) = &mut self.progress.kept_head {
            kept.end_block = last;
        }
    }

    /// Returns the block at an end of the list with this head, and true if the command before this
    /// one has kept it: then it must be kept again. Else it is read; a long element is in the
    /// scratch.
    fn end_block(
        &mut self,
        head: &mut TreeHead,
        end: ListEnd,
    ) -> Result<(EndBlock, bool), Interrupted> {
        // What may fail in `changes`, before a block is taken that must be kept.
        self.members()?;
        // The same command works at the same end.
        let kept = self.progress.kept_head.as_mut();
        let kept = kept.filter(|kept| !kept.is_written);
        if let Some(last) = kept.and_then(|kept| kept.end_block.take_if(|of| !of.is_long)) {
            return Ok((last, true));
        }
        let mut last = std::mem::take(&mut self.data().scratch.end_block);
        self.read_end_block(head, end, &mut last)?;
        Ok((last, false))
    }

    fn read_end_block(&mut self, head: &mut TreeHead, end: ListEnd, last: &mut EndBlock) -> Run {
        if !self.read_numbered(head, end)? {
            self.find_end_block(head, end)?;
        }
        let scratch = &self.data().scratch;
        last.position.clear();
        let position = elements::position_of(&scratch.element_key);
        last.position.extend_from_slice(position);
        last.has_changed = false;
        last.is_long = !last.block.read(&scratch.element_row)?;
        Ok(())
    }

    /// Reads the row at the number that the head tells, if all positions are numbers; false if
    /// there is none.
    fn read_numbered(&mut self, head: &TreeHead, end: ListEnd) -> Result<bool, Interrupted> {
        if !head.is_numbered {
            return Ok(false);
        }
        let position = match end {
            ListEnd::Head => head.low,
            ListEnd::Tail => head.high,
        };
        let key = &mut self.data().scratch.element_key;
        elements::position_key(head.id, &position.to_be_bytes(), key);
        self.read_row_of_scratch()
    }

    /// Reads the row whose key is in the scratch; false if there is none.
    fn read_row_of_scratch(&mut self) -> Result<bool, Interrupted> {
        let members = self.members()?;
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let mut source = Source::new(batch.as_deref_mut());
        let polled = source.get(members, &scratch.element_key, &mut scratch.element_row)?;
        let found = match polled {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(found) => found,
        };
        self.progress.show_from(source.shown_from);
        Ok(found)
    }

    /// Finds the row at the end, and reads it. There may be many leaves without rows before it, of
    /// blocks that were removed a moment ago, if these had positions that were no numbers.
    fn find_end_block(&mut self, head: &mut TreeHead, end: ListEnd) -> Run {
        let members = self.members()?;
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let mut source = Source::new(batch.as_deref_mut());
        let prefix = elements::start(head.id, Kind::Position);
        let (mut low, mut behind) = (Vec::new(), Vec::new());
        elements::position_key(head.id, &head.low.to_be_bytes(), &mut low);
        let beyond = head.high.saturating_add(1).to_be_bytes();
        elements::position_key(head.id, &beyond, &mut behind);
        let database = self.session.database;
        if let Some(position) = self.progress.known_ends.of(database, head, end) {
            match end {
                ListEnd::Head => elements::position_key(head.id, position, &mut low),
                ListEnd::Tail => {
                    elements::position_key(head.id, position, &mut behind);
                    // Behind it comes no other before this.
                    behind.push(0);
                }
            }
        }
        let is_backwards = end == ListEnd::Tail;
        let page = &mut scratch.page;
        loop {
            let range = match is_backwards {
                false => (Bound::Included(&low[..]), Bound::Excluded(&behind[..])),
                true => (Bound::Excluded(&behind[..]), Bound::Included(&low[..])),
            };
            if let Polled::Pending(pending) =
                source.scan(members, (range, is_backwards), 1, page)?
            {
                return Err(Interrupted::Pending(pending));
            }
            if !page.is_empty() {
                break;
            }
            match page.next.take() {
                Some(next) if is_backwards => behind = next,
                Some(next) => low = next,
                None => return Err(Interrupted::Torn),
            }
        }
        let (key, row) = page.entry(0);
        if !key.starts_with(&prefix) {
            return Err(Interrupted::Torn);
        }
        scratch.element_key.clear();
        scratch.element_key.extend_from_slice(key);
        let is_whole = row.is_some();
        scratch.element_row.clear();
        scratch
            .element_row
            .extend_from_slice(row.unwrap_or_default());
        let position = elements::position_of(&scratch.element_key);
        if head.is_numbered {
            let number = position.try_into().map(u64::from_be_bytes);
            let number = number.map_err(|_| RowError::Damaged)?;
            match end {
                ListEnd::Head => head.low = number,
                ListEnd::Tail => head.high = number,
            }
        }
        let shown_from = source.shown_from;
        self.progress.show_from(shown_from);
        // A long one lies elsewhere.
        match is_whole || self.read_row_of_scratch()? {
            true => Ok(()),
            false => Err(Interrupted::Torn),
        }
    }
}
