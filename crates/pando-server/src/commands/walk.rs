//! SCAN, KEYS, DBSIZE: commands over a whole database.
//!
//! An iteration reads one leaf after another, in the order of stored keys, yields after some
//! leaves, and then continues where it was. If all that a pattern matches begins with the same
//! bytes, no other keys are read or counted. KEYS reads at a snapshot, and shows the keys of one
//! moment. SCAN, and KEYS in EXEC, read each leaf as it is: a key that exists from beginning to end
//! is found; one that is added or removed in the meantime may be found or not.

use pando_resp::Writer;
use pandodb::nonblocking::{Opened, Polled, Reads, ValidatedBatch};

use super::scan_options::cursor_of;
use crate::commands::glob::{self, Comparisons};
use crate::context::progress::{Position, Walk};
use crate::context::{Command, Context, Flags, Group, Interrupted, Keys, Kind, Run, replies};
use crate::data::keyspace::{Row, ValueType};

/// Number of leaves that are read before the iteration yields.
const LEAVES_PER_TURN: usize = 8;
/// Number of keys that SCAN examines without COUNT.
const SCAN_COUNT: u64 = 10;
/// Approximate maximum of the bytes of keys that SCAN returns, whatever its COUNT.
const SCAN_BYTES_MAX: usize = 1024 * 1024;

const fn over_all(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::READONLY,
        keys: Keys::NONE,
        group: Group::Generic,
        kind: Kind::Read,
        complexity: "O(N) with N being the number of keys in the database.",
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        since: "2.8.0",
        complexity: "O(1) for every call. O(N) for a complete iteration.",
        ..over_all(
            "scan",
            -2,
            scan,
            "Iterates over the key names in the database.",
        )
    },
    Command {
        kind: Kind::ReadAll,
        ..over_all(
            "keys",
            2,
            keys,
            "Returns all key names that match a pattern.",
        )
    },
    Command {
        flags: Flags::READONLY.and(Flags::FAST),
        group: Group::Server,
        complexity: "O(1)",
        ..over_all(
            "dbsize",
            1,
            size,
            "Returns the number of keys in the database.",
        )
    },
];

/// What an iteration selects, and its limits.
#[derive(Clone, Copy)]
struct Selection<'a> {
    pattern: Option<&'a [u8]>,
    /// Number of keys to examine.
    limit: u64,
    /// Number of bytes of keys after which the iteration stops.
    bytes_max: usize,
    /// The type of the keys; `Some(None)`: one that no key has.
    value_type: Option<Option<ValueType>>,
    /// The keys are counted, and not returned.
    counts: bool,
}

impl Selection<'_> {
    /// Some keys of any kind.
    const ALL: Self = Self {
        pattern: None,
        limit: SCAN_COUNT,
        bytes_max: SCAN_BYTES_MAX,
        value_type: None,
        counts: false,
    };

    fn takes(&self, comparisons: &Comparisons, key: &[u8]) -> bool {
        self.pattern
            .is_none_or(|pattern| comparisons.matches(pattern, key))
    }

    fn takes_type(&self, value_type: ValueType) -> bool {
        self.value_type
            .is_none_or(|wanted| wanted == Some(value_type.shown()))
    }
}

