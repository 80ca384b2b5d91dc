//! XTRIM, and the trimming of XADD: which entries go, the oldest ones first.
//!
//! `~` allows to keep more than what is asked for. Redis frees whole nodes of its tree then, of
//! `stream-node-max-entries` entries each; here so many go together. So most XADDs with MAXLEN ~
//! remove nothing, and none removes more than LIMIT entries.

use super::arguments::id;
use super::writing;
use crate::context::{Command, Context, Interrupted, Rows, Run, Stream, replies};
use crate::data::limits::Limit;
use crate::data::stream_id::StreamId;
use crate::data::stream_rows::entry_key;
use crate::notifications::classes::Class;

/// Entries that go together if `stream-node-max-entries` says nothing of them.
const TOGETHER: usize = 100;
/// How often one command with `~` removes so many, unless LIMIT says something else.
const STEPS: usize = 100;
/// Most entries that go together, and that go at once with `~` and without LIMIT: the writes of one
/// command must fit into a batch, and others wait for it.
const TOGETHER_MAX: usize = 10_000;

pub(in crate::commands) const COMMANDS: &[Command] = &[Command {
    complexity: "O(N), with N being the number of evicted entries. Constant times are very small \
                 however, since entries are organized in macro nodes containing multiple entries \
                 that can be released with a single deallocation.",
    summary: "Deletes messages from the beginning of a stream.",
    ..writing("xtrim", -4, trim)
}];

/// What stays of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// So many entries, the newest ones.
    Length(u64),
    /// Those from this ID on.
    From(StreamId),
}

/// What a stream is trimmed to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trim {
    kept: Kept,
    /// Most entries that go.
    limit: usize,
    /// So many go together, unless all go; 1: each goes alone.
    together: usize,
}

/// The options of XADD and XTRIM.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) trim: Option<Trim>,
    /// XADD makes no stream.
    pub(super) is_for_existing: bool,
    /// Place of the first argument that is no option.
    pub(super) end: usize,
}

/// Takes the ID in an argument of XADD, if it is one.
type IsId<'i> = dyn FnMut(&[u8]) -> Result<(), &'static str> + 'i;

/// What is known of the options while they are read.
#[derive(Default)]
struct Reading {
    kept: Option<Kept>,
    is_rough: bool,
    limit: Option<i64>,
}

impl Reading {
    /// Reads MAXLEN or MINID, which is argument `at`; returns the place of its value.
    fn strategy(
        &mut self,
        context: &Context<'_>,
        at: usize,
        is_length: bool,
    ) -> Result<usize, &'static str> {
        if self.kept.is_some() {
            return Err(
                "ERR syntax error, MAXLEN and MINID options at the same time are not \
                        compatible",
            );
        }
        let mut value = at + 1;
        let has_two = at + 2 < context.count();
        self.is_rough = has_two && context.argument(value) == b"~";
        if self.is_rough || has_two && context.argument(value) == b"=" {
            value += 1;
        }
        self.kept = Some(match is_length {
            true => match u64::try_from(context.integer_at(value)?) {
                Ok(length) => Kept::Length(length),
                Err(_) => return Err("ERR The MAXLEN argument must be >= 0."),
            },
            false => Kept::From(id(context.argument(value), 0)?),
        });
        Ok(value)
    }

    fn finish(self, context: &Context<'_>, is_trim: bool) -> Result<Option<Trim>, &'static str> {
        let has_limit = self.limit.is_some_and(|limit| limit != 0);
        let Some(kept) = self.kept else {
            return match (has_limit, is_trim) {
                (true, _) => Err(
                    "ERR syntax error, LIMIT cannot be used without specifying a \
                                  trimming strategy",
                ),
                (false, true) => Err("ERR syntax error, XTRIM must be called with a trimming \
                                      strategy"),
                (false, false) if self.limit.is_some() => Err(LIMIT_WITHOUT),
                (false, false) => Ok(None),
            };
        };
        let together = if self.is_rough { together(context) } else { 1 };
        let limit = match (self.limit, self.is_rough) {
            (Some(_), false) => return Err(LIMIT_WITHOUT),
            (Some(limit), true) if limit > 0 => usize::try_from(limit).unwrap_or(usize::MAX),
            (None, true) => (STEPS * together).min(TOGETHER_MAX),
            _ => usize::MAX,
        };
        Ok(Some(Trim {
            kept,
            limit,
            together,
        }))
    }
}

/// Returns the number of entries that go together with `~`.
fn together(context: &Context<'_>) -> usize {
    let limits = &context.shared.settings.encoding_limits;
    match usize::try_from(limits.get(Limit::StreamEntries)) {
        Ok(entries) if entries > 0 => entries.min(TOGETHER_MAX),
        _ => TOGETHER,
    }
}

const LIMIT_WITHOUT: &str = "ERR syntax error, LIMIT cannot be used without the special ~ option";

