//! Values of keys as payloads have them: the byte of their kind, and what is in them.
//!
//! What is written is of the kinds that have each element as a string of its own, which all
//! versions of Redis read. What is read is of all kinds, those of old versions, too, but for
//! modules.

use std::borrow::Cow;
use std::ops::Range;

use pando_resp::parse_integer;

use super::input::{Input, Refused};
use super::output::{put_length, put_short_string};
use super::stream::StreamValue;
use super::{intset, listpack, ziplist, zipmap};
use crate::data::deadlines::Deadlines;
use crate::data::keyspace::ValueType;
use crate::data::packed::{Strings, strings_of_one};
use crate::float::parse_score;

/// The byte that a value begins with.
mod kind {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_SET_OF_TEXTS: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED_SET: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_ZIPLISTS: u8 = 14;
    pub(super) const STREAM_1: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_SET_LISTPACK: u8 = 17;
    pub(super) const LIST_LISTPACKS: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    pub(super) const HASH_TIMED: u8 = 24;
    pub(super) const HASH_TIMED_LISTPACK: u8 = 25;
}

/// Memory for a string besides its bytes.
const STRING_BYTES: usize = 16;
/// An element of a list that has a listpack of its own.
const PLAIN: usize = 1;
/// Elements of a list that share a listpack.
const PACKED: usize = 2;

/// A value that was read.
#[derive(Debug)]
pub(crate) enum Value<'p> {
    String(Cow<'p, [u8]>),
    Collection(Elements),
    Stream(Box<StreamValue>),
}

/// A hash, list, set or sorted set, whose elements may be there twice; with no element, too.
#[derive(Debug)]
pub(crate) struct Elements {
    pub(crate) value_type: ValueType,
    /// As `data/packed.rs` says for each type.
    pub(crate) strings: Strings,
    /// Of fields of a hash.
    pub(crate) deadlines: Deadlines,
}

/// Strings that are being read, and the memory that they may take.
struct Reading<'i, 'p> {
    input: &'i mut Input<'p>,
    strings: Strings,
}

impl Reading<'_, '_> {
    fn push(&mut self, text: &[u8]) -> Result<(), Refused> {
        self.input.make_room(text.len() + STRING_BYTES)?;
        self.strings.push(text);
        Ok(())
    }

    /// Takes `of_one` strings for each of the elements, which are counted before them.
    fn each(&mut self, of_one: usize) -> Result<(), Refused> {
        let count = self.input.length()?;
        for _ in 0..count.checked_mul(of_one).ok_or(Refused::Damaged)? {
            let text = self.input.string()?;
            self.push(&text)?;
        }
        Ok(())
    }

    /// Takes a string, which has the elements packed, as `read` knows.
    fn packed(&mut self, read: Read) -> Result<(), Refused> {
        let packed = self.input.string()?;
        read(&packed, &mut |text| self.push(text))
    }

    /// Takes several of them.
    fn several(&mut self, read: Read) -> Result<(), Refused> {
        for _ in 0..self.input.length()? {
            self.packed(read)?;
        }
        Ok(())
    }

    /// Takes the listpacks of a list.
    fn listpacks(&mut self) -> Result<(), Refused> {
        for _ in 0..self.input.length()? {
            match self.input.length()? {
                PACKED => self.packed(listpack::read)?,
                PLAIN => {
                    let text = self.input.string()?;
                    self.push(&text)?;
                }
                _ => return Err(Refused::Damaged),
            }
        }
        Ok(())
    }

    /// Takes members and scores.
    fn scored(&mut self, are_texts: bool) -> Result<(), Refused> {
        for _ in 0..self.input.length()? {
            let member = self.input.string()?;
            let score = match are_texts {
                true => score_of_text(self.input)?,
                false => f64::from_bits(self.input.fixed()?),
            };
            self.push(&member)?;
            self.push(&checked(score)?.to_le_bytes())?;
        }
        Ok(())
    }

    /// Replaces scores that were packed as texts by numbers.
    fn read_scores(&mut self) -> Result<(), Refused> {
        let packed = std::mem::take(&mut self.strings);
        for (place, text) in packed.iter().enumerate() {
            if place % 2 == 0 {
                self.strings.push(text);
            } else {
                let score = parse_score(text).ok_or(Refused::Damaged)?;
                self.strings.push(&checked(score)?.to_le_bytes());
            }
        }
        Ok(())
    }

