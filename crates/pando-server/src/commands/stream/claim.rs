//! What XCLAIM and XAUTOCLAIM share: pending entries get another consumer.

use super::groups::OpenGroup;
use super::{reply_entry, reply_id, text_of};
use crate::context::{Context, Interrupted, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::PendingRow;

/// Returns the error for a key or group that is not there.
pub(super) fn missing_group(context: &Context<'_>) -> String {
    let (key, name) = (text_of(context.argument(1)), text_of(context.argument(2)));
    format!("NOGROUP No such key '{key}' or consumer group '{name}'")
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

impl Claiming {
    /// Gives a pending entry to the consumer; `old` is the one that has it, if anybody does.
    pub(super) fn claim(
        &self,
        context: &mut Context<'_>,
        (stream, group): (&mut Stream, &mut OpenGroup),
        id: StreamId,
        (old, times): (Option<u64>, i64),
    ) -> Run {
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
        Ok(())
    }

    /// Reads the entries that were claimed, for the reply: none if that has IDs alone.
    pub(super) fn entries(
        &self,
        context: &mut Context<'_>,
        stream: &Stream,
        claimed: &[StreamId],
    ) -> Result<Vec<Option<Vec<u8>>>, Interrupted> {
        match self.is_only_id {
            true => Ok(vec![None; claimed.len()]),
            false => context.entries_at(stream, claimed),
        }
    }
}

/// Replies with the entries that were claimed, or with their IDs alone.
pub(super) fn reply_claimed(
    context: &mut Context<'_>,
    claimed: &[StreamId],
    entries: &[Option<Vec<u8>>],
) -> Run {
    context.reply().array(claimed.len());
    for (id, entry) in claimed.iter().zip(entries) {
        match entry {
            None => reply_id(&mut context.reply(), *id),
            Some(entry) => reply_entry(&mut context.reply(), *id, entry)?,
        }
        context.check_reply()?;
    }
    Ok(())
}