/// Continues the iteration of this command until it is done.
fn advance(
    context: &mut Context<'_>,
    request: Selection<'_>,
    start: impl FnOnce(&Context<'_>) -> Option<Vec<u8>>,
) -> Result<Walk, Interrupted> {
    let index = context.exec_index.unwrap_or(0);
    let mut walk = context.progress.take_walk(index);
    if !walk.begun {
        walk.begun = true;
        walk.start = start(context);
        walk.position = walk.start.clone().map(Position::Behind);
    }
    let mut result = Ok(());
    let comparisons = Comparisons::new();
    for _ in 0..LEAVES_PER_TURN {
        if walk.done || result.is_err() {
            break;
        }
        result = leaf(context, &mut walk, request, &comparisons);
    }
    match result {
        Ok(()) if walk.done => Ok(walk),
        Ok(()) => {
            context.progress.keep_walk(index, walk);
            Err(Interrupted::Yield)
        }
        Err(interrupted) => {
            context.progress.keep_walk(index, walk);
            Err(interrupted)
        }
    }
}

/// Moves `walk` on to the next place where a stored key may begin with one of `prefixes`, which are
/// in order. Returns false if there is none.
fn seek(walk: &mut Walk, prefixes: &[Vec<u8>]) -> bool {
    let at = match &walk.position {
        None => &[],
        Some(Position::At(key) | Position::Behind(key)) => key.as_slice(),
    };
    for prefix in prefixes {
        if at.starts_with(prefix) {
            return true;
        }
        if at < prefix.as_slice() {
            walk.position = Some(Position::At(prefix.clone()));
            return true;
        }
    }
    false
}

/// Examines the keys of one leaf, the next one that may have keys that match.
fn leaf(
    context: &mut Context<'_>,
    walk: &mut Walk,
    request: Selection<'_>,
    comparisons: &Comparisons,
) -> Run {
    let prefix = request.pattern.map(glob::prefix_of);
    let prefix = prefix.filter(|prefix| !prefix.is_empty());
    let folder = context.engine().folder;
    let prefixes = prefix.map(|prefix| folder.prefixes(&prefix));
    if prefixes
        .as_ref()
        .is_some_and(|prefixes| !seek(walk, prefixes))
    {
        walk.end();
        return Ok(());
    }
    let of_others = |stored: &[u8]| {
        let mut prefixes = prefixes.as_ref()?.iter();
        (!prefixes.any(|prefix| stored.starts_with(prefix))).then(|| stored.to_vec())
    };
    examine(context, walk, (request, comparisons), &of_others)?;
    Ok(comparisons.end()?)
}

/// Examines the keys of one leaf, up to the first one that `of_others` returns.
fn examine(
    context: &mut Context<'_>,
    walk: &mut Walk,
    (request, comparisons): (Selection<'_>, &Comparisons),
    of_others: &dyn Fn(&[u8]) -> Option<Vec<u8>>,
) -> Run {
    let (number, now_ms) = (context.session.database, context.now_ms);
    let (version, database) = (context.session.version, context.database());
    let is_interactive = context.session.interactive.is_some();
    let data = context.data();
    let from = walk.from();
    let scratch = &mut *data.scratch;
    let mut transaction = (data.batch.as_deref_mut()).and_then(ValidatedBatch::transaction);
    let scanned = match &mut transaction {
        Some(transaction) => transaction.scan(&database.keys, from, &mut scratch.page)?,
        None => Reads::of(&database.keys).scan(from, &mut scratch.page)?,
    };
    if let Polled::Pending(pending) = scanned {
        return Err(Interrupted::Pending(pending));
    }
    walk.shown_from = walk.shown_from.max(scratch.page.shown_from);
    for index in 0..scratch.page.len() {
        let (stored, value) = scratch.page.entry(index);
        if let Some(other) = of_others(stored) {
            walk.position = Some(Position::At(other));
            return Ok(());
        }
        // A long value is not in the leaf, but its head is needed.
        let value = match value {
            Some(value) => Some(value),
            None => {
                scratch.value.clear();
                // Of a key that is still there, the head of today will do: one page of a string.
                let mut found = match is_interactive {
                    true => Polled::Ready(false),
                    false => database.look(stored, &mut scratch.value, &mut walk.shown_from)?,
                };
                if let (Polled::Ready(false), Some(transaction)) = (&found, &mut transaction) {
                    let opened = transaction.open(&database.keys, stored, &mut scratch.value)?;
                    walk.shown_from = walk.shown_from.max(transaction.shown_from());
                    found = opened.map(|opened| !matches!(opened, Opened::Absent));
                }
                match found {
                    Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                    Polled::Ready(true) => Some(scratch.value.as_slice()),
                    Polled::Ready(false) => None,
                }
            }
        };
        let hidden = data.overlay.as_deref_mut();
        let hidden = hidden.is_some_and(|overlay| overlay.hides(number, stored));
        if let Some(value) = value.filter(|_| !hidden) {
            let row = Row::decode(stored, value)?;
            let key = row.user_key(stored, value);
            let takes = || request.takes(comparisons, key) && request.takes_type(row.value_type);
            if !row.is_over(now_ms) && takes() {
                if !request.counts {
                    Writer::new(&mut walk.found, version).bulk(key);
                }
                walk.count += 1;
            }
        }
        walk.position = Some(Position::Behind(stored.to_vec()));
        walk.examined += 1;
        if walk.examined >= request.limit || walk.found.len() >= request.bytes_max {
            walk.done = true;
            return Ok(());
        }
    }
    if walk.found.len() > data.engine.reply_bytes_max {
        return Err(Interrupted::ReplyTooLong);
    }
    match scratch.page.next.take() {
        Some(next) => walk.position = Some(Position::At(next)),
        None => walk.end(),
    }
    Ok(())
}

/// Replies with the keys of a finished iteration, and those that EXEC has made in its range.
fn reply_keys(context: &mut Context<'_>, walk: &Walk, request: Selection<'_>) -> Run {
    context.progress.show_from(walk.shown_from);
    let number = context.session.database;
    let version = context.session.version;
    let (mut extra, mut extra_count) = (Vec::new(), 0);
    let comparisons = Comparisons::new();
    let overlay = context.data().overlay.as_deref_mut();
    for (stored, key) in overlay
        .into_iter()
        .flat_map(|overlay| overlay.touched(number))
    {
        let begun = walk.start.as_deref().is_none_or(|start| stored > start);
        let ended = match &walk.position {
            Some(Position::Behind(last)) if !walk.at_end => stored > last.as_slice(),
            _ => false,
        };
        if let Some(key) = key.filter(|key| begun && !ended && request.takes(&comparisons, key)) {
            Writer::new(&mut extra, version).bulk(key);
            extra_count += 1;
        }
    }
    comparisons.end()?;
    let mut reply = context.reply();
    reply.array(walk.count + extra_count);
    reply.raw(&walk.found);
    reply.raw(&extra);
    context.check_reply()
}

/// Keeps the iteration of a command in EXEC, which may run again: the next run does not repeat it.
fn keep(context: &mut Context<'_>, walk: Walk) {
    if let Some(index) = context.exec_index {
        context.progress.keep_walk(index, walk);
    }
}

fn keys(context: &mut Context<'_>) -> Run {
    let pattern = context.argument(1);
    let request = Selection {
        pattern: (pattern != b"*").then_some(pattern),
        limit: u64::MAX,
        bytes_max: usize::MAX,
        ..Selection::ALL
    };
    let walk = advance(context, request, |_| None)?;
    reply_keys(context, &walk, request)?;
    keep(context, walk);
    Ok(())
}

fn scan(context: &mut Context<'_>) -> Run {
    let Some(cursor) = cursor_of(context.argument(1)) else {
        return context.fail("ERR invalid cursor");
    };
    let mut request = Selection::ALL;
    for at in (2..context.count()).step_by(2) {
        if at + 1 >= context.count() {
            return context.fail(replies::SYNTAX);
        }
        if context.is(at, "match") {
            let pattern = context.argument(at + 1);
            request.pattern = (pattern != b"*").then_some(pattern);
        } else if context.is(at, "count") {
            request.limit = match context.integer_at(at + 1).map(u64::try_from) {
                Ok(Ok(count)) if count > 0 => count,
                Ok(_) => return context.fail(replies::SYNTAX),
                Err(text) => return context.fail(text),
            };
        } else if context.is(at, "type") {
            request.value_type = Some(ValueType::named(context.argument(at + 1)));
        } else {
            return context.fail(replies::SYNTAX);
        }
    }
    let walk = advance(context, request, |context| {
        let mut cursors = context.shared.cursors.lock();
        cursors.find(cursor, context.session.database)
    })?;
    let next = match &walk.position {
        Some(Position::Behind(last)) if !walk.at_end => {
            let (database, most) = (context.session.database, context.engine().cursor_bytes_max);
            let mut cursors = context.shared.cursors.lock();
            cursors.insert(database, last, most)
        }
        _ => 0,
    };
    context.reply().array(2);
    context.reply().bulk(next.to_string().as_bytes());
    reply_keys(context, &walk, request)?;
    keep(context, walk);
    Ok(())
}

/// Counts the keys that a transaction of PANDO BEGIN sees: the store knows how many there are now.
fn count_all(context: &mut Context<'_>) -> Run {
    let request = Selection {
        limit: u64::MAX,
        bytes_max: usize::MAX,
        counts: true,
        ..Selection::ALL
    };
    let walk = advance(context, request, |_| None)?;
    context.progress.show_from(walk.shown_from);
    context.integer(i64::try_from(walk.count).unwrap_or(i64::MAX))
}

fn size(context: &mut Context<'_>) -> Run {
    if context.session.interactive.is_some() {
        return count_all(context);
    }
    let number = context.session.database;
    let database = context.database();
    let mut size = i64::try_from(database.keys.len()).unwrap_or(i64::MAX);
    let data = context.data();
    if let Some(overlay) = data.overlay.as_deref_mut() {
        let cleared = overlay.is_cleared(number);
        if cleared {
            size = 0;
        }
        for (stored, key) in overlay.touched(number) {
            let was = if cleared {
                false
            } else {
                data.scratch.value.clear();
                // EXEC has made changes here: its reply is shown only once its own commit is, with
                // a later LSN.
                match database.look(stored, &mut data.scratch.value, &mut None)? {
                    Polled::Ready(found) => found,
                    Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
                }
            };
            size += i64::from(key.is_some()) - i64::from(was);
        }
    }
    context.integer(size)
}
