//! Packed collections: all elements of a hash, list, set or sorted set, as the payload of its row.
//!
//! | bytes  | what                                                                             |
//! |--------|----------------------------------------------------------------------------------|
//! | 1      | encoding that OBJECT ENCODING shows: see [`Encoding`]                            |
//! | 1      | form: 0 = packed, 2 = packed with deadlines of fields (`data/deadlines.rs`)      |
//! | varint | number of strings                                                                |
//! | rest   | the strings, each: varint of twice its length, and its bytes                     |
//!
//! A varint has seven bits in each byte, the lowest first, and the highest bit of a byte says that
//! another one follows; no number has two forms. Its lowest bit is kept for strings that lie
//! somewhere else.
//!
//! | type       | its strings                                                                  |
//! |------------|------------------------------------------------------------------------------|
//! | list       | the elements, from head to tail                                              |
//! | set        | the members, in order of insertion; an intset in order of the numbers        |
//! | hash       | field and value in turns, in order of insertion                              |
//! | sorted set | member and score in turns, by score and then by member; a score has 8 bytes, |
//! |            | those of the double in little-endian                                         |

use std::ops::Range;

use pando_resp::Writer;

use super::keyspace::{RowError, ValueType};

/// How the strings of a packed collection lie in its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Form {
    /// As the type says.
    Plain = 0,
    /// A deadline behind each field and value of a hash.
    Timed = 2,
}

impl Form {
    /// Returns true if `payload` is of this form.
    pub(crate) fn is_of(self, payload: &[u8]) -> bool {
        payload.get(1) == Some(&(self as u8))
    }
}

/// What OBJECT ENCODING shows: what Redis would use. It says nothing about how the bytes lie here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Encoding {
    Listpack = 0,
    Quicklist = 1,
    Intset = 2,
    Hashtable = 3,
    Skiplist = 4,
    /// Of streams, and their entries.
    Stream = 5,
}

impl Encoding {
    const ALL: [Self; 6] = [
        Self::Listpack,
        Self::Quicklist,
        Self::Intset,
        Self::Hashtable,
        Self::Skiplist,
        Self::Stream,
    ];

    /// Returns its name, as OBJECT ENCODING shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Listpack => "listpack",
            Self::Quicklist => "quicklist",
            Self::Intset => "intset",
            Self::Hashtable => "hashtable",
            Self::Skiplist => "skiplist",
            Self::Stream => "stream",
        }
    }

    /// Returns the encoding of a new collection of this type.
    pub(crate) fn of_new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::Set => Self::Intset,
            ValueType::Stream => Self::Stream,
            _ => Self::Listpack,
        }
    }

    /// Returns the encoding in the payload of a collection.
    pub(crate) fn of_payload(payload: &[u8]) -> Result<Self, RowError> {
        let byte = *payload.first().ok_or(RowError::Damaged)?;
        let found = Self::ALL.get(usize::from(byte)).copied();
        found.ok_or(RowError::Damaged)
    }
}

/// Returns the number of strings of an element.
pub(crate) fn strings_of_one(value_type: ValueType) -> usize {
    match value_type {
        ValueType::Hash | ValueType::SortedSet => 2,
        _ => 1,
    }
}

/// The strings of a collection in memory. Edits keep the bytes of what they replace until the
/// collection is encoded.
#[derive(Debug, Default, Clone)]
pub(crate) struct Strings {
    /// The payload that they were decoded from, and what was added.
    bytes: Vec<u8>,
    /// Where what was added begins. A string that begins below lies in that payload, behind its
    /// length.
    decoded: usize,
    spans: Vec<Span>,
}

/// What neighbours among the strings have in a payload.
enum Run<'s> {
    /// These bytes.
    Decoded(&'s [u8]),
    /// A length, and these bytes.
    Added(&'s [u8]),
}

/// Replaces `out` by the payload of a collection with these strings.
pub(crate) fn encode<'s>(
    (encoding, form): (Encoding, Form),
    strings: impl ExactSizeIterator<Item = &'s [u8]>,
    out: &mut Vec<u8>,
) {
    out.clear();
    out.extend_from_slice(&[encoding as u8, form as u8]);
    put_varint(out, strings.len() as u64);
    for string in strings {
        put_varint(out, string.len() as u64 * 2);
        out.extend_from_slice(string);
    }
}

