//! Ends of large lists: where an element is added, or is removed from, is known by the head, so
//! nothing else is read, and no part of the list is made in memory (decision 102).
//!
//! These are ways that are shorter, and none of them is another form of the list: what they write
//! is what `changes.rs` writes of a part that has been edited so. Lists of few elements do not come
//! here: they are read whole, and may become packed.

use pando_resp::Writer;
use pandodb::nonblocking::Polled;

use super::load::ELEMENT_BYTES;
use super::source::Source;
use crate::context::{Context, Data, Found, Interrupted, Run, replies};
use crate::data::elements;
use crate::data::keyspace::{Times, ValueType};
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;

/// An end of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListEnd {
    Head,
    Tail,
}

impl Context<'_> {
    /// Returns the head of the list that was read last, if it is large, has more than `few`
    /// elements, and is no listpack, which may become a quicklist by what is added.
    pub(crate) fn long_list(
        &mut self,
        found: &Found,
        few: usize,
    ) -> Result<Option<TreeHead>, Interrupted> {
        let Some(head) = self.tree_head(found)? else {
            return Ok(None);
        };
        let row = found.row.expect("it has a head");
        let encoding = Encoding::of_payload(self.payload(row))?;
        let is_long = head.len() > few && head.timed == 0 && encoding == Encoding::Quicklist;
        Ok(is_long.then_some(head))
    }

    /// Adds elements to the list with this head, which [`Context::long_list`] has returned, one
    /// after the other at an end. Returns the new length.
    pub(crate) fn push_at_end<'e>(
        &mut self,
        (key, found): (&[u8], &Found),
        (mut head, end): (TreeHead, ListEnd),
        elements: impl Iterator<Item = &'e [u8]> + Clone,
    ) -> Result<usize, Interrupted> {
        for element in elements.clone() {
            self.check_element(ValueType::List, element.len())?;
        }
        let mut changes = self.changes(&head)?;
        for element in elements {
            let position = match end {
                ListEnd::Head => {
                    head.low -= 1;
                    head.low
                }
                ListEnd::Tail => {
                    head.high += 1;
                    head.high
                }
            };
            changes.put_element(head.id, &position.to_be_bytes(), element)?;
            head.count += 1;
        }
        let buffers = changes.finish(&mut head);
        self.give_back(buffers);
        self.put_list_head((key, found), &head)?;
        Ok(head.len())
    }

    /// Replies with the element at an end of the list with this head, which
    /// [`Context::long_list`] has returned; `false` if its position is not known, as the list is
    /// not dense.
    pub(crate) fn reply_end(&mut self, head: &TreeHead, end: ListEnd) -> Result<bool, Interrupted> {
        if !head.is_dense() {
            return Ok(false);
        }
        let (members, version) = (self.members()?, self.session.version);
        let most = self.engine().reply_bytes_max;
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let mut source = Source::new(batch.as_deref_mut());
        let (key, row) = (&mut scratch.element_key, &mut scratch.element_row);
        elements::position_key(head.id, &position_at(head, end), key);
        match source.get(members, key, row)? {
            Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
            Polled::Ready(false) => return Err(Interrupted::Torn),
            Polled::Ready(true) => {}
        }
        let element = elements::decode_element(row)?;
        if element.len() + ELEMENT_BYTES > most {
            return Err(replies::TOO_LONG_TO_LOAD.into());
        }
        self.progress.show_from(source.shown_from);
        Writer::new(self.out, version).bulk(element);
        self.check_reply()?;
        Ok(true)
    }

    /// Removes the element that [`Context::reply_end`] has replied with.
    pub(crate) fn remove_end(
        &mut self,
        (key, found): (&[u8], &Found),
        (mut head, end): (TreeHead, ListEnd),
    ) -> Run {
        let mut changes = self.changes(&head)?;
        changes.delete_element(head.id, &position_at(&head, end));
        match end {
            ListEnd::Head => head.low += 1,
            ListEnd::Tail => head.high -= 1,
        }
        head.count -= 1;
        let buffers = changes.finish(&mut head);
        self.give_back(buffers);
        self.put_list_head((key, found), &head)
    }

    fn put_list_head(&mut self, (key, found): (&[u8], &Found), head: &TreeHead) -> Run {
        let times = Times {
            deadline: found.deadline(),
            fields: None,
        };
        let what = (ValueType::List, Encoding::Quicklist);
        self.put_tree_head(key, (what, head), times, found.former.but_tree())
    }
}

/// Returns the position of the element at an end of a dense list.
fn position_at(head: &TreeHead, end: ListEnd) -> [u8; 8] {
    match end {
        ListEnd::Head => head.low.to_be_bytes(),
        ListEnd::Tail => head.high.to_be_bytes(),
    }
}
