//! Elements of a large list that go from its leaves to the reply: a part of it in memory would be
//! copied three times on the way (decision 102).
//!
//! Only what a command without a transaction reads of a dense list, in a few leaves that are in
//! memory. Whatever is in the way takes the reply back, and a run with a transaction loads the
//! part.

use std::ops::{Bound, Range};

use pando_resp::Writer;
use pandodb::nonblocking::Polled;

use super::load::ELEMENT_BYTES;
use super::source::Source;
use crate::context::{Context, Data, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
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
        if self.data().batch.is_some() || !head.is_dense() || !is_short {
            return Ok(false);
        }
        self.reply().array(places.len());
        let shown = self.show_elements(&head, places);
        self.confirmed(head, shown)?;
        self.check_reply()?;
        Ok(true)
    }

    fn show_elements(&mut self, head: &TreeHead, places: &Range<usize>) -> Run {
        let (members, version) = (self.members()?, self.session.version);
        let most = self.engine().reply_bytes_max;
        let prefix = elements::start(head.id, Kind::Position);
        let end = elements::behind(head.id, Kind::Position);
        let mut from = Vec::new();
        let position = head.low + places.start as u64;
        elements::position_key(head.id, &position.to_be_bytes(), &mut from);
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
            for index in 0..page.len().min(left) {
                let (key, value) = page.entry(index);
                if !key.starts_with(&prefix) {
                    return Err(Interrupted::Torn);
                }
                // A long one lies elsewhere.
                let element = elements::decode_element(value.ok_or(Interrupted::ReadsMany)?)?;
                bytes += element.len() + ELEMENT_BYTES;
                writer.bulk(element);
            }
            left = left.saturating_sub(page.len());
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
