//! Ends of large lists: where an element is added, or is removed from, is known by the head, so
//! nothing else is read, and no part of the list is made in memory (decision 102).
//!
//! These are ways that are shorter, and none of them is another form of the list: what they write
//! is what `changes.rs` writes of a part that has been edited so. Lists of few elements do not come
//! here: they are read whole, and may become packed.

use std::ops::Bound;

use pando_resp::Writer;
use pandodb::Table;
use pandodb::nonblocking::{Polled, ScanPage};

use super::kept_head::{Beside, Held};
use super::list_end::{ListEnd, PageAhead};
use super::part::ELEMENT_BYTES;
use super::source::{Bounds, Source};
use crate::context::{Context, Data, Interrupted, Run, replies};
use crate::data::elements;
use crate::data::keyspace::ValueType;
use crate::data::tree_head::TreeHead;

/// Most leaves without elements that are passed over.
const EMPTY_LEAVES_MAX: usize = 4;

/// Most elements that are read ahead if some of them are writes of the same batch.
const AHEAD_MAX: usize = 64;

impl Context<'_> {
    /// Adds elements to the list at `key`, which [`Context::long_collection`] has returned, one
    /// after the other at an end. Returns the new length.
    pub(crate) fn push_at_end<'e>(
        &mut self,
        key: &[u8],
        (mut held, end): (Held, ListEnd),
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<usize, Interrupted> {
        for element in elements.clone() {
            self.check_element(ValueType::List, element.len())?;
        }
        if held.head.is_blocks {
            return self.push_block(key, (held, end), elements);
        }
        let head = &mut held.head;
        let mut changes = self.changes(head)?;
        for element in elements {
            let position = head.widen(end);
            changes.put_element(head.id, &position.to_be_bytes(), element)?;
            head.count += 1;
        }
        let buffers = changes.finish(head);
        self.give_back(buffers);
        self.end_with_head((key, ValueType::List), held, Beside::Nothing)?;
        Ok(held.head.len())
    }

    /// Removes the element at an end of the list at `key`, which [`Context::long_collection`] has
    /// returned, and replies with it; `false`, and nothing was done, if its position is not known,
    /// as the list is not dense.
    pub(crate) fn pop_at_end(
        &mut self,
        key: &[u8],
        (mut held, end): (Held, ListEnd),
    ) -> Result<bool, Interrupted> {
        if held.head.is_blocks {
            self.pop_block(key, (held, end))?;
            return Ok(true);
        }
        let head = &mut held.head;
        if !head.is_dense() {
            return Ok(false);
        }
        let position = position_at(head, end);
        let members = self.members()?;
        let scratch = &mut *self.data().scratch;
        elements::position_key(head.id, &position, &mut scratch.element_key);
        // It pays to read ahead if the command before this one was the same.
        let ahead = match self.take_beside() {
            Some(beside) => self.reply_in_page(members, end, beside)?,
            None => None,
        };
        if ahead.is_none() {
            self.reply_element(members)?;
        }
        let mut changes = self.changes(head)?;
        changes.delete_element(head.id, &position);
        match end {
            ListEnd::Head => head.low += 1,
            ListEnd::Tail => head.high -= 1,
        }
        head.count -= 1;
        let buffers = changes.finish(head);
        self.give_back(buffers);
        let beside = ahead.map_or(Beside::Nothing, Beside::Page);
        self.end_with_head((key, ValueType::List), held, beside)?;
        Ok(true)
    }

    /// Replies with the element whose key is in the scratch.
    fn reply_element(&mut self, members: &Table) -> Run {
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let mut source = Source::new(batch.as_deref_mut());
        match source.get(members, &scratch.element_key, &mut scratch.element_row)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(false) => return Err(Interrupted::Torn),
            Polled::Ready(true) => {}
        }
        self.progress.show_from(source.shown_from);
        let element = elements::decode_element(&scratch.element_row)?;
        let length = element.len();
        Writer::new(self.out, self.session.version).bulk(element);
        self.check_element_reply(length)
    }

    /// Replies with the element whose key is in the scratch, from the page of the scratch, which is
    /// read first unless the command before this one has left the element there. Returns what lies
    /// behind it; `None`, and nothing was done, if the page does not have it.
    fn reply_in_page(
        &mut self,
        members: &Table,
        end: ListEnd,
        beside: Beside,
    ) -> Result<Option<PageAhead>, Interrupted> {
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let (page, wanted) = (&mut scratch.page, &scratch.element_key[..]);
        let mut source = Source::new(batch.as_deref_mut());
        let range = (Bound::Included(wanted), Bound::Unbounded);
        let next = match turn_page(&mut source, members, (range, end), Some(beside), page)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(next) => next,
        };
        self.progress.show_from(source.shown_from);
        if next == page.len() {
            return Ok(None);
        }
        // A long one lies elsewhere.
        let (key, Some(row)) = page.entry(next) else {
            return Ok(None);
        };
        if key != wanted {
            return Err(Interrupted::Torn);
        }
        let element = elements::decode_element(row)?;
        let length = element.len();
        Writer::new(self.out, self.session.version).bulk(element);
        self.check_element_reply(length)?;
        Ok(Some(PageAhead::new(end, next + 1)))
    }

    /// Refuses the command if it has replied with an element of so many bytes, and that, or all, is
    /// too long.
    pub(super) fn check_element_reply(&self, bytes: usize) -> Run {
        if bytes + ELEMENT_BYTES > self.engine().reply_bytes_max {
            return Err(replies::TOO_LONG_TO_LOAD.into());
        }
        self.check_reply()
    }
}

/// Returns the position of the element at an end of a dense list.
fn position_at(head: &TreeHead, end: ListEnd) -> [u8; 8] {
    match end {
        ListEnd::Head => head.low.to_be_bytes(),
        ListEnd::Tail => head.high.to_be_bytes(),
    }
}

/// Reads a page, which begins at the first bound of the range and leads away from the end, unless
/// it has elements that the command before this one has left there. Returns the number of the entry
/// at the end; that of all entries if the page has none.
pub(super) fn turn_page(
    source: &mut Source<'_>,
    table: &Table,
    (range, end): (Bounds<'_>, ListEnd),
    beside: Option<Beside>,
    page: &mut ScanPage,
) -> pandodb::Result<Polled<usize>> {
    if let Some(Beside::Page(ahead)) = beside
        && ahead.end == end
        && ahead.next < page.len()
    {
        return Ok(Polled::Ready(ahead.next));
    }
    let is_backwards = end == ListEnd::Tail;
    let mut polled = source.scan(table, (range, is_backwards), AHEAD_MAX, page)?;
    // The first row of a kind may begin a leaf, and a batch may have removed all of one.
    for _ in 0..EMPTY_LEAVES_MAX {
        if matches!(polled, Polled::Pending(_)) || !page.is_empty() {
            break;
        }
        let Some(next) = page.next.take() else {
            break;
        };
        let from = match is_backwards {
            true => Bound::Excluded(&next[..]),
            false => Bound::Included(&next[..]),
        };
        polled = source.scan(table, ((from, range.1), is_backwards), AHEAD_MAX, page)?;
    }
    Ok(polled.map(|()| 0))
}
