//! What XCLAIM and XAUTOCLAIM share: pending entries get another consumer.

use super::groups::OpenGroup;
use super::{reply_entry, reply_id, text_of};
use crate::context::{Context, Interrupted, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{PendingRow, entry_key};

/// Returns the error for a key or group that is not there.
pub(super) fn missing_group(context: &Context<'_>) -> String {
    let (key, name) = (text_of(context.argument(1)), text_of(context.argument(2)));
    format!("NOGROUP No such key '{key}' or consumer group '{name}'")
}

/// Returns for how many milliseconds nobody has got the entry; below zero if clocks differ.
pub(super) fn idle_of(row: &PendingRow, now_ms: u64) -> i64 {
    i64::try_from(now_ms)
        .unwrap_or(i64::MAX)
        .saturating_sub(row.delivered)
}

/// How entries are claimed.
pub(super) struct Claiming {
    /// The consumer that gets them.
    pub(super) consumer: u64,
    /// They were delivered then.
    pub(super) delivered: i64,
    /// So often, if the client says so.
    pub(super) times: Option<i64>,
    /// The reply has IDs alone, and this is no delivery.
    pub(super) is_only_id: bool,
}

/// An entry that was claimed, for the reply.
pub(super) struct Claimed {
    id: StreamId,
    /// The value of its row.
    entry: Vec<u8>,
}

/// Returns the value of the row of an entry, if it is there still.
pub(super) fn entry(
    context: &mut Context<'_>,
    stream: &Stream,
    id: StreamId,
) -> Result<Option<Vec<u8>>, Interrupted> {
    context.stream_row(&entry_key(stream.head.id, id))
}

impl Claiming {
    /// Gives a pending entry to the consumer; `old` is the one that has it, if anybody does.
    pub(super) fn claim(
        &self,
        context: &mut Context<'_>,
        (stream, group): (&mut Stream, &mut OpenGroup),
        (id, entry): (StreamId, Vec<u8>),
        (old, times): (Option<u64>, i64),
    ) -> Result<Claimed, Interrupted> {
        let times = match self.times {
            Some(times) => times,
            None => times.saturating_add(i64::from(!self.is_only_id)),
        };
        let new = PendingRow {
            consumer: self.consumer,
            delivered: self.delivered,
            times,
        };
        group.put_pending(context, stream, (id, old, new))?;
        let active = i64::try_from(context.now_ms).unwrap_or(i64::MAX);
        group.consumer(context, stream, self.consumer)?.active = active;
        Ok(Claimed { id, entry })
    }

    /// Replies with the entries that were claimed.
    pub(super) fn reply(&self, context: &mut Context<'_>, claimed: &[Claimed]) -> Run {
        context.reply().array(claimed.len());
        for Claimed { id, entry } in claimed {
            match self.is_only_id {
                true => reply_id(&mut context.reply(), *id),
                false => reply_entry(&mut context.reply(), *id, entry)?,
            }
            context.check_reply()?;
        }
        Ok(())
    }
}