    /// Takes fields with deadlines, which count from a first one.
    fn timed(&mut self, deadlines: &mut Deadlines) -> Result<(), Refused> {
        let first = self.input.fixed()?;
        for _ in 0..self.input.length()? {
            let behind = self.input.number()?;
            let (field, value) = (self.input.string()?, self.input.string()?);
            self.push(&field)?;
            self.push(&value)?;
            if behind > 0 {
                let deadline = first.checked_add(behind - 1);
                self.set(deadlines, &field, deadline)?;
            }
        }
        Ok(())
    }

    /// Takes fields with deadlines that are packed: the third string is the deadline, 0 for none.
    fn timed_listpack(&mut self, deadlines: &mut Deadlines) -> Result<(), Refused> {
        let _first = self.input.fixed()?;
        self.packed(listpack::read)?;
        let packed = std::mem::take(&mut self.strings);
        if !packed.len().is_multiple_of(3) {
            return Err(Refused::Damaged);
        }
        for place in (0..packed.len()).step_by(3) {
            let field = packed.at(place);
            self.strings.push(field);
            self.strings.push(packed.at(place + 1));
            match parse_integer(packed.at(place + 2)) {
                Some(0) => {}
                Some(deadline) => self.set(deadlines, field, u64::try_from(deadline).ok())?,
                None => return Err(Refused::Damaged),
            }
        }
        Ok(())
    }

    fn set(
        &mut self,
        deadlines: &mut Deadlines,
        field: &[u8],
        deadline: Option<u64>,
    ) -> Result<(), Refused> {
        /// What a deadline in memory takes besides its field.
        const DEADLINE_BYTES: usize = 64;
        let deadline = deadline.filter(|deadline| i64::try_from(*deadline).is_ok());
        self.input.make_room(field.len() + DEADLINE_BYTES)?;
        deadlines.set(field, deadline.ok_or(Refused::Damaged)?);
        Ok(())
    }
}

/// What reads one of the packed forms.
type Read = fn(&[u8], super::Put<'_>) -> Result<(), Refused>;

fn checked(score: f64) -> Result<f64, Refused> {
    match score.is_nan() {
        true => Err(Refused::Damaged),
        false => Ok(score),
    }
}

/// Takes a score as old versions wrote it.
fn score_of_text(input: &mut Input<'_>) -> Result<f64, Refused> {
    match input.byte()? {
        0xff => Ok(f64::NEG_INFINITY),
        0xfe => Ok(f64::INFINITY),
        0xfd => Err(Refused::Damaged),
        length => {
            let text = input.bytes(length.into())?;
            parse_score(text).ok_or(Refused::Damaged)
        }
    }
}

/// Reads the value that a payload is.
pub(crate) fn decode(payload: &[u8], room: usize) -> Result<Value<'_>, Refused> {
    let mut input = Input::new(payload, room);
    let value = take(&mut input)?;
    match input.is_empty() {
        true => Ok(value),
        false => Err(Refused::Damaged),
    }
}

