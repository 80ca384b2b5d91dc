//! PANDO RANGE and PANDO COUNT: the keys of a database in order, as of one moment.
//!
//! Keys that are stored as they are lie in their order, and are read from one end until enough are
//! found. Long keys lie behind them in the order of their first bytes, and are read from the same
//! end, until those bytes say that none of the others is wanted: beyond the range, or behind the
//! last of as many keys as are asked for. Never more than these are kept.

use std::ops::Bound;

use pando_resp::Writer;
use pandodb::Table;
use pandodb::nonblocking::{Opened, Polled, ValidatedBatch};

use crate::context::progress::KeyRange;
use crate::context::{Command, Context, Flags, Group, Interrupted, Kind, Run, replies};
use crate::data::elements::piece_key;
use crate::data::keyspace::{Row, RowError, ValueType};
use crate::data::piece_head::PieceHead;

/// Number of leaves that are read before the command yields.
const LEAVES_PER_TURN: usize = 8;
/// Longest part of a bound that is looked for in the store; what is beyond it is compared.
const BOUND_BYTES_MAX: usize = 512;
/// Memory that a key takes besides its bytes.
const KEY_BYTES: usize = 64;
const NO_MOMENT: &str = "ERR there is no memory for a view of one moment";
const IN_CHUNKS: &str = "ERR PANDO RANGE VALUES: a string is so long that only GET shows it";

const FLAGS: Flags = Flags::READONLY.and(Flags::NO_MULTI);

/// The subcommand of PANDO.
pub(super) const RANGE: Command = Command {
    flags: FLAGS,
    group: Group::Generic,
    kind: Kind::ReadAll,
    complexity: "O(log(N)+M), M being the number of keys that are looked at.",
    summary: "Returns keys of the database in order, as of one moment.",
    ..Command::new("range", -4, range)
};

/// The subcommand of PANDO.
pub(super) const COUNT: Command = Command {
    flags: FLAGS,
    group: Group::Generic,
    kind: Kind::ReadAll,
    complexity: "O(log(N)+M), M being the number of keys in the range.",
    summary: "Returns the number of keys of the database in a range, as of one moment.",
    ..Command::new("count", 4, count)
};

/// What is asked for.
struct Request<'a> {
    low: Bound<&'a [u8]>,
    high: Bound<&'a [u8]>,
    /// From the highest key down.
    reverse: bool,
    /// Number of keys, at most.
    most: usize,
    values: bool,
    /// As [`ValueType::named`] says; `None`: all.
    value_type: Option<Option<ValueType>>,
    /// Keys are counted, and not kept.
    counts: bool,
}

/// Reads a bound of ZRANGEBYLEX: `[key`, `(key`, `-` or `+`. Both ends that are open are the same:
/// which end it is follows from the place, so a `+` below or a `-` above selects nothing.
fn bound<'a>(argument: &'a [u8], open: &[u8]) -> Result<Option<Bound<&'a [u8]>>, &'static str> {
    match argument {
        [b'[', key @ ..] => Ok(Some(Bound::Included(key))),
        [b'(', key @ ..] => Ok(Some(Bound::Excluded(key))),
        b"-" | b"+" => Ok((argument == open).then_some(Bound::Unbounded)),
        _ => Err(replies::NOT_MEMBER_BOUNDS),
    }
}

impl<'a> Request<'a> {
    /// `None`: nothing can be in the range.
    fn parse(context: &Context<'a>, counts: bool) -> Result<Option<Self>, Interrupted> {
        let mut request = Self {
            low: Bound::Unbounded,
            high: Bound::Unbounded,
            reverse: false,
            most: usize::MAX,
            values: false,
            value_type: None,
            counts,
        };
        let mut at = 4;
        while at < context.count() {
            let has_value = at + 1 < context.count();
            if context.is(at, "rev") {
                request.reverse = true;
                at += 1;
            } else if context.is(at, "values") {
                request.values = true;
                at += 1;
            } else if has_value && context.is(at, "count") {
                request.most = context.number_from(at + 1, 0, replies::MUST_BE_POSITIVE)?;
                at += 2;
            } else if has_value && context.is(at, "type") {
                request.value_type = Some(ValueType::named(context.argument(at + 1)));
                at += 2;
            } else {
                return Err(replies::SYNTAX.into());
            }
        }
        let (low, high) = if request.reverse { (3, 2) } else { (2, 3) };
        let low = bound(context.argument(low), b"-")?;
        let high = bound(context.argument(high), b"+")?;
        let (Some(low), Some(high)) = (low, high) else {
            return Ok(None);
        };
        Ok((request.most > 0).then_some(Self {
            low,
            high,
            ..request
        }))
    }

