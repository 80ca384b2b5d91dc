//! Between replies and values of Lua, as Redis converts them.

use mlua::{Lua, Table, Value};
use pando_resp::{Answer, Version, Writer};

use crate::commands::sorted_set::double;
use crate::lua::until_zero;

/// Nesting of a value from which on its reply says so instead.
const DEPTH_MAX: usize = 200;

/// Appends a value to the arguments of a command, if `bytes` has no more than `most` bytes then.
///
/// # Errors
/// Why it cannot be an argument.
pub(super) fn append(bytes: &mut Vec<u8>, value: &Value, most: usize) -> Result<(), &'static str> {
    let mut append = |argument: &[u8]| match bytes.len() + argument.len() > most {
        true => Err("ERR the arguments of this call take more than a request may"),
        false => {
            bytes.extend_from_slice(argument);
            Ok(())
        }
    };
    match value {
        Value::String(text) => append(&text.as_bytes()),
        Value::Integer(number) => append(number.to_string().as_bytes()),
        Value::Number(number) => append(double::text(*number).as_bytes()),
        _ => Err("ERR Lua redis lib command arguments must be strings or integers"),
    }
}

/// What Lua gets of a reply.
pub(super) enum Converted {
    Value(Value),
    /// Lua makes a table with this as `ok`, at less cost than we do.
    Status(Value),
    /// The reply is an error with this text.
    Error(String),
    TooDeep,
}

/// Returns a whole reply, in `version`, as Lua gets it.
pub(super) fn converted(lua: &Lua, reply: &[u8], version: Version) -> mlua::Result<Converted> {
    // Most replies are of one line or one string, and are converted where they lie.
    match reply {
        [b'+', text @ .., b'\r', b'\n'] => return string(lua, text).map(Converted::Status),
        [b'$', text @ .., b'\r', b'\n'] => {
            if let Some(text) = only_string(text) {
                return string(lua, text).map(Converted::Value);
            }
        }
        _ => {}
    }
    Ok(match Answer::parse(reply) {
        Ok(Some((Answer::Error(text), _))) => Converted::Error(text),
        Ok(Some((answer, _))) => Converted::Value(value(lua, &answer, version)?),
        Ok(None) | Err(_) => Converted::TooDeep,
    })
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

fn one(lua: &Lua, field: &str, value: Value) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, value)?;
    Ok(Value::Table(table))
}

fn string(lua: &Lua, bytes: &[u8]) -> mlua::Result<Value> {
    Ok(Value::String(lua.create_string(bytes)?))
}

/// Returns a reply, in `version`, as a value of Lua.
pub(super) fn value(lua: &Lua, reply: &Answer, version: Version) -> mlua::Result<Value> {
    Ok(match reply {
        Answer::Simple(text) => one(lua, "ok", string(lua, text.as_bytes())?)?,
        Answer::Error(text) => one(lua, "err", string(lua, text.as_bytes())?)?,
        #[expect(
            clippy::cast_precision_loss,
            reason = "numbers of Lua are floats: Redis loses the same bits"
        )]
        Answer::Integer(number) => Value::Number(*number as f64),
        Answer::Bulk(bytes) => string(lua, bytes)?,
        Answer::Null if version == Version::Resp2 => Value::Boolean(false),
        Answer::Null => Value::Nil,
        Answer::Array(elements) | Answer::Push(elements) => {
            let table = lua.create_table_with_capacity(elements.len(), 0)?;
            for (place, element) in elements.iter().enumerate() {
                table.raw_set(place + 1, value(lua, element, version)?)?;
            }
            Value::Table(table)
        }
        Answer::Map(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, of_key) in pairs {
                table.raw_set(value(lua, key, version)?, value(lua, of_key, version)?)?;
            }
            one(lua, "map", Value::Table(table))?
        }
        Answer::Set(elements) => {
            let table = lua.create_table_with_capacity(0, elements.len())?;
            for element in elements {
                table.raw_set(value(lua, element, version)?, true)?;
            }
            one(lua, "set", Value::Table(table))?
        }
        Answer::Double(number) => one(lua, "double", Value::Number(*number))?,
        Answer::Boolean(yes) => Value::Boolean(*yes),
        Answer::BigNumber(digits) => one(lua, "big_number", string(lua, digits.as_bytes())?)?,
        Answer::Verbatim(text) => {
            let table = lua.create_table()?;
            table.raw_set("string", text.as_str())?;
            table.raw_set("format", "txt")?;
            one(lua, "verbatim_string", Value::Table(table))?
        }
        _ => Value::Nil,
    })
}

