//! Elements of a large list that go from its leaves to the reply: a part of it in memory would be
//! copied three times on the way (decision 102).
//!
//! Only what a command without a transaction reads of a list that is dense or in blocks, in a few
//! leaves that are in memory. Whatever is in the way takes the reply back, and a run with a
//! transaction loads the part.

use std::ops::{Bound, Range};

use pando_resp::Writer;
use pandodb::nonblocking::{EntryFrom, Polled, Reads};

use super::part::ELEMENT_BYTES;
use super::source::Source;
use crate::context::{Context, Data, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::list_block::Elements;
use crate::data::tree_head::TreeHead;

/// Most elements that are shown so.
const SHOWN_MAX: usize = 512;
/// Most leaves that are read, before others get a turn.
const LEAVES_MAX: usize = 8;

impl Context<'_> {
    /// Replies with an array of the elements at `places` of the list with this head, which was read
    /// last; `false` if they have to be loaded.
    pub(crate) fn reply_elements(
        &mut self,
        head: TreeHead,
        places: &Range<usize>,
    ) -> Result<bool, Interrupted> {
        let is_short = (2..=SHOWN_MAX).contains(&places.len());
        let is_known = head.is_blocks || head.is_dense();
        if self.data().batch.is_some() || !is_known || !is_short {
            return Ok(false);
        }
        self.reply().array(places.len());
        let shown = self.show_elements(&head, places);
        self.confirmed(head, shown)?;
        self.check_reply()?;
        Ok(true)
    }

    /// Replies with the element at `place` of the list with this head, which was read last; `false`
    /// if it has to be loaded.
    pub(crate) fn reply_place(
        &mut self,
        head: TreeHead,
        place: usize,
    ) -> Result<bool, Interrupted> {
        if self.data().batch.is_some() || !head.is_blocks {
            return Ok(false);
        }
        let shown = self.show_place(&head, place);
        self.confirmed(head, shown)?;
        self.check_reply()?;
        Ok(true)
    }

    fn show_place(&mut self, head: &TreeHead, place: usize) -> Run {
        let (members, version) = (self.members()?, self.session.version);
        let prefix = elements::start(head.id, Kind::Position);
        let scratch = &mut *self.data.as_mut().expect("a row was read").scratch;
        let (key, row) = (&mut scratch.element_key, &mut scratch.element_row);
        let mut shown_from = None;
        let from = (&prefix[..], place as u64);
        let entry = Reads::of(members).entry_from(from, (&mut *key, &mut *row), &mut shown_from)?;
        let Polled::Ready(EntryFrom::Whole(before)) = entry else {
            // Not in memory, or a long one, or of another moment.
            return Err(Interrupted::ReadsMany);
        };
        if !key.starts_with(&prefix) {
            return Err(Interrupted::Torn);
        }
        let mut elements = Elements::of(row)?;
        elements.skip(usize::try_from(before).unwrap_or(usize::MAX))?;
        let element = elements.next()?.ok_or(Interrupted::Torn)?;
        Writer::new(self.out, version).bulk(element);
        self.progress.show_from(shown_from);
        Ok(())
    }

    fn show_elements(&mut self, head: &TreeHead, places: &Range<usize>) -> Run {
        let (members, version) = (self.members()?, self.session.version);
        let most = self.engine().reply_bytes_max;
        let prefix = elements::start(head.id, Kind::Position);
        let end = elements::behind(head.id, Kind::Position);
        let mut from = prefix.to_vec();
        let mut before = 0;
        if !head.is_blocks {
            let position = head.low + places.start as u64;
            elements::position_key(head.id, &position.to_be_bytes(), &mut from);
        } else if places.start > 0 {
            let reads = Reads::of(members);
            match reads.key_from(&prefix, places.start as u64, &mut from)? {
                Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                Polled::Ready(found) => before = found.ok_or(Interrupted::Torn)?,
            }
        }
        let mut before = usize::try_from(before).unwrap_or(usize::MAX);
        let (mut left, mut bytes) = (places.len(), 0);
        for _ in 0..LEAVES_MAX {
            let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
            let mut source = Source::new(batch.as_deref_mut());
            let page = &mut scratch.page;
            let range = (
                (Bound::Included(&from[..]), Bound::Excluded(&end[..])),
                false,
            );
            if let Polled::Pending(pending) = source.scan(members, range, left, page)? {
                return Err(Interrupted::Pending(pending));
            }
            let mut writer = Writer::new(self.out, version);
            for index in 0..page.len() {
                let (key, row) = page.entry(index);
                if !key.starts_with(&prefix) {
                    return Err(Interrupted::Torn);
                }
                // A long one lies elsewhere.
                let row = row.ok_or(Interrupted::ReadsMany)?;
                let mut elements = match head.is_blocks {
                    true => Elements::of(row)?,
                    false => Elements::of_one(row)?,
                };
                elements.skip(std::mem::take(&mut before).min(elements.left()))?;
                let shown = elements.left().min(left);
                let before = elements.bytes_left();
                elements.write(shown, &mut writer)?;
                bytes += before - elements.bytes_left() + shown * ELEMENT_BYTES;
                left -= shown;
                if left == 0 {
                    break;
                }
            }
            self.progress.show_from(source.shown_from);
            if bytes > most {
                return Err(replies::TOO_LONG_TO_LOAD.into());
            }
            match page.next.take() {
                _ if left == 0 => return Ok(()),
                Some(next) => from = next,
                None => return Err(Interrupted::Torn),
            }
        }
        Err(Interrupted::ReadsMany)
    }
}