impl Options {
    /// Reads the options from argument 2 on: of XTRIM, or of XADD up to the ID, which `is_id`
    /// looks at.
    pub(super) fn parse(
        context: &Context<'_>,
        mut is_id: Option<&mut IsId<'_>>,
    ) -> Result<Self, &'static str> {
        let (mut reading, mut options) = (Reading::default(), Self::default());
        let mut at = 2;
        while at < context.count() {
            let has_more = at + 1 < context.count();
            if is_id.is_some() && context.argument(at) == b"*" {
                break;
            }
            if has_more && (context.is(at, "maxlen") || context.is(at, "minid")) {
                at = reading.strategy(context, at, context.is(at, "maxlen"))?;
            } else if has_more && context.is(at, "limit") {
                at += 1;
                let limit = context.integer_at(at)?;
                if limit < 0 {
                    return Err("ERR The LIMIT argument must be >= 0.");
                }
                reading.limit = Some(limit);
            } else if is_id.is_some() && context.is(at, "nomkstream") {
                options.is_for_existing = true;
            } else if let Some(is_id) = &mut is_id {
                is_id(context.argument(at))?;
                break;
            } else {
                return Err(replies::SYNTAX);
            }
            at += 1;
        }
        options.end = at;
        options.trim = reading.finish(context, is_id.is_none())?;
        Ok(options)
    }
}

/// What goes.
pub(super) struct Trimmed {
    /// Its entries, and maybe one that stays.
    rows: Rows,
    /// Number of those that go.
    count: usize,
    /// The entry that is being added goes, too.
    pub(super) has_new: bool,
    /// The first entry that stays, other than that.
    first: StreamId,
}

impl Trim {
    /// Returns how many of `count` entries that might go do go; `is_all`: these are all there are.
    fn whole(&self, count: usize, is_all: bool) -> usize {
        let limited = count.min(self.limit);
        match is_all && limited == count {
            true => count,
            false => limited - limited % self.together,
        }
    }

    /// Returns true if the entries between two IDs are fewer than go together, and not all: of most
    /// trims with `~` this count is all that is read.
    fn are_too_few(
        &self,
        context: &mut Context<'_>,
        stream: &Stream,
        range: (StreamId, StreamId),
    ) -> Result<bool, Interrupted> {
        if self.together == 1 {
            return Ok(false);
        }
        let count = context.entry_count(stream, range)?;
        Ok(count.is_some_and(|count| count < self.together as u64 && count < stream.head.length))
    }

    /// Finds what goes of the stream, to which `new` is to be added.
    pub(super) fn find(
        self,
        context: &mut Context<'_>,
        stream: &Stream,
        new: Option<StreamId>,
    ) -> Result<Trimmed, Interrupted> {
        let added = u64::from(new.is_some());
        // All entries are from the first one on. The one behind those that go is read with them if
        // it may be told by its place; by its ID it is not told before the others are known.
        let first = stream.head.first;
        let (rows, most) = match self.kept {
            Kept::Length(length) => {
                let excess = (stream.head.length + added).saturating_sub(length);
                let excess = usize::try_from(excess).unwrap_or(usize::MAX);
                let most = self.whole(excess, length == 0);
                let wanted = if most == 0 { 0 } else { most.saturating_add(1) };
                let range = (first, StreamId::MAX);
                let rows = context.entry_ids(stream, range, wanted, false)?;
                if (rows.len() as u64) < (most as u64).min(stream.head.length) {
                    // The head names another first entry than there is.
                    return Err(Interrupted::Torn);
                }
                (rows, most)
            }
            Kept::From(kept) => {
                let (to, most) = match kept.previous() {
                    Some(to) => (to, self.limit),
                    None => (StreamId::ZERO, 0),
                };
                let most = match self.are_too_few(context, stream, (first, to))? {
                    true => 0,
                    false => most,
                };
                let rows = context.entry_ids(stream, (first, to), most, false)?;
                let length = usize::try_from(stream.head.length).unwrap_or(usize::MAX);
                let is_new_older = rows.len() == length && new.is_some_and(|new| new < kept);
                let count = rows.len() + usize::from(is_new_older);
                let is_all = rows.len() == length && (new.is_none() || is_new_older);
                let most = self.whole(count, is_all);
                (rows, most)
            }
        };
        let count = rows.len().min(most);
        let has_new = count < most
            && match self.kept {
                Kept::Length(_) => true,
                Kept::From(first) => new.is_some_and(|new| new < first),
            };
        let first = match count {
            0 => Some(first),
            _ if count < rows.len() => Some(rows.id(count)?),
            _ => match rows.id(count - 1)?.next() {
                // All of them go.
                _ if count as u64 == stream.head.length => None,
                Some(next) => context.edge(stream, next, false)?,
                None => None,
            },
        };
        Ok(Trimmed {
            rows,
            count,
            has_new: has_new && new.is_some(),
            first: first.unwrap_or(StreamId::ZERO),
        })
    }
}

impl Trimmed {
    /// Returns the number of entries that go, other than the new one.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Removes them.
    pub(super) fn remove(&self, context: &mut Context<'_>, stream: &mut Stream) -> Run {
        for place in 0..self.count {
            let key = entry_key(stream.head.id, self.rows.id(place)?);
            context.delete_stream_row(stream, &key)?;
        }
        let left = stream.head.length.checked_sub(self.count as u64);
        stream.head.length = left.ok_or(Interrupted::Torn)?;
        stream.head.first = self.first;
        Ok(())
    }
}

fn trim(context: &mut Context<'_>) -> Run {
    let options = Options::parse(context, None)?;
    let trim = options.trim.ok_or(replies::SYNTAX)?;
    let key = context.argument(1);
    let mut stream = context.stream(key)?;
    if !stream.exists() {
        return context.integer(0);
    }
    let trimmed = trim.find(context, &stream, None)?;
    let count = trimmed.count();
    if count > 0 {
        trimmed.remove(context, &mut stream)?;
        context.put_unawaited_stream(key, stream)?;
        context.event(Class::Stream, "xtrim", key);
    }
    context.integer(i64::try_from(count).unwrap_or(i64::MAX))
}
