//! HSCAN.

use super::reading;
use crate::commands::glob::Comparisons;
use crate::commands::scan_options::{ScanOptions, iterate, reply_nothing};
use crate::context::{Command, Context, Flags, Run};
use crate::data::keyspace::ValueType;

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::READONLY,
    complexity: "O(1) for every call. O(N) for a complete iteration.",
    ..reading(
        "hscan",
        -3,
        "2.8.0",
        scan,
        "Iterates over fields and values of a hash.",
    )
}];

fn scan(context: &mut Context<'_>) -> Run {
    let cursor = ScanOptions::cursor(context)?;
    let Some((hash, next, options)) = iterate(context, ValueType::Hash, cursor)? else {
        return reply_nothing(context);
    };
    let comparisons = Comparisons::new();
    let takes = |place: &usize| {
        let field = hash.strings.at(*place);
        options
            .pattern
            .is_none_or(|pattern| comparisons.matches(pattern, field))
    };
    let places: Vec<usize> = (0..hash.strings.len()).step_by(2).filter(takes).collect();
    comparisons.end()?;
    let mut reply = context.reply();
    reply.array(2);
    reply.bulk(next.to_string().as_bytes());
    reply.array(places.len() * (2 - usize::from(options.no_values)));
    for place in places {
        reply.bulk(hash.strings.at(place));
        if !options.no_values {
            reply.bulk(hash.strings.at(place + 1));
        }
    }
    context.check_reply()
}