/// Returns a number without its fraction, as C converts it on the machines that Redis runs on.
fn integer(number: f64) -> i64 {
    let is_inside = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[expect(clippy::cast_possible_truncation, reason = "it is inside of the range")]
    let whole = number as i64;
    if is_inside { whole } else { i64::MIN }
}

/// Returns the number of pairs: Lua has not enough references to hold all of them.
fn count(table: &Table) -> mlua::Result<usize> {
    let mut pairs = table.pairs::<Value, Value>();
    pairs.try_fold(0, |count, pair| pair.map(|_| count + 1))
}

/// Bytes of the shortest element in a reply.
const ELEMENT_BYTES_MIN: usize = 3;

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
}

impl Reply<'_> {
    fn writer(&mut self) -> Writer<'_> {
        Writer::new(self.out, self.version)
    }

    /// Returns true if it is longer than a reply may be.
    pub(super) fn is_too_long(&self) -> bool {
        self.out.len() > self.out_max || self.elements * ELEMENT_BYTES_MIN > self.out_max
    }

    fn check(&self) -> mlua::Result<()> {
        match self.is_too_long() {
            true => Err(mlua::Error::runtime("the reply is too long")),
            false => Ok(()),
        }
    }

    /// Writes what a script has returned. Stops with an error where it is too long.
    pub(super) fn write(&mut self, value: &Value, depth: usize) -> mlua::Result<()> {
        self.check()?;
        if depth > DEPTH_MAX {
            self.writer().error("ERR reached lua stack limit");
            return Ok(());
        }
        match value {
            Value::String(text) => self.writer().bulk(&text.as_bytes()),
            Value::Integer(number) => self.writer().integer(*number),
            Value::Number(number) => self.writer().integer(integer(*number)),
            Value::Boolean(yes) if self.chosen == Version::Resp3 => self.writer().boolean(*yes),
            Value::Boolean(true) => self.writer().integer(1),
            Value::Table(table) => self.table(table, depth)?,
            _ => self.writer().null(),
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        if let Value::String(text) = table.raw_get("err")? {
            let text = text.as_bytes();
            let text = until_zero(&text);
            let end = text.iter().rposition(|byte| !b"\r\n".contains(byte));
            self.writer()
                .error_bytes(&text[..end.map_or(0, |end| end + 1)]);
        } else if let Value::String(text) = table.raw_get("ok")? {
            self.writer().simple_bytes(until_zero(&text.as_bytes()));
        } else if let Value::Number(number) = table.raw_get("double")? {
            self.double(number);
        } else if let Value::Integer(number) = table.raw_get("double")? {
            #[expect(clippy::cast_precision_loss, reason = "numbers of Lua are floats")]
            self.double(number as f64);
        } else if let Value::Table(map) = table.raw_get("map")? {
            let count = count(&map)?;
            self.elements += count;
            self.writer().map(count);
            for pair in map.pairs::<Value, Value>() {
                let (key, value) = pair?;
                self.write(&key, depth + 1)?;
                self.write(&value, depth + 1)?;
            }
        } else if let Value::Table(set) = table.raw_get("set")? {
            let count = count(&set)?;
            self.elements += count;
            self.writer().set(count);
            for pair in set.pairs::<Value, Value>() {
                self.write(&pair?.0, depth + 1)?;
            }
        } else if let Value::String(digits) = table.raw_get("big_number")? {
            self.writer().big_number(&digits.to_string_lossy());
        } else if let Value::Table(text) = table.raw_get("verbatim_string")?
            && let (Value::String(string), Value::String(format)) =
                (text.raw_get("string")?, text.raw_get("format")?)
        {
            // Three bytes, whatever they are: they must not end the reply's line.
            let mut name = *b"   ";
            for (to, from) in name.iter_mut().zip(format.as_bytes().iter()) {
                *to = if b"\0\r\n".contains(from) {
                    b' '
                } else {
                    *from
                };
            }
            self.writer().verbatim_bytes(name, &string.as_bytes());
        } else {
            self.array(table, depth)?;
        }
        Ok(())
    }

    fn double(&mut self, number: f64) {
        let text = double::text(number);
        match self.version {
            Version::Resp2 => self.writer().bulk(text.as_bytes()),
            Version::Resp3 => self.writer().raw(format!(",{text}\r\n").as_bytes()),
        }
    }

    fn array(&mut self, table: &Table, depth: usize) -> mlua::Result<()> {
        // Up to the first element that is nil, which need not be where Lua's length ends.
        let mut length = 0;
        while table.raw_get::<Value>(length + 1)? != Value::Nil {
            length += 1;
            self.elements += 1;
            self.check()?;
        }
        self.writer().array(length);
        for place in 1..=length {
            let element: Value = table.raw_get(place)?;
            self.write(&element, depth + 1)?;
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
