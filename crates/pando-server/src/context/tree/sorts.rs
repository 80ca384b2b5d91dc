//! Large collections in another order: as a reply, and as a list that is stored (decision 131).

use std::hash::{Hash as _, Hasher as _};

use super::large_reply::ELEMENTS_MIN;
use super::merges::Stored;
use crate::context::row_source::Heading;
use crate::context::{Context, Interrupted, Run};
use crate::data::keyspace::{Times, ValueType};
use crate::data::new_rows::NewRows;
use crate::data::packed::Encoding;
use crate::data::shown_rows::Shown;
use crate::data::shown_sort::{SortHow, SortRequest};
use crate::data::stored_sort::StoredSort;
use crate::data::tree_head::TreeHead;

/// How often the moment may end that a list is made of; then the command makes it in memory.
const LOST_MAX: u32 = 8;

impl Context<'_> {
    /// As [`Context::ask_for_all`], in another order; the collection is of this type.
    pub(crate) fn ask_for_sorted(
        &mut self,
        key: &[u8],
        (value_type, head): (ValueType, TreeHead),
        how: SortHow,
        must: bool,
    ) -> Run {
        if !must && head.len() < ELEMENTS_MIN || !self.may_reply_large()? {
            return Ok(());
        }
        let request = self.sort_request((key, value_type), how)?;
        let heading = Heading::Array(request.how.shown.len().max(1));
        self.begin_request(Box::new(request), heading)
    }

    /// Makes the list of what is shown of the collection at `from` the value of `key`; `None` if
    /// that is to be done in memory: it is short and that not a must, or what is looked up may have
    /// been changed by the transaction, or that sees an earlier moment, or several moments were
    /// lost.
    ///
    /// The thread reads the rows of the collection later than the command. They are those of the
    /// head that the command has found if that commits, for the reason that `copies.rs` gives. It
    /// does not look at the key, which the transaction may have given another collection, as may
    /// others for a moment.
    pub(crate) fn put_sorted(
        &mut self,
        (key, from): (&[u8], &[u8]),
        (value_type, head): (ValueType, TreeHead),
        how: SortHow,
        must: bool,
    ) -> Result<Option<Stored>, Interrupted> {
        let sources = self.members()?.clone();
        let is_inside = self.exec_index.is_some();
        let is_often_lost = self.progress.builds.lost >= LOST_MAX;
        if !must && head.len() < ELEMENTS_MIN
            || is_often_lost
            || is_inside && how.looks_up()
            || !self.is_as_stored(&sources, head.id)
        {
            return Ok(None);
        }
        let members = self.make_members()?;
        if !members.is_weighted() {
            return Ok(None);
        }
        let mut hasher = self.progress.builds.hasher();
        (sources.name(), sources.last_swap()).hash(&mut hasher);
        (head.id, head.edition, head.count, &how).hash(&mut hasher);
        let identity = (ValueType::List, hasher.finish());
        let (mut made, merged) = self.built(members, identity, |context, id| {
            let mut request = context.sort_request((from, value_type), how)?;
            request.scratch = context.shared.scratch_of_rows.clone();
            let rows = StoredSort::new((request, head), id, context.element_bytes_max());
            Ok((TreeHead::new_blocks(id), Box::new(rows) as Box<dyn NewRows>))
        })?;
        let merged = merged.get().expect("it was set before the job has ended");
        if merged.is_lost {
            // As for a reply of which nothing was sent: all of it again, from another moment.
            self.progress.builds.forget_last();
            self.progress.builds.lost += 1;
            return Err(Interrupted::Yield);
        }
        if merged.is_torn {
            self.progress.builds.forget_last();
            return Err(Interrupted::Torn);
        }
        if let Some(little) = &merged.little {
            return Ok(Some(Stored::Little(little.clone())));
        }
        made.count = merged.count;
        made.high = made.low + merged.rows - 1;
        let former = self.find_any_head(key)?.former;
        let what = ((ValueType::List, Encoding::Quicklist), &made);
        self.put_tree_head(key, what, Times::default(), former)?;
        Ok(Some(Stored::Written(made.len())))
    }

    fn sort_request(
        &mut self,
        (key, value_type): (&[u8], ValueType),
        how: SortHow,
    ) -> Result<SortRequest, Interrupted> {
        let shown = match value_type {
            ValueType::List => Shown::Element,
            ValueType::SortedSet => Shown::Member(None),
            _ => Shown::Name,
        };
        let rows = self.rows_request(key, None, (value_type, shown, false))?;
        let engine = self.engine();
        Ok(SortRequest {
            rows,
            how,
            element_keys: engine.element_keys,
            folder: engine.folder,
            text_bytes_max: engine.reply_bytes_max / 2,
            scratch: self.shared.scratch.clone(),
        })
    }
}
