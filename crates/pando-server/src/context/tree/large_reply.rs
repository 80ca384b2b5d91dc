//! Replies with all or many of the elements of a large collection: they are read while they are
//! sent, as of one moment, and never in memory as a whole (decision 130).
//!
//! Not those of commands inside EXEC, of scripts and in a transaction of PANDO BEGIN: they belong
//! to the moment of the transaction, with what it has changed itself.

use std::ops::Range;

use pando_resp::Version;
use pando_sync::Arc;
use pandodb::nonblocking::Polled;

use crate::context::reply_source::ReplySource;
use crate::context::row_source::{Heading, LargeReply, RowSource};
use crate::context::{Context, Interrupted, Run, replies};
use crate::data::elements;
use crate::data::keyspace::ValueType;
use crate::data::shown_rows::{Request, RowsRequest, Shown, Stretch};
use crate::data::tree_head::TreeHead;
use crate::row_readers::{Beginning, Begun, Failure};

/// Elements from which on a reply is read while it is sent. Fewer are sooner read and sent at once,
/// if they fit into memory.
pub(super) const ELEMENTS_MIN: usize = 16 << 10;

/// How often a collection may change before its range is found at the moment of the reply; then the
/// command reads the elements itself.
const CHANGED_MAX: u32 = 8;

impl From<Failure> for Interrupted {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Engine(error) => error.into(),
            Failure::Row(error) => error.into(),
            Failure::Refused(text) => text.into(),
            Failure::Text(text) => format!("ERR cannot read the collection: {text}").into(),
        }
    }
}

/// Returns true if the elements do not fit into the memory for a reply.
pub(crate) fn is_too_long(interrupted: &Interrupted) -> bool {
    let texts = [
        replies::TOO_LONG_TO_LOAD,
        replies::TOO_MANY_LONG,
        replies::TOO_MANY_LONG_SETS,
    ];
    matches!(interrupted, Interrupted::Refused(text) if texts.iter().any(|long| text == long))
}

