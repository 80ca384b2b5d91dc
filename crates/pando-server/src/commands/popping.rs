//! What LMPOP and ZMPOP pop, and their blocking forms: the arguments from the number of keys on.

use std::ops::Range;

use crate::context::{Context, replies};

/// From which keys elements are popped, at which end, and how many.
pub(super) struct Popping<End> {
    /// Places of the keys among the arguments.
    pub(super) keys: Range<usize>,
    pub(super) end: End,
    pub(super) count: usize,
}

impl<End> Popping<End> {
    /// Reads the arguments from the number of keys on, which is argument `at`. `end` reads the
    /// argument that names the end.
    pub(super) fn parse(
        context: &Context<'_>,
        at: usize,
        end: impl FnOnce(&Context<'_>, usize) -> Result<End, &'static str>,
    ) -> Result<Self, &'static str> {
        let keys = context.number_from(at, 1, "ERR numkeys should be greater than 0")?;
        let end_at = keys.saturating_add(at + 1);
        if end_at >= context.count() {
            return Err(replies::SYNTAX);
        }
        let end = end(context, end_at)?;
        let mut count = None;
        let mut option = end_at + 1;
        while option < context.count() {
            if count.is_some() || !context.is(option, "count") || option + 1 == context.count() {
                return Err(replies::SYNTAX);
            }
            let text = "ERR count should be greater than 0";
            count = Some(context.number_from(option + 1, 1, text)?);
            option += 2;
        }
        Ok(Self {
            keys: at + 1..end_at,
            end,
            count: count.unwrap_or(1),
        })
    }
}
