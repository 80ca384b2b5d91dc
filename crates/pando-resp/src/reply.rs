//! The writer of replies, in the protocol version that the client has selected.
//!
//! RESP2 has only five types; the others are written as the nearest one: a map as a flat array, a
//! set as an array, a double as a bulk string, a boolean as 0 or 1, null as `$-1` or `*-1`, a push
//! as an array.

use crate::text::bytes_of;

/// Protocol version of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Version {
    /// The version that every connection begins with.
    #[default]
    Resp2,
    /// After `HELLO 3`.
    Resp3,
}

impl Version {
    /// Returns 2 or 3.
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Bytes of a string besides its own, if it is not very long.
const BULK_BYTES: usize = 16;

/// Numbers below this come from a table.
const SHORT: usize = 257;
/// Lines with the numbers below [`SHORT`]. The first byte is for the type; the last one says how
/// many bytes the line has.
static SHORT_NUMBERS: [u64; SHORT] = {
    let mut lines = [0; SHORT];
    let mut number = 0;
    while number < SHORT {
        let digits = [number / 100, number / 10 % 10, number % 10];
        let mut place = match number {
            0..10 => 2,
            10..100 => 1,
            _ => 0,
        };
        let (mut line, mut end) = ([0; 8], 1);
        while place < digits.len() {
            line[end] = b"0123456789"[digits[place]];
            (place, end) = (place + 1, end + 1);
        }
        (line[end], line[end + 1]) = (b'\r', b'\n');
        line[7] = [0, 0, 0, 0, 4, 5, 6][end + 2];
        lines[number] = u64::from_le_bytes(line);
        number += 1;
    }
    lines
};

/// Appends replies to a buffer. An aggregate announces its length; the caller then writes that many
/// elements (twice as many for a map).
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    version: Version,
}

impl<'a> Writer<'a> {
    /// Creates a writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, version: Version) -> Self {
        Self { out, version }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a line that cannot be forged: line ends in `text` become blanks.
    fn clean_line(&mut self, kind: u8, text: &str) {
        self.clean_bytes(kind, text.as_bytes());
    }

    fn clean_bytes(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.clean(text);
    }

    /// Writes a text and a line end; line ends in the text become blanks.
    fn clean(&mut self, text: &[u8]) {
        let clean = |byte: &u8| match byte {
            b'\r' | b'\n' => b' ',
            other => *other,
        };
        self.out.extend(text.iter().map(clean));
        self.out.extend_from_slice(b"\r\n");
    }

    #[inline(never)]
    fn number(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a length; short ones, which are many, come from a table.
    #[inline]
    fn length(&mut self, kind: u8, length: usize) {
        let Some(line) = SHORT_NUMBERS.get(length) else {
            return self.number(kind, i64::try_from(length).unwrap_or(i64::MAX));
        };
        let line = line | u64::from(kind);
        let end = self.out.len() + usize::try_from(line >> 56).unwrap_or(0);
        // One word is written, and what is not of the line is taken away.
        self.out.extend_from_slice(&line.to_le_bytes());
        self.out.truncate(end);
    }

    /// Writes `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.out.extend_from_slice(b"+OK\r\n");
    }

