//! Between replies and values of Lua, as Redis converts them.

use pando_lua::{IS_COUNTED, Stack, View};
use pando_resp::{Answer, Version, Writer, parse_integer};

use crate::commands::sorted_set::double;
use crate::figures::error_codes::code_of;
use crate::lua::until_zero;

/// Nesting of a value from which on its reply says so instead.
const DEPTH_MAX: usize = 200;

/// Appends a value to the arguments of a command, if `bytes` has no more than `most` bytes then.
///
/// # Errors
/// Why it cannot be an argument.
#[inline]
pub(super) fn append(
    bytes: &mut Vec<u8>,
    value: View<'_>,
    most: usize,
) -> Result<(), &'static str> {
    let mut append = |argument: &[u8]| match bytes.len() + argument.len() > most {
        true => Err("ERR the arguments of this call take more than a request may"),
        false => {
            bytes.extend_from_slice(argument);
            Ok(())
        }
    };
    match value {
        View::Bytes(text) => append(text),
        View::Number(number) => match whole(number) {
            Some(number) => append(itoa::Buffer::new().format(number).as_bytes()),
            None => append(double::text(number).as_bytes()),
        },
        _ => Err("ERR Lua redis lib command arguments must be strings or integers"),
    }
}

/// Returns the integer that Redis 7.2 makes of a number (`double2ll` of `util.c`): 0 of -0, and
/// `None` of those that are not whole, or lie beyond 2^62.
fn whole(number: f64) -> Option<i64> {
    const MOST: f64 = (1_u64 << 62) as f64;
    (number.abs() <= MOST && number.trunc() == number).then(|| integer(number))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of Lua are floats: Redis loses the same bits"
)]
fn number_of(integer: i64) -> f64 {
    integer as f64
}

/// Pushes a whole reply, in `version`, as Lua gets it. Returns false if it is the text of an error.
pub(super) fn push_reply(stack: &mut Stack<'_>, reply: &[u8], version: Version) -> bool {
    // Most replies are of one line or one string, and are converted where they lie.
    match reply {
        [b'+', text @ .., b'\r', b'\n'] => {
            push_one(stack, "ok", |stack| stack.push_bytes(text));
            return true;
        }
        [b':', digits @ .., b'\r', b'\n'] => {
            if let Some(number) = parse_integer(digits) {
                stack.push_number(number_of(number));
                return true;
            }
        }
        [b'$', text @ .., b'\r', b'\n'] => {
            if let Some(text) = only_string(text) {
                stack.push_bytes(text);
                return true;
            }
        }
        _ => {}
    }
    match Answer::parse(reply) {
        Ok(Some((Answer::Error(text), _))) => {
            stack.push_bytes(text.as_bytes());
            return false;
        }
        Ok(Some((answer, _))) => push(stack, &answer, version),
        Ok(None) | Err(_) => {
            stack.push_bytes(b"ERR the reply is nested too deeply for a script");
            return false;
        }
    }
    true
}

/// Returns the string of a reply that is one, without its first and its last two bytes; `None` if
/// it is null.
fn only_string(reply: &[u8]) -> Option<&[u8]> {
    let digits = reply
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let length: usize = std::str::from_utf8(&reply[..digits]).ok()?.parse().ok()?;
    let text = reply.get(digits + 2..)?;
    (text.len() == length).then_some(text)
}

/// Pushes a table that has one value, which `push` pushes.
fn push_one(stack: &mut Stack<'_>, field: &str, push: impl FnOnce(&mut Stack<'_>)) {
    stack.push_table(0, 1);
    set_field(stack, field, push);
}

/// Puts a value, which `push` pushes, into the table on top.
fn set_field(stack: &mut Stack<'_>, field: &str, push: impl FnOnce(&mut Stack<'_>)) {
    let table = stack.top();
    stack.push_bytes(field.as_bytes());
    push(stack);
    stack.set_pair(table);
}

