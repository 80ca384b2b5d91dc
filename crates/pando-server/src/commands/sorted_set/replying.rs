//! Replies with scores, in both versions of the protocol.

use pando_resp::{Version, Writer};

use super::double;
use crate::context::{Context, Run};

/// Replies with a score: text in RESP2, a double in RESP3.
pub(super) fn score(context: &mut Context<'_>, score: f64) {
    write_score(&mut context.reply(), score);
}

/// As [`score`], where the writer is at hand.
pub(super) fn write_score(reply: &mut Writer<'_>, score: f64) {
    reply.double_text(double::text(score).as_bytes());
}

/// Begins a list of `count` elements; [`element`] writes each of them.
pub(super) fn begin(context: &mut Context<'_>, count: usize, with_scores: bool) {
    let is_flat = with_scores && context.session.version == Version::Resp2;
    let length = if is_flat {
        count.saturating_mul(2)
    } else {
        count
    };
    context.reply().array(length);
}

/// Writes an element: in RESP3, one with its score is a pair.
pub(super) fn element(
    context: &mut Context<'_>,
    (of, member): (f64, &[u8]),
    with_scores: bool,
) -> Run {
    if with_scores && context.session.version == Version::Resp3 {
        context.reply().array(2);
    }
    context.reply().bulk(member);
    if with_scores {
        score(context, of);
    }
    context.check_reply()
}