    /// Writes a short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.clean_line(b'+', text);
    }

    /// Writes an error; its first word is its code. What [`text_of`](crate::text_of) has made of
    /// bytes becomes these bytes.
    pub fn error(&mut self, text: &str) {
        self.clean_bytes(b'-', &bytes_of(text));
    }

    /// Writes a short text of any bytes, as [`simple`](Self::simple) does.
    pub fn simple_bytes(&mut self, text: &[u8]) {
        self.clean_bytes(b'+', text);
    }

    /// Writes an error of any bytes, as [`error`](Self::error) does.
    pub fn error_bytes(&mut self, text: &[u8]) {
        self.clean_bytes(b'-', text);
    }

    /// Writes an integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        match usize::try_from(value) {
            Ok(short @ 0..SHORT) => self.length(b':', short),
            _ => self.number(b':', value),
        }
    }

    /// Writes a string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + BULK_BYTES);
        self.length(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Has `write` write strings, `count` of `bytes` bytes together or fewer, into room that is
    /// made for all of them at once: a short one then takes a third of the instructions of
    /// [`bulk`](Self::bulk).
    #[inline]
    pub fn bulks<T>(
        &mut self,
        count: usize,
        bytes: usize,
        write: impl FnOnce(&mut Bulks<'_>) -> T,
    ) -> T {
        let begin = self.out.len();
        self.out.resize(begin + count * BULK_BYTES + bytes, 0);
        let mut bulks = Bulks {
            room: &mut self.out[begin..],
        };
        let done = write(&mut bulks);
        let left = bulks.room.len();
        self.out.truncate(self.out.len() - left);
        done
    }

    /// Writes the beginning of a string; the caller then writes its `bytes` bytes and a line end.
    pub fn bulk_header(&mut self, bytes: usize) {
        self.length(b'$', bytes);
    }

    /// Writes null.
    #[inline]
    pub fn null(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"$-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// Writes null in place of an array.
    pub fn null_array(&mut self) {
        self.out.extend_from_slice(match self.version {
            Version::Resp2 => b"*-1\r\n",
            Version::Resp3 => b"_\r\n",
        });
    }

    /// Begins an array of `length` elements.
    pub fn array(&mut self, length: usize) {
        self.length(b'*', length);
    }

    /// Begins a map of `pairs` keys with their values.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', pairs * 2),
            Version::Resp3 => self.length(b'%', pairs),
        }
    }

    /// Begins a set of `length` elements.
    pub fn set(&mut self, length: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', length),
            Version::Resp3 => self.length(b'~', length),
        }
    }

    /// Begins a message of `length` elements that is not the reply to a command.
    pub fn push(&mut self, length: usize) {
        match self.version {
            Version::Resp2 => self.length(b'*', length),
            Version::Resp3 => self.length(b'>', length),
        }
    }

    /// Writes a floating-point number.
    pub fn double(&mut self, value: f64) {
        let text = if value.is_nan() {
            "nan".to_owned()
        } else if value.is_infinite() {
            if value > 0.0 { "inf" } else { "-inf" }.to_owned()
        } else {
            value.to_string()
        };
        self.double_text(text.as_bytes());
    }

    /// Writes a floating-point number, given as text.
    pub fn double_text(&mut self, text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => self.line(b',', text),
        }
    }

    /// Writes a boolean.
    pub fn boolean(&mut self, value: bool) {
        match self.version {
            Version::Resp2 => self.integer(i64::from(value)),
            Version::Resp3 => self.line(b'#', if value { b"t" } else { b"f" }),
        }
    }

    /// Writes an integer of any size, given in decimal digits.
    pub fn big_number(&mut self, digits: &[u8]) {
        match self.version {
            Version::Resp2 => {
                self.length(b'$', digits.len());
                self.clean(digits);
            }
            Version::Resp3 => self.clean_bytes(b'(', digits),
        }
    }

    /// Writes a text for people.
    pub fn verbatim(&mut self, text: &str) {
        self.verbatim_bytes(*b"txt", text.as_bytes());
    }

    /// Writes a text for people, whose format has a name of three bytes.
    pub fn verbatim_bytes(&mut self, format: [u8; 3], text: &[u8]) {
        match self.version {
            Version::Resp2 => self.bulk(text),
            Version::Resp3 => {
                self.length(b'=', text.len() + 4);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Writes replies that are encoded already.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

/// Writes strings one after the other, into room that was made for them.
#[derive(Debug)]
pub struct Bulks<'a> {
    /// What is left of it.
    room: &'a mut [u8],
}

impl Bulks<'_> {
    /// Writes a string of any bytes.
    ///
    /// # Panics
    /// There is no room for it.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(line) = SHORT_NUMBERS.get(bytes.len()) else {
            return self.push_long(bytes);
        };
        let line = line | u64::from(b'$');
        let start = usize::try_from(line >> 56).unwrap_or(0);
        let room = std::mem::take(&mut self.room);
        // Also of the shortest one, so much room is left.
        room[..size_of::<u64>()].copy_from_slice(&line.to_le_bytes());
        let (string, room) = room[start..].split_at_mut(bytes.len());
        copy(string, bytes);
        let (end, room) = room.split_at_mut(2);
        end.copy_from_slice(b"\r\n");
        self.room = room;
    }

    #[inline(never)]
    fn push_long(&mut self, bytes: &[u8]) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(bytes.len()).as_bytes();
        for part in [b"$", digits, b"\r\n", bytes, b"\r\n"] {
            let (place, room) = std::mem::take(&mut self.room).split_at_mut(part.len());
            place.copy_from_slice(part);
            self.room = room;
        }
    }
}