impl Context<'_> {
    /// Replies with elements that an earlier run has asked for; false if none has. The command asks
    /// this first: what it would read was read by the threads, as of a moment after its beginning.
    pub(crate) fn goes_on_large(&mut self) -> Result<bool, Interrupted> {
        let Some(read) = &mut self.progress.long_read else {
            return Ok(false);
        };
        let Some(large) = &read.reply else {
            return Ok(false);
        };
        let (reply, heading) = (large.reply.clone(), large.heading);
        let begun = match reply.beginning(self.waker) {
            Ok(Beginning::UnderWay) => return Err(Interrupted::Wait),
            Ok(Beginning::Begun(begun)) => begun,
            Ok(Beginning::Changed) => {
                read.reply = None;
                read.changed += 1;
                // What it has read is not what is there.
                if let Some(batch) = self.data().batch.as_deref_mut() {
                    batch.reset();
                }
                return Err(Interrupted::Yield);
            }
            Err(failure) => {
                read.reply = None;
                return Err(failure.into());
            }
        };
        self.progress.hits += 1;
        self.begin_large(begun, heading);
        if begun.count == 0 || matches!(heading, Heading::Number) {
            return Ok(true);
        }
        let source = RowSource::new(reply);
        let offset = self.out.len() - self.reply_start;
        self.progress
            .streams
            .push((offset, ReplySource::Rows(source)));
        self.reply().raw(b"\r\n");
        Ok(true)
    }

    fn begin_large(&mut self, Begun { count, lsn }: Begun, heading: Heading) {
        self.progress.show_from(Some(lsn));
        let mut reply = self.reply();
        match heading {
            Heading::Map => reply.map(count),
            Heading::Set => reply.set(count),
            Heading::Array(of_one) => reply.array(count.saturating_mul(of_one)),
            Heading::Number => reply.integer(i64::try_from(count).unwrap_or(i64::MAX)),
        }
    }

    /// Returns the first line of a reply with members, and their scores if these are shown.
    pub(super) fn heading_of_members(&self, has_scores: bool) -> Heading {
        Heading::Array(match has_scores && self.session.version == Version::Resp2 {
            true => 2,
            false => 1,
        })
    }

    /// Asks for all elements of the collection at `key`, whose head this is, to be read while they
    /// are sent, if they are many or `must` be. Returns only if they are not to be: the command
    /// reads them itself.
    pub(crate) fn ask_for_all(
        &mut self,
        key: &[u8],
        head: TreeHead,
        (shown, is_backwards): (Shown, bool),
        must: bool,
    ) -> Run {
        if !must && head.len() < ELEMENTS_MIN || !self.may_reply_large()? {
            return Ok(());
        }
        self.ask_for(key, None, (shown, is_backwards))
    }

    /// As [`Context::ask_for_all`], for the elements at `places`, as the head counts them.
    pub(crate) fn ask_for_places(
        &mut self,
        key: &[u8],
        (head, places): (TreeHead, Range<usize>),
        (shown, is_backwards): (Shown, bool),
        must: bool,
    ) -> Run {
        if places.len() == head.len() {
            return self.ask_for_all(key, head, (shown, is_backwards), must);
        }
        let is_short = places.is_empty() || !must && places.len() < ELEMENTS_MIN;
        if is_short || !self.may_reply_large()? {
            return Ok(());
        }
        let members = self.members()?;
        let prefix = elements::start(head.id, shown.kind());
        let first = match is_backwards {
            true => places.end - 1,
            false => places.start,
        };
        // Before the head is looked at once more: a swap behind that is another one.
        let last_swap = self.last_swap();
        let mut row = Vec::new();
        let found = match self.source().key_from(members, (&prefix, first), &mut row) {
            Ok(Polled::Pending(pending)) => Err(Interrupted::Pending(pending)),
            Ok(Polled::Ready(found)) if row.starts_with(&prefix) => found.ok_or(Interrupted::Torn),
            Ok(Polled::Ready(_)) => Err(Interrupted::Torn),
            Err(error) => Err(error.into()),
        };
        let skipped = self.confirmed(head, found)?;
        let stretch = Stretch {
            head,
            last_swap,
            row,
            skipped: usize::try_from(skipped).unwrap_or(usize::MAX),
            count: places.len(),
        };
        self.ask_for(key, Some(stretch), (shown, is_backwards))
    }

    /// Returns true if the reply of this command may be of a moment of its own.
    pub(super) fn may_reply_large(&mut self) -> Result<bool, Interrupted> {
        match self.has_moment_of_its_own() {
            // Not before the commit of the commands before it.
            true if self.is_together => Err(Interrupted::Yield),
            is_alone => Ok(is_alone),
        }
    }

    /// As [`Context::may_reply_large`], once the commands before it in its pipeline are done.
    pub(super) fn has_moment_of_its_own(&mut self) -> bool {
        // Of EXEC, or of a script.
        let is_inside = self.exec_index.is_some();
        let read = self.progress.long_read.as_ref();
        if is_inside || read.is_some_and(|read| read.changed >= CHANGED_MAX) {
            return false;
        }
        let batch = self.data().batch.as_deref_mut();
        batch.is_none_or(|batch| batch.transaction().is_none())
    }

    fn ask_for(
        &mut self,
        key: &[u8],
        stretch: Option<Stretch>,
        (shown, is_backwards): (Shown, bool),
    ) -> Run {
        let what = (self.value_type(), shown, is_backwards);
        let request = self.rows_request(key, stretch, what)?;
        let heading = match shown {
            Shown::NameAndValue => Heading::Map,
            Shown::Name if self.value_type() == ValueType::Set => Heading::Set,
            Shown::Member(score) => self.heading_of_members(score.is_some()),
            _ => Heading::Array(1),
        };
        self.begin_request(Box::new(request), heading)
    }

    pub(super) fn rows_request(
        &mut self,
        key: &[u8],
        stretch: Option<Stretch>,
        (value_type, shown, is_backwards): (ValueType, Shown, bool),
    ) -> Result<RowsRequest, Interrupted> {
        let mut stored = Vec::new();
        self.engine().folder.store(key, &mut stored);
        Ok(RowsRequest {
            keys: self.database().keys.clone(),
            stored,
            value_type,
            members: self.members()?.clone(),
            stretch,
            is_backwards,
            shown,
            version: self.session.version,
            now_ms: self.now_ms,
        })
    }

    /// Has a thread begin the reply.
    pub(super) fn begin_request(&mut self, request: Box<dyn Request>, heading: Heading) -> Run {
        let piece_bytes = self.engine().row_piece_bytes;
        let readers = &self.shared.row_readers;
        let reply = Arc::new(readers.begin(request, piece_bytes, self.waker));
        let read = self.progress.long_read.get_or_insert_default();
        read.reply = Some(LargeReply { reply, heading });
        Err(Interrupted::Wait)
    }
}
