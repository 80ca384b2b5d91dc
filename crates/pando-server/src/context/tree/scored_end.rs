//! Ends of large sorted sets: the member with the lowest or highest score is the first row of its
//! kind at that end, and goes with the row of its name; no part of the sorted set is made in memory
//! (decision 108).

use std::ops::Bound;

use pandodb::nonblocking::Polled;

use super::ends::turn_page;
use super::kept_head::{Beside, Held};
use super::list_end::{ListEnd, PageAhead};
use super::part::ELEMENT_BYTES;
use super::source::Source;
use crate::context::{Context, Data, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::ValueType;

impl Context<'_> {
    /// Removes the member at an end of the large sorted set at `key`, which
    /// [`Context::long_collection`] has returned, behind its reply, which `reply` writes; `false`,
    /// and nothing was done, if it is not found at once.
    pub(crate) fn pop_scored(
        &mut self,
        key: &[u8],
        (mut held, end): (Held, ListEnd),
        reply: impl FnOnce(&mut Self, (f64, &[u8])) -> Run,
    ) -> Result<bool, Interrupted> {
        let head = &mut held.head;
        let mut member = std::mem::take(&mut self.data().scratch.value);
        let popped = self.scored_at(head.id, end, &mut member);
        let Some((score, ahead)) = popped? else {
            return Ok(false);
        };
        reply(self, (score, &member))?;
        let mut changes = self.changes(head)?;
        changes.delete_name(head.id, &member);
        changes.delete_score(head.id, &member, &score.to_le_bytes());
        head.count -= 1;
        let buffers = changes.finish(head);
        self.give_back(buffers);
        self.data().scratch.value = member;
        let beside = Beside::Page(ahead);
        self.end_with_head((key, ValueType::SortedSet), held, beside)?;
        Ok(true)
    }

    /// Replaces `member` by the one at an end of the sorted set `id`. Returns its score, and what
    /// lies behind it.
    fn scored_at(
        &mut self,
        id: u64,
        end: ListEnd,
        member: &mut Vec<u8>,
    ) -> Result<Option<(f64, PageAhead)>, Interrupted> {
        let beside = self.take_beside();
        let members = self.members()?;
        let most = self.engine().reply_bytes_max;
        let start = elements::start(id, Kind::Score);
        let behind = elements::behind(id, Kind::Score);
        let bounds = (Bound::Included(&start[..]), Bound::Excluded(&behind[..]));
        let range = match end {
            ListEnd::Head => bounds,
            ListEnd::Tail => (bounds.1, bounds.0),
        };
        let Data { batch, scratch, .. } = self.data.as_mut().expect("a row was read");
        let mut source = Source::new(batch.as_deref_mut());
        let page = &mut scratch.page;
        let next = match turn_page(&mut source, members, (range, end), beside, page)? {
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
        if !key.starts_with(&start) {
            return Err(Interrupted::Torn);
        }
        let (score, name) = elements::decode_score(key, row)?;
        if name.len() + ELEMENT_BYTES > most {
            return Err(replies::TOO_LONG_TO_LOAD.into());
        }
        member.clear();
        member.extend_from_slice(name);
        Ok(Some((score, PageAhead::new(end, next + 1))))
    }
}