/// Pushes a reply, in `version`, as a value of Lua.
fn push(stack: &mut Stack<'_>, reply: &Answer, version: Version) {
    match reply {
        Answer::Simple(text) => push_one(stack, "ok", |stack| stack.push_bytes(text.as_bytes())),
        Answer::Error(text) => push_one(stack, "err", |stack| stack.push_bytes(text.as_bytes())),
        Answer::Integer(number) => stack.push_number(number_of(*number)),
        Answer::Bulk(bytes) => stack.push_bytes(bytes),
        Answer::Null if version == Version::Resp2 => stack.push_boolean(false),
        Answer::Array(elements) | Answer::Push(elements) => {
            stack.push_table(elements.len(), 0);
            let table = stack.top();
            for (place, element) in (1..).zip(elements) {
                push(stack, element, version);
                stack.set_element(table, place);
            }
        }
        Answer::Map(pairs) => push_one(stack, "map", |stack| {
            stack.push_table(0, pairs.len());
            let table = stack.top();
            for (key, of_key) in pairs {
                push(stack, key, version);
                push(stack, of_key, version);
                stack.set_pair(table);
            }
        }),
        Answer::Set(elements) => push_one(stack, "set", |stack| {
            stack.push_table(0, elements.len());
            let table = stack.top();
            for element in elements {
                push(stack, element, version);
                stack.push_boolean(true);
                stack.set_pair(table);
            }
        }),
        Answer::Double(number) => push_one(stack, "double", |stack| stack.push_number(*number)),
        Answer::Boolean(yes) => stack.push_boolean(*yes),
        Answer::BigNumber(digits) => {
            push_one(stack, "big_number", |stack| {
                stack.push_bytes(digits.as_bytes())
            });
        }
        Answer::Verbatim(text) => push_one(stack, "verbatim_string", |stack| {
            push_one(stack, "string", |stack| stack.push_bytes(text.as_bytes()));
            set_field(stack, "format", |stack| stack.push_bytes(b"txt"));
        }),
        _ => stack.push_nil(),
    }
}

/// Returns a number without its fraction, as C converts it on the machines that Redis runs on.
fn integer(number: f64) -> i64 {
    let is_inside = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "it is inside of the range")]
    let whole = number as i64;
    if is_inside { whole } else { i64::MIN }
}

/// Returns the number of pairs of the table at `table`.
fn count(stack: &mut Stack<'_>, table: i32) -> usize {
    let (top, mut count) = (stack.top(), 0);
    stack.push_nil();
    while stack.next(table) {
        stack.truncate(top + 1);
        count += 1;
    }
    count
}

/// Bytes of the shortest element in a reply.
const ELEMENT_BYTES_MIN: usize = 3;

/// A reply is too long.
#[derive(Debug)]
pub(super) struct TooLong;

/// Where the reply of a script goes.
pub(super) struct Reply<'a> {
    pub(super) out: &'a mut Vec<u8>,
    /// Version of the client's protocol.
    pub(super) version: Version,
    /// Version that the script has chosen.
    pub(super) chosen: Version,
    /// Length of `out` beyond which nothing is written: the reply is too long.
    pub(super) out_max: usize,
    /// Number of elements of tables that it has, those that are not written yet among them.
    pub(super) elements: usize,
    /// It is the error of a call, which was counted with that.
    pub(super) passes_on: bool,
    /// Codes of the errors inside of it that are no such ones.
    pub(super) inner_errors: Vec<Vec<u8>>,
}

