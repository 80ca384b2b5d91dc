//! What XINFO tells of a stream and of a group, in both of its forms.

use pando_resp::Writer;

use super::{reply_count, reply_id};
use crate::context::Stream;
use crate::data::stream_rows::GroupRow;

/// Redis keeps so many entries in a node of its tree.
const ENTRIES_OF_NODE: u64 = 100;

/// Replies with seven figures of a stream.
pub(super) fn reply_head(reply: &mut Writer<'_>, stream: &Stream) {
    let head = &stream.head;
    // There is no such tree here: these are those that Redis would have about.
    let nodes = head.length.div_ceil(ENTRIES_OF_NODE);
    reply.bulk(b"length");
    reply_count(reply, head.length);
    reply.bulk(b"radix-tree-keys");
    reply_count(reply, nodes);
    reply.bulk(b"radix-tree-nodes");
    reply_count(reply, nodes + 1);
    reply.bulk(b"last-generated-id");
    reply_id(reply, head.last);
    reply.bulk(b"max-deleted-entry-id");
    reply_id(reply, head.max_deleted);
    reply.bulk(b"entries-added");
    reply_count(reply, head.added);
    reply.bulk(b"recorded-first-entry-id");
    reply_id(reply, head.first);
}

/// Replies with what is known of how far a group is.
pub(super) fn reply_progress(reply: &mut Writer<'_>, stream: &Stream, group: &GroupRow) {
    reply.bulk(b"entries-read");
    match group.read {
        -1 => reply.null(),
        read => reply.integer(read),
    }
    reply.bulk(b"lag");
    match lag(stream, group) {
        Some(lag) => reply.integer(lag),
        None => reply.null(),
    }
}

/// Returns how many entries a group has not read, if that can be told.
fn lag(stream: &Stream, group: &GroupRow) -> Option<i64> {
    let head = &stream.head;
    if head.added == 0 {
        return Some(0);
    }
    let read = match group.read >= 0 && !head.has_gaps_from(group.last) {
        true => group.read.cast_unsigned(),
        false => head.added_up_to(group.last)?,
    };
    Some(head.added.wrapping_sub(read).cast_signed())
}