    fn is_too_low(&self, key: &[u8]) -> bool {
        match self.low {
            Bound::Included(low) => key < low,
            Bound::Excluded(low) => key <= low,
            Bound::Unbounded => false,
        }
    }

    fn is_too_high(&self, key: &[u8]) -> bool {
        match self.high {
            Bound::Included(high) => key > high,
            Bound::Excluded(high) => key >= high,
            Bound::Unbounded => false,
        }
    }

    fn takes_type(&self, value_type: ValueType) -> bool {
        self.value_type
            .is_none_or(|wanted| wanted == Some(value_type.shown()))
    }

    /// Returns true if none of the long keys that begin with `first`, or that come after those, can
    /// be in the range. All long keys have so many first bytes.
    fn ends_before(&self, first: &[u8]) -> bool {
        if !self.reverse {
            return self.is_too_high(first);
        }
        match self.low {
            Bound::Included(low) | Bound::Excluded(low) => first < beginning(low, first.len()),
            Bound::Unbounded => false,
        }
    }

    /// Returns true if `key` comes behind the last of as many keys as are asked for.
    fn is_behind(&self, range: &KeyRange, key: &[u8]) -> bool {
        self.last_wanted(range)
            .is_some_and(|last| match self.reverse {
                false => key > last,
                true => key < last,
            })
    }

    /// As [`Request::is_behind`], of all long keys that begin with `first` or come after those.
    fn are_behind(&self, range: &KeyRange, first: &[u8]) -> bool {
        self.last_wanted(range)
            .is_some_and(|last| match self.reverse {
                false => first > last,
                true => first < beginning(last, first.len()),
            })
    }

    /// Returns the last of the keys that were found, if none behind it is wanted: they are as many
    /// as are asked for, or it has no room in the reply.
    fn last_wanted<'r>(&self, range: &'r KeyRange) -> Option<&'r [u8]> {
        if range.found.len() < self.most && range.unfit.is_none() {
            return None;
        }
        self.last(range).map(|(key, _)| key.as_slice())
    }

    /// Returns the last of the keys that were found, in the order that is asked for.
    fn last<'r>(&self, range: &'r KeyRange) -> Option<(&'r Vec<u8>, &'r Vec<u8>)> {
        match self.reverse {
            false => range.found.last_key_value(),
            true => range.found.first_key_value(),
        }
    }

    /// Returns the stored keys between which the keys of the range lie that are stored as they are,
    /// or the long ones; there may be others between them.
    fn stored(&self, context: &Context<'_>, of_long: bool) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let folder = context.engine().folder;
        let at = usize::from(of_long);
        let short = |key: &[u8]| folder.prefixes(beginning(key, BOUND_BYTES_MAX))[at].clone();
        let low = match self.low {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        };
        let low = Bound::Included(short(low));
        let high = match self.high {
            Bound::Included(key) | Bound::Excluded(key) => match key.len() <= BOUND_BYTES_MAX {
                true if !of_long => Bound::Included(short(key)),
                _ => behind(short(key)),
            },
            Bound::Unbounded => behind(folder.prefixes(&[])[at].clone()),
        };
        (low, high)
    }
}

/// Returns at most `len` first bytes of `key`.
fn beginning(key: &[u8], len: usize) -> &[u8] {
    &key[..key.len().min(len)]
}

/// Returns the end of all stored keys that begin with `prefix`.
fn behind(mut prefix: Vec<u8>) -> Bound<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return Bound::Excluded(prefix);
        }
    }
    Bound::Unbounded
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// Reads the keys of the range, in turns.
fn find(context: &mut Context<'_>, request: &Request<'_>) -> Result<KeyRange, Interrupted> {
    let mut range = context.progress.key_range.take().unwrap_or_default();
    let mut result = Ok(());
    for _ in 0..LEAVES_PER_TURN {
        if range.is_done || result.is_err() {
            break;
        }
        result = read_leaf(context, &mut range, request);
    }
    match result {
        Ok(()) if range.is_done => Ok(*range),
        result => {
            context.progress.key_range = Some(range);
            Err(result.err().unwrap_or(Interrupted::Yield))
        }
    }
}

