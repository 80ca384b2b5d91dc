//! XREAD: the entries behind an ID, of several streams, which may have to come first.

use super::arguments::id;
use super::read_group;
use super::request::{Request, reply_key, reply_streams};
use super::{reading, reply_entries, writing};
use crate::context::{Awaited, Command, Context, Flags, Interrupted, Keys, Rows, Run};
use crate::data::keyspace::ValueType;
use crate::data::stream_id::StreamId;

pub(in crate::commands) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::READONLY.and(Flags::BLOCKING),
        keys: Keys::OF_STREAMS,
        summary: "Returns messages from multiple streams with IDs greater than the ones \
                  requested. Blocks until a message is available otherwise.",
        ..reading("xread", -4, read)
    },
    Command {
        flags: Flags::WRITE.and(Flags::BLOCKING),
        keys: Keys::OF_STREAMS,
        complexity: "For each stream mentioned: O(M) with M being the number of elements \
                     returned. If M is constant (e.g. always asking for the first 10 elements \
                     with COUNT), you can consider it O(1). On the other side when XREADGROUP \
                     blocks, XADD will pay the O(N) time in order to serve the N clients blocked \
                     on the stream getting new data.",
        summary: "Returns new or historical messages from a stream for a consumer in a group. \
                  Blocks until a message is available otherwise.",
        ..writing("xreadgroup", -7, read_group::read)
    },
];

fn read(context: &mut Context<'_>) -> Run {
    let request = Request::parse(context, false)?;
    context.read_or_wait(request.keys.clone(), request.block, |context, _| {
        serve(context, &request)
    })
}

/// Replies with what there is. Else returns what the client waits for.
fn serve(context: &mut Context<'_>, request: &Request) -> Result<Option<Awaited>, Interrupted> {
    let awaited = context.progress.blocked.as_ref();
    let awaited = awaited.map(|blocked| blocked.ids.clone());
    let (mut ids, mut found): (Vec<StreamId>, Vec<(usize, Rows)>) = (Vec::new(), Vec::new());
    for (number, place) in request.keys.clone().enumerate() {
        let key = context.argument(place);
        // Who waits goes on waiting if the key gets a value of another type.
        if awaited.is_some() {
            let row = context.find_any_head(key)?.row;
            if row.is_some_and(|row| row.value_type != ValueType::Stream) {
                ids.push(awaited.as_ref().map_or(StreamId::MAX, |ids| ids[number]));
                continue;
            }
        }
        let stream = context.read_stream(key)?;
        let behind = match (&awaited, request.id(context, place)) {
            (Some(ids), _) => ids[number],
            (None, b"$") => stream.head.last,
            (None, b">") => {
                return Err(
                    "ERR The > ID can be specified only when calling XREADGROUP using the \
                            GROUP <group> <consumer> option."
                        .into(),
                );
            }
            (None, text) => id(text, 0)?,
        };
        ids.push(behind);
        if let Some(from) = behind.next() {
            let range = (from, StreamId::MAX);
            let rows = context.entries(&stream, range, request.count, false)?;
            if rows.len() > 0 {
                found.push((place, rows));
            }
        }
    }
    if found.is_empty() {
        let deadline = None;
        return Ok(Some(Awaited { ids, deadline }));
    }
    reply_streams(context, found.len());
    for (place, rows) in found {
        reply_key(context, context.argument(place));
        reply_entries(context, &rows, false)?;
    }
    Ok(None)
}
