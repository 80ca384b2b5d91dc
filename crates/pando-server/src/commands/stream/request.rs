//! The arguments of XREAD and XREADGROUP, and the form of their replies.

use std::ops::Range;

use pando_resp::Version;

use super::text_of;
use crate::context::{Context, Interrupted, replies};

/// What is asked for.
pub(super) struct Request {
    /// Places of the keys; their IDs are as far behind.
    pub(super) keys: Range<usize>,
    /// Most entries of each stream.
    pub(super) count: usize,
    /// For how many milliseconds the client waits if there is nothing; 0: for ever.
    pub(super) block: Option<u64>,
    /// What a group gets is acknowledged at once.
    pub(super) is_acknowledged: bool,
    /// Place of the name of the group, with that of the consumer behind it.
    pub(super) group_at: usize,
}

impl Request {
    /// Reads the arguments of XREADGROUP, or of XREAD.
    pub(super) fn parse(context: &Context<'_>, is_group: bool) -> Result<Self, Interrupted> {
        let mut request = Self {
            keys: 0..0,
            count: usize::MAX,
            block: None,
            is_acknowledged: false,
            group_at: 0,
        };
        let mut at = 1;
        while at < context.count() && request.keys.end == 0 {
            at = request.option(context, at, is_group)? + 1;
        }
        if request.keys.end == 0 {
            return Err(replies::SYNTAX.into());
        }
        if is_group && request.group_at == 0 {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(request)
    }

    /// Reads the option at `at`; returns the place of its last argument.
    fn option(
        &mut self,
        context: &Context<'_>,
        at: usize,
        is_group: bool,
    ) -> Result<usize, Interrupted> {
        let more = context.count() - at - 1;
        let only_group = |option: &str| {
            let text = "option is only supported by XREADGROUP. You called XREAD instead.";
            Interrupted::from(format!("ERR The {option} {text}"))
        };
        if more > 0 && context.is(at, "block") {
            if context.progress.replies_in_memory {
                let name = text_of(context.argument(0));
                let text = "command is not allowed with BLOCK option from scripts";
                return Err(format!("ERR {name} {text}").into());
            }
            self.block = Some(block_at(context, at + 1)?);
            return Ok(at + 1);
        }
        if more > 0 && context.is(at, "count") {
            let count = usize::try_from(context.integer_at(at + 1)?).unwrap_or(0);
            self.count = if count == 0 { usize::MAX } else { count };
            return Ok(at + 1);
        }
        if more > 0 && context.is(at, "streams") {
            if !more.is_multiple_of(2) {
                let (name, symbol) = match is_group {
                    true => ("xreadgroup", '>'),
                    false => ("xread", '$'),
                };
                return Err(format!(
                    "ERR Unbalanced '{name}' list of streams: for each stream key an ID or \
                     '{symbol}' must be specified."
                )
                .into());
            }
            self.keys = at + 1..at + 1 + more / 2;
            return Ok(at);
        }
        if more >= 2 && context.is(at, "group") {
            if !is_group {
                return Err(only_group("GROUP"));
            }
            self.group_at = at + 1;
            return Ok(at + 2);
        }
        if context.is(at, "noack") {
            if !is_group {
                return Err(only_group("NOACK"));
            }
            self.is_acknowledged = true;
            return Ok(at);
        }
        Err(replies::SYNTAX.into())
    }

    /// Returns the ID of the stream whose key is at `place`.
    pub(super) fn id<'a>(&self, context: &Context<'a>, place: usize) -> &'a [u8] {
        context.argument(place + self.keys.len())
    }
}

/// Returns argument `at` as milliseconds to wait.
fn block_at(context: &Context<'_>, at: usize) -> Result<u64, &'static str> {
    let text = "ERR timeout is not an integer or out of range";
    let block = context.integer_at(at).map_err(|_| text)?;
    let block = u64::try_from(block).map_err(|_| "ERR timeout is negative")?;
    match i64::try_from(block.saturating_add(context.now_ms)) {
        Ok(_) => Ok(block),
        Err(_) => Err("ERR timeout is out of range"),
    }
}

/// Begins the reply of XREAD and XREADGROUP, with so many streams.
pub(super) fn reply_streams(context: &mut Context<'_>, count: usize) {
    match context.session.version {
        Version::Resp2 => context.reply().array(count),
        Version::Resp3 => context.reply().map(count),
    }
}

/// Begins what the reply has of the stream at `key`.
pub(super) fn reply_key(context: &mut Context<'_>, key: &[u8]) {
    if context.session.version == Version::Resp2 {
        context.reply().array(2);
    }
    context.reply().bulk(key);
}
