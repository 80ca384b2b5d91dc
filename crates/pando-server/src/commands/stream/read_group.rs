//! XREADGROUP: a consumer gets entries that no other one of its group has got, or looks at those
//! that it has not acknowledged.

use super::arguments::id;
use super::groups::{
    CREATED_CONSUMER, OpenGroup, check_consumer, find_group, pending_at, pending_rows,
};
use super::manage::read_up_to;
use super::request::{Request, reply_key, reply_streams};
use super::{reply_entries, reply_entry, reply_id, text_of};
use crate::context::{Awaited, Context, Interrupted, Rows, Run, Stream};
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::PendingRow;
use crate::notifications::classes::Class;

/// Entries that a consumer has got before; one is `None` if it was deleted.
type History = Vec<(StreamId, Option<Vec<u8>>)>;

/// What a consumer gets of a stream.
enum Served {
    New(Rows),
    History(History),
}

pub(super) fn read(context: &mut Context<'_>) -> Run {
    let request = Request::parse(context, true)?;
    context.read_or_wait(request.keys.clone(), request.block, |context, waits| {
        serve(context, &request, waits)
    })
}

/// Returns the ID at `place`; `None`: new entries.
fn id_of(
    context: &Context<'_>,
    request: &Request,
    place: usize,
) -> Result<Option<StreamId>, &'static str> {
    match request.id(context, place) {
        b"$" => Err(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read \
                     the history of this consumer by specifying a proper ID, or use the > ID to \
                     get new messages. The $ ID would just return an empty result set.",
        ),
        b">" => Ok(None),
        text => Ok(Some(id(text, 0)?).filter(|id| *id != StreamId::MAX)),
    }
}

/// Reads the stream at `place` and its group, which must exist.
fn group_at(
    context: &mut Context<'_>,
    request: &Request,
    place: usize,
) -> Result<(Stream, OpenGroup), Interrupted> {
    let (key, name) = (context.argument(place), context.argument(request.group_at));
    let stream = context.stream(key)?;
    match find_group(context, &stream, name)? {
        Some(group) => Ok((stream, OpenGroup::new(group))),
        None => {
            let (key, name) = (text_of(key), text_of(name));
            Err(format!(
                "NOGROUP No such key '{key}' or consumer group '{name}' in XREADGROUP with GROUP \
                 option"
            )
            .into())
        }
    }
}

/// A stream and its group as they were read, with the entries that no consumer of the group has got
/// if the client asks for them.
struct Opened {
    stream: Stream,
    group: OpenGroup,
    rows: Option<Rows>,
}

/// Reads the stream at `place`, with its group, and the new entries if `id` is `None`.
fn open(
    context: &mut Context<'_>,
    request: &Request,
    place: usize,
) -> Result<(Opened, Option<StreamId>), Interrupted> {
    let (stream, group) = group_at(context, request, place)?;
    let id = id_of(context, request, place)?;
    let rows = match id {
        None => Some(new_entries(context, request, (&stream, &group))?),
        Some(_) => None,
    };
    let opened = Opened {
        stream,
        group,
        rows,
    };
    Ok((opened, id))
}

/// Replies with what there is. Else returns what the client waits for; if it does not wait, its
/// consumers are made all the same.
fn serve(
    context: &mut Context<'_>,
    request: &Request,
    waits: bool,
) -> Result<Option<Awaited>, Interrupted> {
    let mut awaited = Awaited::default();
    let mut first = None;
    // All is checked before anything is written. The entries are kept, and read before that.
    for place in request.keys.clone() {
        let opened = open(context, request, place)?;
        let deadline = [awaited.deadline, opened.0.stream.deadline()];
        awaited.deadline = deadline.into_iter().flatten().min();
        first.get_or_insert(opened);
    }
    check_consumer(context, context.argument(request.group_at + 1))?;
    let mut served = Vec::new();
    for place in request.keys.clone() {
        // Before the first one nothing was written. A stream may be named twice.
        let opened = match first.take() {
            Some(first) => first,
            None => open(context, request, place)?,
        };
        if let Some(found) = serve_one(context, request, (place, opened, waits))? {
            served.push((place, found));
        }
    }
    if served.is_empty() {
        return Ok(Some(awaited));
    }
    reply_streams(context, served.len());
    for (place, found) in served {
        reply_key(context, context.argument(place));
        reply(context, found)?;
    }
    Ok(None)
}