/// Number of edits for which a copy has room.
const EDITS: usize = 2;
/// Bytes of these edits.
const EDITED_BYTES: usize = 128;
/// Most bytes of the length of a string.
const LENGTH_BYTES_MAX: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

impl Strings {
    /// Decodes a payload, which may be any bytes; `of_one` is the number of strings of an element.
    pub(crate) fn decode(payload: &[u8], of_one: usize) -> Result<Self, RowError> {
        Self::decode_form(payload, Form::Plain, of_one)
    }

    /// As [`Strings::decode`], of another form.
    pub(crate) fn decode_form(payload: &[u8], form: Form, of_one: usize) -> Result<Self, RowError> {
        let mut reader = Reader::of_form(payload, form)?;
        if !reader.left.is_multiple_of(of_one) {
            return Err(RowError::Damaged);
        }
        let mut spans = Vec::with_capacity(reader.left);
        while let Some(range) = reader.next_range()? {
            spans.push(Span::new(range)?);
        }
        let mut bytes = Vec::with_capacity(payload.len() + EDITED_BYTES);
        bytes.extend_from_slice(payload);
        // No string that is added is to begin where one that follows the last one could.
        bytes.extend_from_slice(&[0; LENGTH_BYTES_MAX + 1]);
        Ok(Self {
            decoded: bytes.len(),
            bytes,
            spans,
        })
    }

    /// Replaces `out` by the payload.
    pub(crate) fn encode(&self, encoding: Encoding, out: &mut Vec<u8>) {
        self.encode_form(encoding, Form::Plain, out);
    }

