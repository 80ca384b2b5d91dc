//! LCS: the longest common subsequence of two strings. A long one is found in several turns.

use crate::context::subsequence::{Match, Table};
use crate::context::{Command, Context, Flags, Interrupted, Keys, Kind, Run, replies};

/// Bytes that the table of Redis may take, which has 4 for each pair of beginnings.
const TABLE_BYTES_MAX: u64 = 512 << 20;

/// What Redis says of a key of another type, instead of WRONGTYPE.
const NO_STRING: &str = "ERR The specified keys must contain string values";

pub(crate) const COMMANDS: &[Command] = &[Command {
    since: "7.0.0",
    flags: Flags::READONLY,
    keys: Keys::TWO,
    kind: Kind::ReadMany,
    complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
    summary: "Finds the longest common substring.",
    ..Command::read("lcs", -3, subsequence)
}];

#[derive(Default)]
struct Options {
    length: bool,
    places: bool,
    with_lengths: bool,
    length_min: i64,
}

fn parse(context: &Context<'_>) -> Result<Options, &'static str> {
    let mut options = Options::default();
    let mut at = 3;
    while at < context.count() {
        match () {
            () if context.is(at, "idx") => options.places = true,
            () if context.is(at, "len") => options.length = true,
            () if context.is(at, "withmatchlen") => options.with_lengths = true,
            () if context.is(at, "minmatchlen") && at + 1 < context.count() => {
                at += 1;
                options.length_min = context.integer_at(at)?;
            }
            () => return Err(replies::SYNTAX),
        }
        at += 1;
    }
    if options.length && options.places {
        return Err("ERR If you want both the length and indexes, please just use IDX.");
    }
    Ok(options)
}

/// Returns the whole string at argument `index`; an empty one if there is none.
fn string(context: &mut Context<'_>, index: usize) -> Result<Vec<u8>, Interrupted> {
    let key = context.argument(index);
    let found = context.read(key).map_err(|error| match error {
        Interrupted::Refused(text) if text == replies::WRONG_TYPE => NO_STRING.into(),
        error => error,
    })?;
    context.part(key, &found, 0..u64::MAX)
}

fn subsequence(context: &mut Context<'_>) -> Run {
    let first = string(context, 1)?;
    let second = string(context, 2)?;
    let options = match parse(context) {
        Ok(options) => options,
        Err(text) => return context.fail(text),
    };
    let cells = (first.len() as u64 + 1) * (second.len() as u64 + 1);
    if cells > TABLE_BYTES_MAX / 4 {
        let text = "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len";
        return context.fail(text);
    }
    let index = context.exec_index.unwrap_or(0);
    let kept = context.progress.take_table(index);
    let kept = kept.filter(|table| table.is_of(&first, &second));
    let mut table = kept.unwrap_or_else(|| Table::new(first, second));
    let is_filled = table.fill();
    if is_filled {
        reply(context, &table, &options);
    }
    context.progress.keep_table(index, table);
    match is_filled {
        true => context.check_reply(),
        false => Err(Interrupted::Yield),
    }
}

fn reply(context: &mut Context<'_>, table: &Table, options: &Options) {
    let length = i64::try_from(table.length()).unwrap_or(i64::MAX);
    let mut reply = context.reply();
    if options.length {
        return reply.integer(length);
    }
    let matches = table.matches();
    if !options.places {
        return reply.bulk(&table.text(&matches));
    }
    let place = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
    let is_long = |found: &&Match| place(found.length) >= options.length_min;
    let shown: Vec<&Match> = matches.iter().filter(is_long).collect();
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(shown.len());
    for found in shown {
        reply.array(2 + usize::from(options.with_lengths));
        for start in [found.first, found.second] {
            reply.array(2);
            reply.integer(place(start));
            reply.integer(place(start + found.length - 1));
        }
        if options.with_lengths {
            reply.integer(place(found.length));
        }
    }
    reply.bulk(b"len");
    reply.integer(length);
}