fn take<'p>(input: &mut Input<'p>) -> Result<Value<'p>, Refused> {
    let kind = input.byte()?;
    if let Some(version) = stream_version(kind) {
        return Ok(Value::Stream(Box::new(StreamValue::take(input, version)?)));
    }
    let value_type = match kind {
        kind::STRING => return Ok(Value::String(input.string()?)),
        kind::LIST | kind::LIST_ZIPLIST | kind::LIST_ZIPLISTS | kind::LIST_LISTPACKS => {
            ValueType::List
        }
        kind::SET | kind::SET_INTSET | kind::SET_LISTPACK => ValueType::Set,
        kind::SORTED_SET
        | kind::SORTED_SET_OF_TEXTS
        | kind::SORTED_SET_ZIPLIST
        | kind::SORTED_SET_LISTPACK => ValueType::SortedSet,
        kind::HASH
        | kind::HASH_ZIPMAP
        | kind::HASH_ZIPLIST
        | kind::HASH_LISTPACK
        | kind::HASH_TIMED
        | kind::HASH_TIMED_LISTPACK => ValueType::Hash,
        _ => return Err(Refused::Damaged),
    };
    let mut deadlines = Deadlines::default();
    let strings = Strings::default();
    let mut reading = Reading { input, strings };
    match kind {
        kind::LIST | kind::SET => reading.each(1)?,
        kind::HASH => reading.each(2)?,
        kind::SORTED_SET => reading.scored(false)?,
        kind::SORTED_SET_OF_TEXTS => reading.scored(true)?,
        kind::HASH_ZIPMAP => reading.packed(zipmap::read)?,
        kind::LIST_ZIPLIST | kind::HASH_ZIPLIST => reading.packed(ziplist::read)?,
        kind::SORTED_SET_ZIPLIST => reading.packed(ziplist::read)?,
        kind::LIST_ZIPLISTS => reading.several(ziplist::read)?,
        kind::SET_INTSET => reading.packed(intset::read)?,
        kind::LIST_LISTPACKS => reading.listpacks()?,
        kind::HASH_TIMED => reading.timed(&mut deadlines)?,
        kind::HASH_TIMED_LISTPACK => reading.timed_listpack(&mut deadlines)?,
        _ => reading.packed(listpack::read)?,
    }
    if matches!(kind, kind::SORTED_SET_ZIPLIST | kind::SORTED_SET_LISTPACK) {
        reading.read_scores()?;
    }
    let strings = reading.strings;
    let of_one = strings_of_one(value_type);
    match strings.len().is_multiple_of(of_one) {
        true => Ok(Value::Collection(Elements {
            value_type,
            strings,
            deadlines,
        })),
        false => Err(Refused::Damaged),
    }
}

/// Returns the version of the form of a stream of this kind; `None` if it is no stream.
pub(crate) fn stream_version(kind: u8) -> Option<u32> {
    match kind {
        kind::STREAM_1 => Some(1),
        kind::STREAM_2 => Some(2),
        kind::STREAM_3 => Some(3),
        _ => None,
    }
}

/// Begins a string: what follows are its bytes.
pub(crate) fn begin_string(out: &mut Vec<u8>, bytes: u64) {
    out.push(kind::STRING);
    put_length(out, bytes);
}

/// Returns the places of the bytes of the string that a payload is which ends at `end`, and begins
/// with `head`; `None` if it is something else, or is compressed.
pub(crate) fn plain_string_of(head: &[u8], end: u64) -> Option<Range<u64>> {
    let mut input = Input::new(head, 0);
    if input.byte() != Ok(kind::STRING) {
        return None;
    }
    let length = input.number().ok()?;
    let start = (head.len() - input.left()) as u64;
    (start.checked_add(length) == Some(end)).then_some(start..end)
}

/// Appends a string that is in memory.
pub(crate) fn put_string_value(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(kind::STRING);
    put_short_string(out, bytes);
}

/// Appends a stream.
pub(crate) fn put_stream_value(out: &mut Vec<u8>, stream: &StreamValue) {
    out.push(kind::STREAM_2);
    stream.put(out);
}