impl Reply<'_> {
    fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.version)
    }

    /// Returns true if it is longer than a reply may be.
    pub(super) fn is_too_long(&self) -> bool {
        self.out.len() > self.out_max || self.elements * ELEMENT_BYTES_MIN > self.out_max
    }

    fn check(&self) -> Result<(), TooLong> {
        match self.is_too_long() {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    /// Writes what a script has returned, the value at `place`. Stops where it is too long.
    pub(super) fn write(
        &mut self,
        stack: &mut Stack<'_>,
        place: i32,
        depth: usize,
    ) -> Result<(), TooLong> {
        self.check()?;
        if depth > DEPTH_MAX {
            self.writer().error("ERR reached lua stack limit");
            return Ok(());
        }
        match stack.view(place) {
            View::Bytes(text) => self.writer().bulk(text),
            View::Number(number) => self.writer().integer(integer(number)),
            View::Boolean(yes) if self.chosen == Version::Resp3 => self.writer().boolean(yes),
            View::Boolean(true) => self.writer().integer(1),
            View::Table => {
                let top = stack.top();
                self.table(stack, place, depth)?;
                stack.truncate(top);
            }
            _ => self.writer().null(),
        }
        Ok(())
    }

    /// Writes the table at `table`, and may leave values on top.
    fn table(&mut self, stack: &mut Stack<'_>, table: i32, depth: usize) -> Result<(), TooLong> {
        let at = stack.top() + 1;
        let has = |stack: &mut Stack<'_>, field: &str| {
            stack.truncate(at - 1);
            stack.push_field(table, field);
        };
        has(stack, "err");
        if let View::Bytes(text) = stack.view(at) {
            let text = until_zero(text);
            let end = text.iter().rposition(|byte| !b"\r\n".contains(byte));
            let start = self.out.len();
            self.writer()
                .error_bytes(&text[..end.map_or(0, |end| end + 1)]);
            has(stack, IS_COUNTED);
            let is_counted = stack.view(at) == View::Boolean(true);
            self.passes_on |= depth == 0 && is_counted;
            if depth > 0 && !is_counted {
                self.inner_errors.push(code_of(&self.out[start..]).to_vec());
            }
            return Ok(());
        }
        has(stack, "ok");
        if let View::Bytes(text) = stack.view(at) {
            self.writer().simple_bytes(until_zero(text));
            return Ok(());
        }
        has(stack, "double");
        if let View::Number(number) = stack.view(at) {
            self.double(number);
            return Ok(());
        }
        has(stack, "map");
        if stack.view(at) == View::Table {
            return self.pairs(stack, at, (true, depth));
        }
        has(stack, "set");
        if stack.view(at) == View::Table {
            return self.pairs(stack, at, (false, depth));
        }
        has(stack, "big_number");
        if let View::Bytes(digits) = stack.view(at) {
            self.writer().big_number(until_zero(digits));
            return Ok(());
        }
        has(stack, "verbatim_string");
        if stack.view(at) == View::Table {
            stack.push_field(at, "string");
            stack.push_field(at, "format");
            if let (View::Bytes(string), View::Bytes(format)) =
                (stack.view(at + 1), stack.view(at + 2))
            {
                self.verbatim(string, format);
                return Ok(());
            }
        }
        stack.truncate(at - 1);
        self.array(stack, table, depth)
    }

    /// Writes the table at `table`, which is on top, as a map or as a set.
    fn pairs(
        &mut self,
        stack: &mut Stack<'_>,
        table: i32,
        (is_map, depth): (bool, usize),
    ) -> Result<(), TooLong> {
        let count = count(stack, table);
        self.elements += count;
        match is_map {
            true => self.writer().map(count),
            false => self.writer().set(count),
        }
        let key = table + 1;
        stack.push_nil();
        while stack.next(table) {
            self.write(stack, key, depth + 1)?;
            if is_map {
                self.write(stack, key + 1, depth + 1)?;
            }
            stack.truncate(key);
        }
        Ok(())
    }

    fn verbatim(&mut self, string: &[u8], format: &[u8]) {
        // Three bytes, whatever they are: they must not end the reply's line.
        let mut name = *b"   ";
        for (to, from) in name.iter_mut().zip(format) {
            *to = match b"\0\r\n".contains(from) {
                true => b' ',
                false => *from,
            };
        }
        self.writer().verbatim_bytes(name, string);
    }

    fn double(&mut self, number: f64) {
        self.writer().double_text(double::text(number).as_bytes());
    }

    fn array(&mut self, stack: &mut Stack<'_>, table: i32, depth: usize) -> Result<(), TooLong> {
        let top = stack.top();
        // Up to the first element that is nil, which need not be where Lua's length ends.
        let mut length = 0;
        loop {
            stack.push_element(table, length + 1);
            let is_there = stack.view(top + 1) != View::Nil;
            stack.truncate(top);
            if !is_there {
                break;
            }
            length += 1;
            self.elements += 1;
            self.check()?;
        }
        self.writer().array(usize::try_from(length).unwrap_or(0));
        for place in 1..=length {
            stack.push_element(table, place);
            self.write(stack, top + 1, depth + 1)?;
            stack.truncate(top);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_that_are_a_whole_reply_are_found() {
        assert_eq!(only_string(b"0\r\n"), Some(&b""[..]));
        assert_eq!(
            only_string(b"12\r\nhello\r\nworld"),
            Some(&b"hello\r\nworld"[..])
        );
        assert_eq!(only_string(b"-1"), None, "null");
        assert_eq!(only_string(b"5\r\nhell"), None);
        assert_eq!(only_string(b"3\r\nhell"), None);
        assert_eq!(only_string(b""), None);
    }
}