/// Copies bytes to as many; short ones by two words, of which some bytes may be in both.
#[inline]
fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        1..=2 => copy_ends::<1>(to, from),
        3..=4 => copy_ends::<2>(to, from),
        5..=8 => copy_ends::<4>(to, from),
        9..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(first), Some(last)) = (from.first_chunk::<N>(), from.last_chunk::<N>()) {
        to[..N].copy_from_slice(first);
        let rest = to.len() - N;
        to[rest..].copy_from_slice(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Strings of each length, into room for them and for more.
    #[test]
    fn many_strings_are_written_as_single_ones_are() {
        let text: Vec<u8> = (0..=255).cycle().take(70_000).collect();
        let lengths = (0..300).chain([999, 9_999, 65_536]);
        let strings: Vec<&[u8]> = lengths.map(|length| &text[1..][..length]).collect();
        let bytes: usize = strings.iter().map(|of| of.len()).sum();
        let of_one = strings
            .iter()
            .map(|string| (1, string.len(), std::slice::from_ref(string)));
        let of_all = [
            (strings.len(), bytes, &strings[..]),
            (999, bytes + 99, &strings[..]),
        ];
        for (count, bytes, strings) in of_one.chain(of_all) {
            let (mut one_by_one, mut together) = (b"before".to_vec(), b"before".to_vec());
            let mut writer = Writer::new(&mut together, Version::Resp3);
            writer.bulks(count, bytes, |bulks| {
                strings.iter().for_each(|of| bulks.push(of))
            });
            writer.null();
            let mut writer = Writer::new(&mut one_by_one, Version::Resp3);
            strings.iter().for_each(|string| writer.bulk(string));
            writer.null();
            assert_eq!(together, one_by_one, "room for {count} of {bytes} bytes");
        }
    }

    fn check(write: impl Fn(&mut Writer<'_>), resp2: &str, resp3: &str) {
        for (version, expected) in [(Version::Resp2, resp2), (Version::Resp3, resp3)] {
            let mut out = Vec::new();
            write(&mut Writer::new(&mut out, version));
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn every_type_has_both_its_forms() {
        check(|w| w.ok(), "+OK\r\n", "+OK\r\n");
        check(|w| w.error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        for number in [-5, 0, 7, 10, 99, 100, 127, 128, -128, i64::MAX, i64::MIN] {
            let wanted = format!(":{number}\r\n");
            check(|w| w.integer(number), &wanted, &wanted);
        }
        check(|w| w.bulk(b"ab"), "$2\r\nab\r\n", "$2\r\nab\r\n");
        for length in [0, 9, 10, 99, 100, 109, 127, 128, 990, 1234] {
            let (bytes, text) = (vec![b'x'; length], "x".repeat(length));
            let wanted = format!("${length}\r\n{text}\r\n");
            check(|w| w.bulk(&bytes), &wanted, &wanted);
        }
        check(|w| w.null(), "$-1\r\n", "_\r\n");
        check(|w| w.null_array(), "*-1\r\n", "_\r\n");
        check(|w| w.array(3), "*3\r\n", "*3\r\n");
        check(|w| w.map(2), "*4\r\n", "%2\r\n");
        check(|w| w.set(2), "*2\r\n", "~2\r\n");
        check(|w| w.push(2), "*2\r\n", ">2\r\n");
        check(|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(
            |w| w.double(f64::NEG_INFINITY),
            "$4\r\n-inf\r\n",
            ",-inf\r\n",
        );
        check(|w| w.boolean(true), ":1\r\n", "#t\r\n");
        check(|w| w.big_number(b"123"), "$3\r\n123\r\n", "(123\r\n");
        check(|w| w.big_number(b"1\r\n"), "$3\r\n1  \r\n", "(1  \r\n");
        check(|w| w.verbatim("hey"), "$3\r\nhey\r\n", "=7\r\ntxt:hey\r\n");
    }
}