    /// As [`Strings::encode`], of another form.
    pub(crate) fn encode_form(&self, encoding: Encoding, form: Form, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&[encoding as u8, form as u8]);
        put_varint(out, self.len() as u64);
        self.each_run(|run| match run {
            Run::Decoded(bytes) => out.extend_from_slice(bytes),
            Run::Added(string) => {
                put_varint(out, string.len() as u64 * 2);
                out.extend_from_slice(string);
            }
        });
    }

    /// Returns the length of the payload.
    pub(crate) fn payload_bytes(&self) -> u64 {
        let mut bytes = 0;
        self.each_run(|run| {
            bytes += match run {
                Run::Decoded(bytes) => bytes.len(),
                Run::Added(string) => length_bytes(string.len()) + string.len(),
            }
        });
        (2 + varint_bytes(self.len() as u64) + bytes) as u64
    }

    /// Shows what they have in a payload. What lies there as it was decoded comes in one piece.
    fn each_run<'s>(&'s self, mut show: impl FnMut(Run<'s>)) {
        let mut place = 0;
        while let Some(first) = self.spans.get(place) {
            place += 1;
            if first.start as usize >= self.decoded {
                show(Run::Added(self.bytes_of(*first)));
                continue;
            }
            let start = first.start as usize - length_bytes(first.len());
            let mut end = first.end as usize;
            while let Some(next) = self.spans.get(place)
                && next.start as usize == end + length_bytes(next.len())
            {
                end = next.end as usize;
                place += 1;
            }
            show(Run::Decoded(&self.bytes[start..end]));
        }
    }

    /// Makes room for so many more strings, and so many bytes.
    pub(crate) fn reserve(&mut self, strings: usize, bytes: usize) {
        self.spans.reserve(strings);
        self.bytes.reserve(bytes);
    }

    /// Returns a copy with room for a few edits.
    pub(crate) fn to_be_edited(&self) -> Self {
        let mut copy = Self::default();
        copy.reserve(self.spans.len() + EDITS, self.bytes.len() + EDITED_BYTES);
        copy.bytes.extend_from_slice(&self.bytes);
        copy.decoded = self.decoded;
        copy.spans.extend_from_slice(&self.spans);
        copy
    }

    /// Ends what was loaded: strings that are added from now on differ from those before in their
    /// place in memory.
    pub(crate) fn seal(&mut self) {
        // Nothing is of those that have none.
        if !self.spans.is_empty() {
            self.bytes.push(0);
        }
    }

    /// Returns true if the string at `place` was not added after `old` was copied from this, which
    /// was sealed then.
    pub(crate) fn is_of(&self, place: usize, old: &Self) -> bool {
        (self.spans[place].start as usize) < old.bytes.len()
    }

    /// Returns true if the string at `place` is the one that `old`, a copy of this, has at `other`;
    /// or an empty one beside it.
    pub(crate) fn is_same(&self, place: usize, old: &Self, other: usize) -> bool {
        let (one, other) = (self.spans[place], old.spans[other]);
        (one.start, one.end) == (other.start, other.end)
    }

    /// Reverses the order of the elements, of `of_one` strings each.
    pub(crate) fn reverse(&mut self, of_one: usize) {
        self.spans.reverse();
        self.spans.chunks_mut(of_one).for_each(<[Span]>::reverse);
    }

    /// Reverses the order of the strings from `place` on.
    pub(crate) fn reverse_from(&mut self, place: usize) {
        self.spans[place..].reverse();
    }

    /// Returns the number of bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the number of strings.
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns the string at `place`, which exists.
    pub(crate) fn at(&self, place: usize) -> &[u8] {
        self.bytes_of(self.spans[place])
    }

    fn bytes_of(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        (0..self.len()).map(|place| self.at(place))
    }

    /// Returns the place of `string` among every `of_one`-th string, the first one included.
    pub(crate) fn find(&self, string: &[u8], of_one: usize) -> Option<usize> {
        let mut places = (0..self.len()).step_by(of_one);
        places.find(|place| self.at(*place) == string)
    }

    fn add(&mut self, string: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(string);
        Span::new(start..self.bytes.len()).expect("requests and rows are below 4 GiB")
    }

    /// Appends a string.
    pub(crate) fn push(&mut self, string: &[u8]) {
        let span = self.add(string);
        self.spans.push(span);
    }

    /// Inserts strings before all others.
    pub(crate) fn push_front<'s>(&mut self, strings: impl Iterator<Item = &'s [u8]>) {
        let spans: Vec<Span> = strings.map(|string| self.add(string)).collect();
        self.spans.splice(..0, spans);
    }

    /// Inserts a string at `place`, which is at most the length.
    pub(crate) fn insert(&mut self, place: usize, string: &[u8]) {
        let span = self.add(string);
        self.spans.insert(place, span);
    }

    /// Replaces the string at `place`, which exists.
    pub(crate) fn set(&mut self, place: usize, string: &[u8]) {
        self.spans[place] = self.add(string);
    }

    /// Removes the strings at `places`, which exist.
    pub(crate) fn remove(&mut self, places: Range<usize>) {
        self.spans.drain(places);
    }

    /// Removes all strings, and frees their bytes for others.
    pub(crate) fn clear(&mut self) {
        self.spans.clear();
        self.bytes.clear();
        self.decoded = 0;
    }

    /// Keeps the strings at `places`, which exist, and no others; those take their bytes still.
    pub(crate) fn keep(&mut self, places: Range<usize>) {
        self.spans.truncate(places.end);
        self.spans.drain(..places.start);
    }

    /// Keeps each string whose place is kept.
    pub(crate) fn retain(&mut self, mut keeps: impl FnMut(usize) -> bool) {
        let mut place = 0;
        self.spans.retain(|_| {
            place += 1;
            keeps(place - 1)
        });
    }
}

impl Span {
    #[inline]
    fn len(self) -> usize {
        (self.end - self.start) as usize
    }

    fn new(range: Range<usize>) -> Result<Self, RowError> {
        let of = |at: usize| u32::try_from(at).map_err(|_| RowError::Damaged);
        Ok(Self {
            start: of(range.start)?,
            end: of(range.end)?,
        })
    }
}

