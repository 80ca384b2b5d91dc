//! RESTORE.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use pandodb::LargeValue;

use crate::commands::sorted_set::order::{SortedSet, score_of};
use crate::commands::{hash, list, sets};
use crate::context::replies;
use crate::context::{Chunked, Collection, Context, Former, Found, Interrupted, NewString, Run};
use crate::data::keyspace::{Row, ValueType, has_ended};
use crate::data::packed::{Strings, strings_of_one};
use crate::dump::{self, Elements, FOOTER_BYTES, Refused, StreamValue, Value};
use crate::notifications::classes::Class;

const BUSY: &str = "BUSYKEY Target key name already exists.";
const BAD_TTL: &str = "ERR Invalid TTL value, must be >= 0";
const BAD_IDLE_TIME: &str = "ERR Invalid IDLETIME value, must be >= 0";
const BAD_FREQUENCY: &str = "ERR Invalid FREQ value, must be >= 0 and <= 255";
const WRONG_SUM: &str = "ERR DUMP payload version or checksum are wrong";
const BAD_FORMAT: &str = "ERR Bad data format";

/// What is behind the payload.
#[derive(Debug, Default)]
struct Options {
    replaces: bool,
    /// The time to live is a deadline.
    is_absolute: bool,
}

impl Options {
    fn parse(context: &Context<'_>) -> Result<Self, &'static str> {
        let mut options = Self::default();
        // How long nobody has used it and how often it was used, of which only one may be given;
        // nothing here goes by it.
        let (mut has_idle_time, mut has_frequency) = (false, false);
        let mut at = 4;
        while at < context.count() {
            let has_more = at + 1 < context.count();
            if context.is(at, "replace") {
                options.replaces = true;
            } else if context.is(at, "absttl") {
                options.is_absolute = true;
            } else if context.is(at, "idletime") && has_more && !has_frequency {
                at += 1;
                match context.integer_at(at)? {
                    0.. => has_idle_time = true,
                    _ => return Err(BAD_IDLE_TIME),
                }
            } else if context.is(at, "freq") && has_more && !has_idle_time {
                at += 1;
                match context.integer_at(at)? {
                    0..=255 => has_frequency = true,
                    _ => return Err(BAD_FREQUENCY),
                }
            } else {
                return Err(replies::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns the deadline that the key gets.
    fn deadline(&self, context: &Context<'_>) -> Result<Option<u64>, &'static str> {
        let ttl = u64::try_from(context.integer_at(2)?).map_err(|_| BAD_TTL)?;
        if ttl == 0 || self.is_absolute {
            return Ok((ttl > 0).then_some(ttl));
        }
        let deadline = context.now_ms.saturating_add(ttl);
        i64::try_from(deadline).map_or(Err(BAD_TTL), |_| Ok(Some(deadline)))
    }
}

pub(super) fn restore(context: &mut Context<'_>) -> Run {
    let key = context.argument(1);
    let options = Options::parse(context)?;
    let found = context.find_any_head(key)?;
    if found.row.is_some() && !options.replaces {
        return context.fail(BUSY);
    }
    let deadline = options.deadline(context)?;
    let payload = Payload::of(context, key)?;
    let value = payload.decoded(context)?;
    let is_over = deadline.is_some_and(|deadline| has_ended(deadline, context.now_ms));
    if is_over || value.has_expired() {
        if found.row.is_some() {
            context.remove(key, &found)?;
            context.event(Class::Generic, "del", key);
        }
        return context.ok();
    }
    value.put(context, key, (deadline, found.former.removed()))?;
    context.event(Class::Generic, "restore", key);
    context.ok()
}

/// The argument that is a payload.
enum Payload<'a> {
    Bytes(Cow<'a, [u8]>),
    /// Of one that is too long to be held in memory, where its string is.
    Staged(&'a LargeValue, Range<u64>),
}

impl<'a> Payload<'a> {
    fn of(context: &mut Context<'a>, key: &[u8]) -> Result<Self, Interrupted> {
        let large = match context.string(3) {
            NewString::Bytes(payload) => return Ok(Self::Bytes(Cow::Borrowed(payload))),
            NewString::Large(large) => large,
        };
        let staged = context.opened_argument(large)?;
        if let Some(range) = string_within(context, key, &staged)? {
            return Ok(Self::Staged(large, range));
        }
        let bytes = usize::try_from(staged.len()).unwrap_or(usize::MAX);
        let most = bytes_max(context);
        if bytes > most {
            let text = format!(
                "ERR the payload has {bytes} bytes: one that is no plain string may have {most} \
                 with this max-memory"
            );
            return Err(text.into());
        }
        let whole =
            context.gather_chunked(key, &staged, 0..staged.len(), &mut |all, _, piece| {
                all.bytes.extend_from_slice(piece);
                false
            })?;
        Ok(Self::Bytes(Cow::Owned(whole.bytes)))
    }

    /// Reads the value.
    fn decoded(&self, context: &mut Context<'_>) -> Result<NewValue<'_>, Interrupted> {
        let payload = match self {
            Self::Staged(large, range) => return Ok(NewValue::Staged(large, range.clone())),
            Self::Bytes(payload) => payload,
        };
        let content = dump::opened(payload).ok_or(WRONG_SUM)?;
        let most = bytes_max(context);
        let value = dump::decode(content, most).map_err(|refused| why_refused(refused, most));
        Ok(match value? {
            Value::String(bytes) => NewValue::String(bytes),
            Value::Stream(stream) => NewValue::Stream(stream),
            Value::Collection(elements) => {
                NewValue::Collection(Box::new(collection(context, elements)?))
            }
        })
    }
}

/// Returns how many bytes of a value may be in memory.
fn bytes_max(context: &Context<'_>) -> usize {
    context.engine().reply_bytes_max / 2
}

/// Returns where the string is that a payload has which is too long to be held in memory, if it is
/// one that lies in chunks here, too, and is not compressed.
fn string_within(
    context: &mut Context<'_>,
    key: &[u8],
    staged: &Chunked,
) -> Result<Option<Range<u64>>, Interrupted> {
    let length = staged.len();
    let end = length - FOOTER_BYTES as u64;
    // The sum of what is before the footer; the first bytes, and the footer.
    let seen = context.gather_chunked(key, staged, 0..length, &mut |seen, place, piece| {
        let within = |at: u64| {
            let at = at.saturating_sub(place).min(piece.len() as u64);
            usize::try_from(at).expect("it is within the piece")
        };
        seen.number = dump::crc64_on(seen.number, &piece[..within(end)]);
        seen.bytes.extend_from_slice(&piece[..within(HEAD_BYTES)]);
        seen.bytes.extend_from_slice(&piece[within(end)..]);
        false
    })?;
    let (head, footer) = seen.bytes.split_at(seen.bytes.len() - FOOTER_BYTES);
    if !dump::is_footer(footer, seen.number) {
        return Err(WRONG_SUM.into());
    }
    let string = dump::plain_string_of(head, end);
    Ok(string.filter(|range| !context.lies_in_pages(key, range.end - range.start)))
}

/// First bytes of a payload, of which a string begins within the first ten.
const HEAD_BYTES: u64 = 16;

/// The value that the key gets.
enum NewValue<'p> {
    Staged(&'p LargeValue, Range<u64>),
    String(Cow<'p, [u8]>),
    Stream(Box<StreamValue>),
    Collection(Box<Collection>),
}

impl NewValue<'_> {
    /// Returns true if it is a hash of which each field has expired.
    fn has_expired(&self) -> bool {
        match self {
            Self::Collection(collection) => collection.len() == 0,
            _ => false,
        }
    }

    /// Writes it at `key`, which has had `former`.
    fn put(
        self,
        context: &mut Context<'_>,
        key: &[u8],
        (deadline, former): (Option<u64>, Former),
    ) -> Run {
        match self {
            Self::Staged(large, range) => {
                let string = context.part_of_staged(key, large, range)?;
                context.put(key, NewString::Large(&string), deadline, former)
            }
            Self::String(bytes) => {
                if !context.fits(bytes.len() as u64) {
                    return Err(replies::STRING_TOO_LONG.into());
                }
                context.put(key, NewString::Bytes(&bytes), deadline, former)
            }
            Self::Stream(stream) => {
                context.check_stream_value(&stream)?;
                context.put_stream_value(key, &stream, (deadline, former))
            }
            Self::Collection(mut collection) => {
                collection.found = Found {
                    row: Some(Row::of_new(collection.value_type, deadline)),
                    former,
                    ..Found::default()
                };
                context.put_collection(key, &collection)
            }
        }
    }
}

/// Returns the error for a payload of which at most so many bytes may be in memory.
fn why_refused(refused: Refused, most: usize) -> Interrupted {
    match refused {
        Refused::Damaged => BAD_FORMAT.into(),
        Refused::TooLong => {
            let text = format!(
                "ERR the value of the payload takes more than {most} bytes of memory when it is \
                 expanded: more max-memory would make room"
            );
            text.into()
        }
    }
}

/// Makes a collection of elements; without those that have expired.
fn collection(context: &mut Context<'_>, elements: Elements) -> Result<Collection, Interrupted> {
    let value_type = elements.value_type;
    let mut new = context.replacement(&Found::default(), value_type);
    let of_one = strings_of_one(value_type);
    let has_twice = value_type != ValueType::List && !differ(&elements.strings, of_one);
    let are_bad = elements.strings.len() == 0 || has_twice;
    if are_bad {
        return Err(BAD_FORMAT.into());
    }
    match value_type {
        ValueType::Set => return Ok(sets::members::of_all(new, &elements.strings)),
        ValueType::SortedSet => {
            let all = elements.strings.iter().step_by(2).enumerate();
            let all = all.map(|(place, member)| {
                let score = elements.strings.at(place * 2 + 1);
                (score_of(score).unwrap_or_default(), member)
            });
            return Ok(SortedSet::of(all.collect(), new).into_collection());
        }
        ValueType::Hash => {
            new.strings = elements.strings;
            new.deadlines = elements.deadlines;
            new.deadlines.drop_expired(&mut new.strings, context.now_ms);
            hash::grow_encoding(&mut new);
        }
        _ => {
            new.strings = elements.strings;
            list::encoding::decide(&mut new);
        }
    }
    Ok(new)
}

/// Returns true if all elements differ.
fn differ(strings: &Strings, of_one: usize) -> bool {
    let mut seen = HashSet::with_capacity(strings.len() / of_one);
    strings.iter().step_by(of_one).all(|name| seen.insert(name))
}