/// Reads one leaf, and goes on to the long keys behind the last of the others.
fn read_leaf(context: &mut Context<'_>, range: &mut KeyRange, request: &Request<'_>) -> Run {
    let (low, high) = request.stored(context, range.is_long);
    let backwards = request.reverse;
    let from = range.position.clone();
    let database = context.database();
    let data = context.data();
    let batch = data.batch.as_deref_mut().expect("it reads all keys");
    if batch.transaction().is_none() {
        return Err(NO_MOMENT.into());
    }
    let page = &mut data.scratch.page;
    let scanned = match backwards {
        false => {
            let from = from.unwrap_or(low);
            batch.scan(
                &database.keys,
                (as_slice(&from), as_slice(&high)),
                usize::MAX,
                page,
            )?
        }
        true => {
            let from = from.unwrap_or(high);
            batch.scan_back(
                &database.keys,
                (as_slice(&from), as_slice(&low)),
                usize::MAX,
                page,
            )?
        }
    };
    if let Polled::Pending(pending) = scanned {
        return Err(Interrupted::Pending(pending));
    }
    range.shown_from = range.shown_from.max(page.shown_from);
    let ended = take_entries(context, range, request)?;
    let next = context.data().scratch.page.next.take();
    match next.filter(|_| !ended) {
        Some(next) if backwards => range.position = Some(Bound::Excluded(next)),
        Some(next) => range.position = Some(Bound::Included(next)),
        None if range.is_long => range.is_done = true,
        None => {
            range.is_long = true;
            range.position = None;
        }
    }
    Ok(())
}

