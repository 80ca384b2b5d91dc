//! Deadlines of the fields of a large hash (decision 086).

use std::ops::Bound;

use pandodb::nonblocking::{Polled, ScanPage};

use crate::context::collection::Collection;
use crate::context::{Context, Interrupted};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{FieldTimes, ValueType};
use crate::data::tree_head::TreeHead;

impl Context<'_> {
    /// Returns the number of fields of a large hash that have expired and were not removed.
    pub(in crate::context) fn expired_fields(
        &mut self,
        head: TreeHead,
    ) -> Result<usize, Interrupted> {
        let members = self.members()?;
        if !self.may_rank_in(members, &head)? {
            let goal = self.goal(ValueType::Hash, head);
            return self.scan_expired(members, goal);
        }
        let from = elements::start(head.id, Kind::Time);
        let to = [&from[..], &self.now_ms.to_be_bytes()].concat();
        let bounds = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let count = match self.source().count(members, bounds)? {
            Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
            Polled::Ready(count) => Ok(usize::try_from(count).unwrap_or(usize::MAX)),
        };
        self.confirmed(head, count)
    }

    /// Returns when fields of a large hash expire, whose rows were written and whose head is to be.
    pub(super) fn field_times(
        &mut self,
        collection: &Collection,
        head: &TreeHead,
    ) -> Result<Option<FieldTimes>, Interrupted> {
        if head.timed == 0 {
            return Ok(None);
        }
        // Those that were not loaded expire after the old time.
        let old = collection.found.row.and_then(|row| row.times().fields);
        let new = collection.deadlines.times(&collection.strings);
        let first = old.into_iter().chain(new).map(|times| times.first).min();
        let last = match head.timed == head.count {
            true => self.last_deadline(head)?,
            false => u64::MAX,
        };
        let first = first.unwrap_or(0);
        Ok(Some(FieldTimes { first, last }))
    }

    /// Returns the last deadline of a field, as this transaction sees it.
    fn last_deadline(&mut self, head: &TreeHead) -> Result<u64, Interrupted> {
        let members = self.members()?;
        let prefix = elements::start(head.id, Kind::Time);
        let mut from = elements::behind(head.id, Kind::Time).to_vec();
        let mut page = ScanPage::default();
        loop {
            let range = (Bound::Excluded(&from[..]), Bound::Included(&prefix[..]));
            let scanned = self.batch()?.scan_back(members, range, 1, &mut page)?;
            if let Polled::Pending(pending) = scanned {
                return Err(Interrupted::Pending(pending));
            }
            if !page.is_empty() {
                let (key, _) = page.entry(0);
                return match key.starts_with(&prefix) {
                    true => Ok(elements::time_of(key)),
                    false => Err(Interrupted::Torn),
                };
            }
            match page.next.take() {
                Some(next) => from = next,
                None => return Err(Interrupted::Torn),
            }
        }
    }
}