/// Reads the entries that no consumer of the group has got.
fn new_entries(
    context: &mut Context<'_>,
    request: &Request,
    (stream, group): (&Stream, &OpenGroup),
) -> Result<Rows, Interrupted> {
    let (range, count) = match group.row.last.next() {
        Some(from) => ((from, StreamId::MAX), request.count),
        None => ((StreamId::MAX, StreamId::MAX), 0),
    };
    context.entries(stream, range, count, false)
}

/// Gives the consumer what there is of one stream. If there is nothing and the client waits,
/// nothing is written.
fn serve_one(
    context: &mut Context<'_>,
    request: &Request,
    (place, (opened, id), waits): (usize, (Opened, Option<StreamId>), bool),
) -> Result<Option<Served>, Interrupted> {
    let Opened {
        mut stream,
        mut group,
        rows,
    } = opened;
    let name = context.argument(request.group_at + 1);
    if waits && rows.as_ref().is_some_and(|rows| rows.len() == 0) {
        return Ok(None);
    }
    let (consumer, is_new) = group.find_or_create(context, &mut stream, name)?;
    if is_new {
        context.event(Class::Stream, CREATED_CONSUMER, context.argument(place));
    }
    let of = (&mut stream, &mut group);
    let served = match (rows, id) {
        (Some(rows), _) if rows.len() == 0 => None,
        (Some(rows), _) => {
            deliver(context, of, (consumer, &rows, request.is_acknowledged))?;
            Some(Served::New(rows))
        }
        (None, id) => {
            let behind = id.unwrap_or(StreamId::MAX);
            let history = history(context, of, (consumer, behind, request.count))?;
            Some(Served::History(history))
        }
    };
    group.put(context, &mut stream)?;
    context.put_group(context.argument(place), stream)?;
    Ok(served)
}

/// Notes that the consumer has got these entries.
fn deliver(
    context: &mut Context<'_>,
    (stream, group): (&mut Stream, &mut OpenGroup),
    (consumer, rows, is_acknowledged): (u64, &Rows, bool),
) -> Run {
    let now = i64::try_from(context.now_ms).unwrap_or(i64::MAX);
    let ids = rows.ids()?;
    // The ID of the group may have been set back.
    let none = is_acknowledged || group.row.pending == 0;
    let old = match none {
        true => vec![None; ids.len()],
        false => pending_at(context, stream, (group.row.number, &ids))?,
    };
    for (id, old) in ids.into_iter().zip(old) {
        group.row.read = read_up_to(stream, group.row.read, id);
        group.row.last = id;
        if is_acknowledged {
            continue;
        }
        let row = PendingRow {
            consumer,
            delivered: now,
            times: 1,
        };
        let old = old.map(|old| old.consumer);
        group.put_pending(context, stream, (id, old, row))?;
    }
    if !is_acknowledged {
        group.consumer(context, stream, consumer)?.active = now;
    }
    Ok(())
}

/// Delivers what is pending for the consumer behind an ID once more.
fn history(
    context: &mut Context<'_>,
    (stream, group): (&mut Stream, &mut OpenGroup),
    (consumer, behind, count): (u64, StreamId, usize),
) -> Result<History, Interrupted> {
    let Some(from) = behind.next() else {
        return Ok(Vec::new());
    };
    let number = group.row.number;
    let range = (from, StreamId::MAX);
    let rows = pending_rows(context, stream, (number, Some(consumer)), range, count)?;
    let delivered = i64::try_from(context.now_ms).unwrap_or(i64::MAX);
    let ids = rows.ids()?;
    let entries = context.entries_at(stream, &ids)?;
    let pending = pending_at(context, stream, (number, &ids))?;
    let mut found = Vec::new();
    for ((id, entry), row) in ids.into_iter().zip(entries).zip(pending) {
        if entry.is_some() {
            let row = row
                .filter(|row| row.consumer == consumer)
                .ok_or(Interrupted::Torn)?;
            let again = PendingRow {
                delivered,
                times: row.times.saturating_add(1),
                ..row
            };
            group.put_pending(context, stream, (id, Some(consumer), again))?;
        }
        found.push((id, entry));
    }
    Ok(found)
}

fn reply(context: &mut Context<'_>, served: Served) -> Run {
    let history = match served {
        Served::New(rows) => return reply_entries(context, &rows, false),
        Served::History(history) => history,
    };
    context.reply().array(history.len());
    for (id, entry) in history {
        let mut reply = context.reply();
        match entry {
            Some(entry) => reply_entry(&mut reply, id, &entry)?,
            None => {
                reply.array(2);
                reply_id(&mut reply, id);
                reply.null_array();
            }
        }
        context.check_reply()?;
    }
    Ok(())
}
