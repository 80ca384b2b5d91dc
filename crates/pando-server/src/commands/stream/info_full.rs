//! XINFO STREAM with FULL: a stream with its groups, consumers and pending entries.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::description::{reply_head, reply_progress};
use super::groups::{consumer, consumers_of, groups_of, pending_at, pending_rows};
use super::{reply_count, reply_entries, reply_id};
use crate::context::{Context, Interrupted, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::{ConsumerRow, GroupRow, PendingRow};

const ALL: (StreamId, StreamId) = (StreamId::ZERO, StreamId::MAX);

/// Replies with all of the stream, and at most `most` entries of each list; 0: all.
pub(super) fn full(context: &mut Context<'_>, stream: &Stream, most: usize) -> Run {
    let most = if most == 0 { usize::MAX } else { most };
    let entries = context.entries(stream, ALL, most, false)?;
    let mut reply = context.reply();
    reply.map(9);
    reply_head(&mut reply, stream);
    reply.bulk(b"entries");
    reply_entries(context, &entries, false)?;
    context.reply().bulk(b"groups");
    let groups = groups_of(context, stream)?;
    context.reply().array(groups.len());
    for group in groups {
        reply_group(context, (stream, &group), most)?;
    }
    Ok(())
}

fn reply_group(
    context: &mut Context<'_>,
    (stream, group): (&Stream, &GroupRow),
    most: usize,
) -> Run {
    let rows = pending_rows(context, stream, (group.number, None), ALL, most)?;
    let consumers = consumers_of(context, stream, group.number)?;
    let mut names = BTreeMap::new();
    let mut pending = Vec::new();
    for place in 0..rows.len() {
        let row = PendingRow::decode(rows.value(place))?;
        if let Entry::Vacant(name) = names.entry(row.consumer) {
            let consumer = consumer(context, stream, (group.number, row.consumer))?;
            name.insert(consumer.name);
        }
        pending.push((rows.id(place)?, row));
    }
    let mut reply = context.reply();
    reply.map(7);
    reply.bulk(b"name");
    reply.bulk(&group.name);
    reply.bulk(b"last-delivered-id");
    reply_id(&mut reply, group.last);
    reply_progress(&mut reply, stream, group);
    reply.bulk(b"pel-count");
    reply_count(&mut reply, group.pending);
    reply.bulk(b"pending");
    reply.array(pending.len());
    for (id, row) in pending {
        let mut reply = context.reply();
        reply.array(4);
        reply_id(&mut reply, id);
        reply.bulk(&names[&row.consumer]);
        reply.integer(row.delivered);
        reply.integer(row.times);
        context.check_reply()?;
    }
    context.check_reply()?;
    context.reply().bulk(b"consumers");
    context.reply().array(consumers.len());
    for consumer in consumers {
        reply_consumer(context, (stream, group.number, &consumer), most)?;
    }
    Ok(())
}

fn reply_consumer(
    context: &mut Context<'_>,
    (stream, group, consumer): (&Stream, u64, &ConsumerRow),
    most: usize,
) -> Run {
    let owner = (group, Some(consumer.number));
    let rows = pending_rows(context, stream, owner, ALL, most)?;
    let ids = rows.ids()?;
    let pending = pending_at(context, stream, (group, &ids))?;
    let mut owned = Vec::new();
    for (id, row) in ids.into_iter().zip(pending) {
        owned.push((id, row.ok_or(Interrupted::Torn)?));
    }
    let mut reply = context.reply();
    reply.map(5);
    reply.bulk(b"name");
    reply.bulk(&consumer.name);
    reply.bulk(b"seen-time");
    reply_count(&mut reply, consumer.seen);
    reply.bulk(b"active-time");
    reply.integer(consumer.active);
    reply.bulk(b"pel-count");
    reply_count(&mut reply, consumer.pending);
    reply.bulk(b"pending");
    reply.array(owned.len());
    for (id, row) in owned {
        reply.array(3);
        reply_id(&mut reply, id);
        reply.integer(row.delivered);
        reply.integer(row.times);
    }
    context.check_reply()
}