/// Takes the entries of the leaf that was read; returns true if none behind them is in the range,
/// or wanted. An interruption has the leaf read again from the entry that was not taken.
fn take_entries(
    context: &mut Context<'_>,
    range: &mut KeyRange,
    request: &Request<'_>,
) -> Result<bool, Interrupted> {
    let version = context.session.version;
    let now_ms = *range.now_ms.get_or_insert(context.now_ms);
    let (is_long, reply_bytes_max) = (range.is_long, context.engine().reply_bytes_max);
    let folder = context.engine().folder;
    let database = context.database();
    let data = context.data();
    let scratch = &mut *data.scratch;
    for index in 0..scratch.page.len() {
        let (stored, value) = scratch.page.entry(index);
        let first = folder.first_of_long(stored);
        let ends = |first| request.ends_before(first) || request.are_behind(range, first);
        // Behind the others there are those of the other kind.
        if first.is_some() != is_long || first.is_some_and(ends) {
            return Ok(true);
        }
        let mut is_large = false;
        let value = match value {
            Some(value) => value,
            None => {
                scratch.value.clear();
                let batch = data.batch.as_deref_mut().expect("it reads all keys");
                let transaction = batch.transaction().ok_or(NO_MOMENT)?;
                match transaction.open(&database.keys, stored, &mut scratch.value)? {
                    Polled::Pending(pending) => {
                        range.position = Some(Bound::Included(stored.to_vec()));
                        return Err(Interrupted::Pending(pending));
                    }
                    Polled::Ready(opened) => is_large = matches!(opened, Opened::Large(_)),
                }
                range.shown_from = range.shown_from.max(transaction.shown_from());
                scratch.value.as_slice()
            }
        };
        let row = Row::decode(stored, value)?;
        let key = row.user_key(stored, value);
        let (low, high) = (request.is_too_low(key), request.is_too_high(key));
        if !is_long && (high && !request.reverse || low && request.reverse) {
            return Ok(true);
        }
        if low || high || row.is_over(now_ms) || !request.takes_type(row.value_type) {
            continue;
        }
        range.count += 1;
        if request.counts || request.is_behind(range, key) {
            continue;
        }
        let mut shown = Vec::new();
        let is_string = request.values && row.value_type.shown() == ValueType::String;
        if is_string && row.value_type == ValueType::Pieces {
            let head = PieceHead::decode(&value[row.payload..])?;
            let members = database.members.table().ok_or(RowError::Damaged)?;
            let batch = data.batch.as_deref_mut().expect("it reads all keys");
            let string = read_pieces(batch, members, &head, (range, stored))?;
            Writer::new(&mut shown, version).bulk(&string);
        } else if is_string && !is_large {
            Writer::new(&mut shown, version).bulk(&value[row.payload..]);
        } else if request.values && !is_string {
            Writer::new(&mut shown, version).null();
        }
        let found = (key.to_vec(), shown, is_string && is_large);
        keep(range, request, found, reply_bytes_max);
        if request.most == usize::MAX
            && let Some(text) = range.unfit
        {
            // Nothing that follows can make it fit.
            return Err(text.into());
        }
        if !is_long && request.last_wanted(range).is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the string in pieces at `stored`; what was read of it before a page was missing is kept.
fn read_pieces(
    batch: &mut ValidatedBatch,
    members: &Table,
    head: &PieceHead,
    (range, stored): (&mut KeyRange, &[u8]),
) -> Result<Vec<u8>, Interrupted> {
    let mut string = match range.string.take() {
        Some((id, string)) if id == head.id => string,
        _ => Vec::new(),
    };
    let mut piece = Vec::new();
    while string.len() < head.length as usize {
        let number = string.len() as u64 / u64::from(head.piece);
        match batch.get(members, &piece_key(head.id, number), &mut piece)? {
            Polled::Pending(pending) => {
                range.string = Some((head.id, string));
                range.position = Some(Bound::Included(stored.to_vec()));
                return Err(Interrupted::Pending(pending));
            }
            Polled::Ready(true) if piece.len() > head.piece as usize => {
                return Err(RowError::Damaged.into());
            }
            Polled::Ready(true) => {}
            Polled::Ready(false) => piece.clear(),
        }
        // What no piece has is zeros.
        piece.resize(
            (head.piece as usize).min(head.length as usize - string.len()),
            0,
        );
        string.extend_from_slice(&piece);
    }
    if let Some(transaction) = batch.transaction() {
        range.shown_from = range.shown_from.max(transaction.shown_from());
    }
    Ok(string)
}

/// Keeps a key that was found, with its value, and whether that is too long to be shown here. Drops
/// the last ones, down to as many as are asked for, and to the first that has no room in a reply of
/// `bytes_max`: that one stays, without its value.
fn keep(
    range: &mut KeyRange,
    request: &Request<'_>,
    (key, shown, in_chunks): (Vec<u8>, Vec<u8>, bool),
    bytes_max: usize,
) {
    let cut = in_chunks.then(|| key.clone());
    range.bytes += bytes_of(&key, &shown);
    range.found.insert(key, shown);
    if range.found.len() > request.most {
        drop_last(range, request);
    }
    assert!(
        range.found.len() <= request.most,
        "no more keys are kept than are asked for"
    );
    if let Some(cut) = cut {
        while request.last(range).is_some_and(|(last, _)| *last != cut) {
            drop_last(range, request);
        }
        range.unfit = Some(IN_CHUNKS);
    }
    while range.bytes > bytes_max {
        let (last, shown) = request.last(range).expect("it takes bytes");
        if range.bytes - bytes_of(last, shown) > bytes_max {
            drop_last(range, request);
            continue;
        }
        let (key, _) = drop_last(range, request);
        range.bytes += bytes_of(&key, &[]);
        range.found.insert(key, Vec::new());
        range.unfit = Some(replies::REPLY_TOO_LONG);
        break;
    }
}

/// Returns the memory that a key takes that was found, with its value.
fn bytes_of(key: &[u8], shown: &[u8]) -> usize {
    key.len() + shown.len() + KEY_BYTES
}

/// Drops the last key that was found; what could not be replied can only have been that.
fn drop_last(range: &mut KeyRange, request: &Request<'_>) -> (Vec<u8>, Vec<u8>) {
    let dropped = match request.reverse {
        false => range.found.pop_last(),
        true => range.found.pop_first(),
    };
    let (key, shown) = dropped.expect("there is one too many");
    range.bytes -= bytes_of(&key, &shown);
    range.unfit = None;
    (key, shown)
}

fn range(context: &mut Context<'_>) -> Run {
    let Some(request) = Request::parse(context, false)? else {
        context.reply().array(0);
        return Ok(());
    };
    let range = find(context, &request)?;
    context.progress.show_from(range.shown_from);
    if let Some(text) = range.unfit {
        return Err(text.into());
    }
    let mut reply = context.reply();
    let of_each = if request.values { 2 } else { 1 };
    reply.array(range.found.len() * of_each);
    let mut found = range.found.iter();
    while let Some((key, shown)) = match request.reverse {
        false => found.next(),
        true => found.next_back(),
    } {
        reply.bulk(key);
        reply.raw(shown);
    }
    context.check_reply()
}

fn count(context: &mut Context<'_>) -> Run {
    let Some(request) = Request::parse(context, true)? else {
        return context.integer(0);
    };
    let range = find(context, &request)?;
    context.progress.show_from(range.shown_from);
    context.integer(i64::try_from(range.count).unwrap_or(i64::MAX))
}
