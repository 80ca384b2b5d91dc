//! XPENDING: which entries were delivered and not acknowledged.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::arguments::{count_at, end_at, start_at};
use super::claim::missing_group;
use super::groups::{
    consumer, consumers_of, filtered_rows, find_consumer, find_group, last_pending, pending_at,
    pending_rows,
};
use super::{reading, reply_count, reply_id};
use crate::context::{Command, Context, Interrupted, Run, Stream, replies};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{ConsumerRow, GroupRow, PendingFilter, PendingRow};

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    complexity: "O(N) with N being the number of elements returned, so asking for a small fixed \
                 number of entries per call is O(1). O(M), where M is the total number of entries \
                 scanned when used with the IDLE filter. When the command returns just the summary \
                 and the list of consumers is small, it runs in O(1) time; otherwise, an \
                 additional O(N) time for iterating every consumer.",
    summary: "Returns the information and entries from a stream consumer group's pending entries \
              list.",
    ..reading("xpending", -3, run)
}];

/// Most entries of a consumer that are looked at one by one.
const LOOKS_MAX: u64 = 10_000;

/// Which entries are asked for.
struct Asked<'a> {
    least_idle: i64,
    from: StreamId,
    to: StreamId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Asked<'a> {
    /// `None`: for a summary.
    fn parse(context: &Context<'a>) -> Result<Option<Self>, &'static str> {
        let count = context.count();
        if count == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&count) {
            return Err(replies::SYNTAX);
        }
        let (mut at, mut least_idle) = (3, 0);
        if context.is(3, "idle") {
            least_idle = context.integer_at(4)?;
            if count < 8 {
                return Err(replies::SYNTAX);
            }
            at = 5;
        }
        Ok(Some(Self {
            count: count_at(context, at + 2)?,
            from: start_at(context, at)?,
            to: end_at(context, at + 1)?,
            consumer: (at + 3 < count).then(|| context.argument(at + 3)),
            least_idle,
        }))
    }
}

fn run(context: &mut Context<'_>) -> Run {
    let asked = Asked::parse(context)?;
    let stream = context.read_stream(context.argument(1))?;
    let Some(group) = find_group(context, &stream, context.argument(2))? else {
        return Err(missing_group(context).into());
    };
    match asked {
        None => summary(context, &stream, &group),
        Some(asked) => entries(context, (&stream, &group), asked),
    }
}

fn summary(context: &mut Context<'_>, stream: &Stream, group: &GroupRow) -> Run {
    if group.pending == 0 {
        let mut reply = context.reply();
        reply.array(4);
        reply.integer(0);
        reply.null();
        reply.null();
        reply.null_array();
        return Ok(());
    }
    let all = (StreamId::ZERO, StreamId::MAX);
    let first = pending_rows(context, stream, (group.number, None), all, 1)?;
    let last = last_pending(context, stream, group.number)?;
    let first = match first.len() {
        0 => return Err(Interrupted::Torn),
        _ => first.id(0)?,
    };
    let mut consumers = consumers_of(context, stream, group.number)?;
    consumers.retain(|consumer| consumer.pending > 0);
    let mut reply = context.reply();
    reply.array(4);
    reply_count(&mut reply, group.pending);
    reply_id(&mut reply, first);
    reply_id(&mut reply, last);
    reply.array(consumers.len());
    for consumer in consumers {
        reply.array(2);
        reply.bulk(&consumer.name);
        reply.bulk(consumer.pending.to_string().as_bytes());
    }
    context.check_reply()
}

fn entries(
    context: &mut Context<'_>,
    (stream, group): (&Stream, &GroupRow),
    asked: Asked<'_>,
) -> Run {
    let mut of = None;
    if let Some(name) = asked.consumer {
        match find_consumer(context, stream, (group.number, name))? {
            Some(consumer) => of = Some(consumer),
            None => {
                context.reply().array(0);
                return Ok(());
            }
        }
    }
    let found = find(context, (stream, group.number, of.as_ref()), &asked)?;
    let mut names = BTreeMap::new();
    for (_, row) in &found {
        if let Entry::Vacant(name) = names.entry(row.consumer) {
            let consumer = consumer(context, stream, (group.number, row.consumer))?;
            name.insert(consumer.name);
        }
    }
    let now_ms = context.now_ms;
    context.reply().array(found.len());
    for (id, row) in found {
        let mut reply = context.reply();
        reply.array(4);
        reply_id(&mut reply, id);
        reply.bulk(&names[&row.consumer]);
        reply.integer(row.idle(now_ms).max(0));
        reply.integer(row.times);
        context.check_reply()?;
    }
    Ok(())
}

/// Returns the pending entries that are asked for. The list of a consumer has their IDs alone: if
/// many of them are to be looked at, that of the group is read instead, without a look for each.
fn find(
    context: &mut Context<'_>,
    (stream, group, of): (&Stream, u64, Option<&ConsumerRow>),
    asked: &Asked<'_>,
) -> Result<Vec<(StreamId, PendingRow)>, Interrupted> {
    let range = (asked.from, asked.to);
    let filter = PendingFilter {
        least_idle: asked.least_idle,
        consumer: of.map(|of| of.number),
    };
    let looks = match (of, asked.least_idle) {
        (Some(of), 0) => of.pending.min(asked.count as u64),
        (Some(of), _) => of.pending,
        (None, _) => u64::MAX,
    };
    if looks > LOOKS_MAX {
        let rows = filtered_rows(context, stream, (group, filter), (range, asked.count))?;
        let row = |place| Ok((rows.id(place)?, PendingRow::decode(rows.value(place))?));
        return (0..rows.len()).map(row).collect();
    }
    let count = match asked.least_idle {
        0 => asked.count,
        _ => usize::MAX,
    };
    let ids = pending_rows(context, stream, (group, filter.consumer), range, count)?.ids()?;
    let rows = pending_at(context, stream, (group, &ids))?;
    let mut found = Vec::new();
    for (id, row) in ids.into_iter().zip(rows) {
        let row = row.ok_or(Interrupted::Torn)?;
        if filter.takes(&row, context.now_ms) && found.len() < asked.count {
            found.push((id, row));
        }
    }
    Ok(found)
}