/// Appends a collection. Returns true if fields of it have deadlines, which only later versions of
/// Redis read.
pub(crate) fn put_collection(
    out: &mut Vec<u8>,
    value_type: ValueType,
    (strings, deadlines): (&Strings, &Deadlines),
) -> bool {
    let of_one = strings_of_one(value_type);
    let first = match value_type {
        ValueType::Hash => deadlines.times(strings).map(|times| times.first),
        _ => None,
    };
    out.push(match (value_type, first) {
        (ValueType::List, _) => kind::LIST,
        (ValueType::Set, _) => kind::SET,
        (ValueType::SortedSet, _) => kind::SORTED_SET,
        (_, None) => kind::HASH,
        (_, Some(_)) => kind::HASH_TIMED,
    });
    if let Some(first) = first {
        out.extend_from_slice(&first.to_le_bytes());
    }
    put_length(out, (strings.len() / of_one) as u64);
    for (place, string) in strings.iter().enumerate() {
        if let Some(first) = first.filter(|_| place % 2 == 0) {
            let deadline = deadlines.of(string);
            put_length(out, deadline.map_or(0, |deadline| deadline - first + 1));
        }
        match value_type == ValueType::SortedSet && place % 2 == 1 {
            true => out.extend_from_slice(string),
            false => put_short_string(out, string),
        }
    }
    first.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(payload: &[u8]) -> (ValueType, Vec<Vec<u8>>) {
        match decode(payload, 1 << 20) {
            Ok(Value::Collection(elements)) => {
                let strings = elements.strings.iter().map(<[u8]>::to_vec);
                (elements.value_type, strings.collect())
            }
            other => panic!("{payload:?}: {other:?}"),
        }
    }

    fn score(of: f64) -> Vec<u8> {
        of.to_le_bytes().to_vec()
    }

    #[test]
    fn values_of_redis_are_read() {
        // What DUMP of redis-server 7.0 has before the version.
        let long = vec![b'x'; 70];
        type Case = (&'static [u8], ValueType, Vec<Vec<u8>>);
        let cases: [Case; 8] = [
            (
                b"\x12\x01\x02\xc3\x17@W\x0fW\x00\x00\x00\x04\x00\x81a\x02\x01\x01\x80\x01\xe0Fx\
                  \xe0<\x00\x01H\xff",
                ValueType::List,
                vec![b"a".to_vec(), b"1".to_vec(), Vec::new(), long],
            ),
            (
                b"\x11\x17\x17\x00\x00\x00\x04\x00\x81a\x02\x831.5\x04\x81b\x02\x83inf\x04\xff",
                ValueType::SortedSet,
                vec![
                    b"a".to_vec(),
                    score(1.5),
                    b"b".to_vec(),
                    score(f64::INFINITY),
                ],
            ),
            (
                b"\x0b\x14\x04\x00\x00\x00\x03\x00\x00\x00\xfd\xff\xff\xff\x01\x00\x00\x00p\x11\
                  \x01\x00",
                ValueType::Set,
                vec![b"-3".to_vec(), b"1".to_vec(), b"70000".to_vec()],
            ),
            (
                b"\x10\r\r\x00\x00\x00\x02\x00\x81f\x02\x81v\x02\xff",
                ValueType::Hash,
                vec![b"f".to_vec(), b"v".to_vec()],
            ),
            (
                b"\x05\x01\x01a\x00\x00\x00\x00\x00\x00\xf8?",
                ValueType::SortedSet,
                vec![b"a".to_vec(), score(1.5)],
            ),
            (b"\x02\x01\x01a", ValueType::Set, vec![b"a".to_vec()]),
            // As 7.2 has it, made by hand.
            (
                b"\x14\r\r\x00\x00\x00\x02\x00\x81f\x02\x81v\x02\xff",
                ValueType::Set,
                vec![b"f".to_vec(), b"v".to_vec()],
            ),
            (
                b"\x04\x01\x01f\xc0\xf9",
                ValueType::Hash,
                vec![b"f".to_vec(), b"-7".to_vec()],
            ),
        ];
        for (payload, value_type, strings) in cases {
            assert_eq!(collection(payload), (value_type, strings));
            for end in 0..payload.len() {
                let cut = decode(&payload[..end], 1 << 20);
                assert!(matches!(cut, Err(Refused::Damaged)), "{end} of {payload:?}");
            }
            let none = decode(payload, 0);
            assert!(matches!(none, Err(Refused::TooLong)), "{payload:?}");
        }
        let string = decode(b"\x00\xc3\t6\x01aa\xe0)\x00\x01aa", 54);
        assert!(matches!(string, Ok(Value::String(all)) if *all == [b'a'; 54]));
    }

    #[test]
    fn a_plain_string_is_found_within_a_long_payload() {
        assert_eq!(
            plain_string_of(b"\x00\x80\0\x01\0\0xy", 65_542),
            Some(6..65_542)
        );
        for (head, end) in [
            (&b"\x00\x80\0\x01\0\0xy"[..], 65_541),
            (b"\x01\x80\0\x01\0\0xy", 65_542),
            (b"\x00\xc3\x01\x01\0\0xy", 65_542),
            (b"\x00\x81\xff\xff\xff\xff\xff\xff\xff\xff", 65_542),
            (b"\x00", 65_542),
        ] {
            assert_eq!(plain_string_of(head, end), None, "{head:?}");
        }
    }
}
