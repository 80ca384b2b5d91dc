//! Finding, keeping and writing the heads of large collections that stretches of a pipeline change
//! (`kept_head.rs`; decision 108).

use super::kept_head::{Beside, Held, KeptHead};
use crate::context::{Context, Found, Interrupted, Run};
use crate::data::keyspace::{Times, ValueType};
use crate::data::packed::Encoding;
use crate::data::tree_head::TreeHead;

/// Collections with no more elements may become packed.
const FEW: usize = 16;

impl Context<'_> {
    /// Returns what is known of the collection at `key`: its head was kept, or else the row of the
    /// key is read. It is returned if the collection is large, has this encoding, more than a few
    /// elements, and no deadlines of fields: then what is done to one element changes nothing
    /// besides it and the head. Else what was found is returned.
    pub(crate) fn long_collection(
        &mut self,
        key: &[u8],
        encoding: Encoding,
    ) -> Result<Result<Held, Found>, Interrupted> {
        if let Some(held) = self.held(key)? {
            return Ok(Ok(held));
        }
        let found = self.find(key)?;
        Ok(match self.long_found(&found, encoding)? {
            Some(head) => Ok(Held::new(head, encoding, &found)),
            None => Err(found),
        })
    }

    /// As [`Context::long_collection`], of the collection that was read last: its head.
    pub(crate) fn long_found(
        &mut self,
        found: &Found,
        encoding: Encoding,
    ) -> Result<Option<TreeHead>, Interrupted> {
        let Some(head) = self.tree_head(found)? else {
            return Ok(None);
        };
        let row = found.row.expect("it has a head");
        let has = Encoding::of_payload(self.payload(row))?;
        let is_long = head.len() > FEW && head.timed == 0 && has == encoding;
        Ok(is_long.then_some(head))
    }

    /// Returns what a command before this one has kept of the collection at `key`, if that has
    /// more than a few elements. Else the head is written, if there is one.
    fn held(&mut self, key: &[u8]) -> Result<Option<Held>, Interrupted> {
        let Some(kept) = &self.progress.kept_head else {
            return Ok(None);
        };
        let of = (self.session.database, Some(key));
        let is_it = kept.is_for(self.command.name, of) && !kept.is_written;
        if is_it && self.exec_index.is_none() && kept.held.head.len() > FEW {
            return Ok(Some(kept.held));
        }
        self.write_kept_head()?;
        Ok(None)
    }

    /// Writes the head that was kept, if there is one.
    pub(crate) fn write_kept_head(&mut self) -> Run {
        let Some(mut kept) = self.progress.kept_head.take_if(|kept| !kept.is_written) else {
            return Ok(());
        };
        let (what, held) = ((kept.value_type, kept.held.encoding), kept.held);
        let end_block = &kept.end_block;
        let put = self.in_database(kept.database, |this| {
            if !kept.is_changed {
                return Ok(());
            }
            if let Some(last) = end_block {
                this.write_end_block(held.head, last)?;
            }
            this.put_held(&kept.key, what, &held)
        });
        kept.is_written = put.is_ok();
        self.progress.kept_head = Some(kept);
        put
    }

    /// Writes or keeps the head of a collection after a change of it: the last thing that a command
    /// does.
    pub(super) fn end_with_head(
        &mut self,
        (key, value_type): (&[u8], ValueType),
        held: Held,
        beside: Beside,
    ) -> Run {
        if !self.keeps_head() {
            return self.put_held(key, (value_type, held.encoding), &held);
        }
        let database = self.session.database;
        match &mut self.progress.kept_head {
            Some(kept) => {
                debug_assert!(
                    kept.is_for(self.command.name, (database, Some(key))),
                    "another head would be lost"
                );
                (kept.held, kept.beside, kept.is_changed) = (held, beside, true);
            }
            None => {
                let kept = self.kept((key, value_type), held, (beside, true));
                self.progress.kept_head = Some(Box::new(kept));
            }
        }
        Ok(())
    }

    /// Keeps a head that the command has read, and leaves as it is: the last thing that it does.
    pub(super) fn keep_head(&mut self, of: (&[u8], ValueType), held: Held) {
        if self.keeps_head() && self.progress.kept_head.is_none() {
            let kept = self.kept(of, held, (Beside::Nothing, false));
            self.progress.kept_head = Some(Box::new(kept));
        }
    }

    fn kept(
        &self,
        (key, value_type): (&[u8], ValueType),
        held: Held,
        (beside, is_changed): (Beside, bool),
    ) -> KeptHead {
        KeptHead {
            command: self.command.name,
            database: self.session.database,
            key: key.to_vec(),
            value_type,
            held,
            is_changed,
            is_written: false,
            beside,
            end_block: None,
        }
    }

    /// Returns true if the command keeps what it would write of a head.
    pub(super) fn keeps_head(&self) -> bool {
        let kept = self.progress.kept_head.as_ref();
        let has_written = kept.is_some_and(|kept| kept.is_written);
        self.is_together && self.exec_index.is_none() && !has_written
    }

    fn put_held(&mut self, key: &[u8], what: (ValueType, Encoding), held: &Held) -> Run {
        let times = Times {
            deadline: held.deadline,
            fields: None,
        };
        self.put_tree_head(key, (what, &held.head), times, held.former)
    }

    /// Takes what the command before this one knew, which is the same one, in a pipeline run, and
    /// has kept the head of the same collection. If this one fails, nothing is known any more: it
    /// may have read another page.
    pub(super) fn take_beside(&mut self) -> Option<Beside> {
        let kept = self.progress.kept_head.as_mut()?;
        let is_known = self.exec_index.is_none() && !kept.is_written;
        is_known.then(|| std::mem::replace(&mut kept.beside, Beside::Nothing))
    }
}