/// Reads the strings of a payload, which may be any bytes, one after another.
#[derive(Clone)]
pub(crate) struct Reader<'a> {
    payload: &'a [u8],
    at: usize,
    /// Number of strings that were not read yet.
    pub(crate) left: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(payload: &'a [u8]) -> Result<Self, RowError> {
        Self::of_form(payload, Form::Plain)
    }

    fn of_form(payload: &'a [u8], form: Form) -> Result<Self, RowError> {
        Encoding::of_payload(payload)?;
        if !form.is_of(payload) {
            return Err(RowError::Damaged);
        }
        let mut reader = Self {
            payload,
            at: 2,
            left: 0,
        };
        let count = usize::try_from(reader.varint()?).map_err(|_| RowError::Damaged)?;
        // Each string takes a byte at least.
        if count > payload.len() - reader.at {
            return Err(RowError::Damaged);
        }
        reader.left = count;
        Ok(reader)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, RowError> {
        match self.payload.get(self.at) {
            Some(byte @ 0..0x80) => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_length(&mut self) -> Result<usize, RowError> {
        let word = self.varint()?;
        let length = usize::try_from(word / 2).map_err(|_| RowError::Damaged)?;
        match word % 2 {
            0 => Ok(length),
            _ => Err(RowError::Damaged),
        }
    }

    fn long_varint(&mut self) -> Result<u64, RowError> {
        let mut value = 0;
        for shift in (0..56).step_by(7) {
            let byte = *self.payload.get(self.at).ok_or(RowError::Damaged)?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            match byte {
                // Strings::each_run knows how long it is by the number.
                0 if shift > 0 => break,
                0..0x80 => return Ok(value),
                _ => {}
            }
        }
        Err(RowError::Damaged)
    }

    #[inline]
    fn next_range(&mut self) -> Result<Option<Range<usize>>, RowError> {
        if self.left == 0 {
            return match self.at == self.payload.len() {
                true => Ok(None),
                false => Err(RowError::Damaged),
            };
        }
        let length = match self.payload.get(self.at) {
            // Most are short.
            Some(word) if word & 0x81 == 0 => {
                self.at += 1;
                usize::from(word / 2)
            }
            _ => self.long_length()?,
        };
        let start = self.at;
        let end = start.checked_add(length).ok_or(RowError::Damaged)?;
        if end > self.payload.len() {
            return Err(RowError::Damaged);
        }
        self.left -= 1;
        self.at = end;
        Ok(Some(start..end))
    }

    /// Returns the next string.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<&'a [u8]>, RowError> {
        let payload = self.payload;
        Ok(self.next_range()?.map(|range| &payload[range]))
    }

    /// Replies with the next `count` strings.
    pub(crate) fn write(&mut self, count: usize, reply: &mut Writer<'_>) -> Result<(), RowError> {
        let mut strings = self.clone();
        let bytes = self.payload.len() - self.at;
        reply.bulks(count.min(self.left), bytes, |reply| {
            for _ in 0..count {
                reply.push(strings.next()?.ok_or(RowError::Damaged)?);
            }
            if strings.left == 0 {
                // Nothing may be behind the last one.
                strings.next()?;
            }
            Ok(())
        })?;
        *self = strings;
        Ok(())
    }
}

/// Returns how many bytes a varint has.
fn varint_bytes(value: u64) -> usize {
    value.max(1).ilog2() as usize / 7 + 1
}

/// Returns how many bytes the length of a string has before it.
#[inline]
fn length_bytes(length: usize) -> usize {
    match length {
        0..0x40 => 1,
        0x40..0x2000 => 2,
        _ => varint_bytes(length as u64 * 2),
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(u8::try_from(value).expect("seven bits are left"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_resp::Version;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Edit {
        Push(Vec<u8>),
        Insert(usize, Vec<u8>),
        Set(usize, Vec<u8>),
        Remove(usize),
        Keep(usize),
        Reverse,
        /// Writes and reads all.
        Store,
    }

    /// What a reply with all strings of a payload has.
    fn written(payload: &[u8]) -> Result<Vec<u8>, RowError> {
        let (mut reader, mut out) = (Reader::new(payload)?, Vec::new());
        let mut reply = Writer::new(&mut out, Version::Resp2);
        reader.write(reader.left, &mut reply)?;
        assert_eq!(reader.left, 0);
        Ok(out)
    }

    fn edits() -> impl Strategy<Value = Edit> {
        let length = || prop_oneof![2 => 0..3_usize, 2 => 60..70_usize, 1 => 0..200_usize];
        let string =
            || length().prop_flat_map(|length| prop::collection::vec(any::<u8>(), length..=length));
        prop_oneof![
            string().prop_map(Edit::Push),
            (0..9_usize, string()).prop_map(|(at, of)| Edit::Insert(at, of)),
            (0..9_usize, string()).prop_map(|(at, of)| Edit::Set(at, of)),
            (0..9_usize).prop_map(Edit::Remove),
            (0..9_usize).prop_map(Edit::Keep),
            Just(Edit::Reverse),
            Just(Edit::Store),
        ]
    }

    proptest! {
        #[test]
        fn edits_are_those_of_a_vector(edits in prop::collection::vec(edits(), 0..30)) {
            let (mut strings, mut twin) = (Strings::default(), Vec::<Vec<u8>>::new());
            let mut payload = Vec::new();
            for edit in edits {
                match edit {
                    Edit::Push(of) => {
                        strings.push(&of);
                        twin.push(of);
                    }
                    Edit::Insert(at, of) if at <= twin.len() => {
                        strings.insert(at, &of);
                        twin.insert(at, of);
                    }
                    Edit::Set(at, of) if at < twin.len() => {
                        strings.set(at, &of);
                        twin[at] = of;
                    }
                    Edit::Remove(at) if at < twin.len() => {
                        strings.remove(at..at + 1);
                        twin.remove(at);
                    }
                    Edit::Keep(at) if at < twin.len() => {
                        strings.keep(at..twin.len());
                        twin.drain(..at);
                    }
                    Edit::Reverse => {
                        strings.reverse(1);
                        twin.reverse();
                    }
                    Edit::Store => {
                        strings.encode(Encoding::Listpack, &mut payload);
                        strings = Strings::decode(&payload, 1).unwrap();
                    }
                    _ => {}
                }
                prop_assert!(strings.iter().eq(twin.iter().map(Vec::as_slice)));
                let mut plain = Vec::new();
                encode((Encoding::Listpack, Form::Plain), strings.iter(), &mut plain);
                strings.encode(Encoding::Listpack, &mut payload);
                prop_assert_eq!(&payload, &plain);
                prop_assert_eq!(strings.payload_bytes(), payload.len() as u64);
            }
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            payload in prop::collection::vec(0..9_u8, 0..40),
            tail in prop::collection::vec(any::<u8>(), 0..12),
        ) {
            let mut bytes = payload;
            bytes.extend(tail);
            let decoded = Strings::decode(&bytes, 1);
            prop_assert_eq!(written(&bytes).is_ok(), decoded.is_ok());
            if let Ok(strings) = decoded {
                let mut one_by_one = Vec::new();
                let mut reply = Writer::new(&mut one_by_one, Version::Resp2);
                strings.iter().for_each(|string| reply.bulk(string));
                prop_assert_eq!(written(&bytes).unwrap(), one_by_one);
            }
            if let Ok(strings) = Strings::decode(&bytes, 2) {
                let mut again = Vec::new();
                strings.encode(Encoding::of_payload(&bytes).unwrap(), &mut again);
                let strings_again = Strings::decode(&again, 2).unwrap();
                prop_assert!(strings_again.iter().eq(strings.iter()));
            }
        }
    }

    #[test]
    fn what_is_cut_off_or_has_more_is_damaged() {
        let mut strings = Strings::default();
        strings.push(b"field");
        strings.push(&[7; 300]);
        let mut payload = Vec::new();
        strings.encode(Encoding::Hashtable, &mut payload);
        assert_eq!(Encoding::of_payload(&payload), Ok(Encoding::Hashtable));
        for end in 0..payload.len() {
            assert_eq!(
                Strings::decode(&payload[..end], 2).err(),
                Some(RowError::Damaged),
                "{end}"
            );
        }
        assert!(written(&payload).is_ok());
        payload.push(0);
        assert_eq!(Strings::decode(&payload, 2).err(), Some(RowError::Damaged));
        assert_eq!(written(&payload), Err(RowError::Damaged));
        // An odd number of strings is no hash.
        strings.push(b"");
        strings.encode(Encoding::Hashtable, &mut payload);
        assert_eq!(Strings::decode(&payload, 2).err(), Some(RowError::Damaged));
        assert!(Strings::decode(&payload, 1).is_ok());
        payload[1] = 1;
        assert_eq!(Strings::decode(&payload, 1).err(), Some(RowError::Damaged));
    }

    #[test]
    fn a_length_with_a_byte_too_many_is_damaged() {
        let short = [0, 0, 2, 4, 7, 7, 0];
        assert!(Strings::decode(&short, 1).is_ok());
        let long = [0, 0, 2, 0x84, 0, 7, 7, 0];
        assert_eq!(Strings::decode(&long, 1).err(), Some(RowError::Damaged));
        assert_eq!(written(&long), Err(RowError::Damaged));
    }
}
