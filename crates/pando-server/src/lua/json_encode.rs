//! `cjson.encode`: a value of Lua as JSON, in the bytes of Redis.
//!
//! A loop with levels of its own: the machine's stack has no room for the nesting that is allowed.

use mlua::{Function, Table, Value};

use super::decimal::general;
use super::json_settings::{
    CONVERTS_SPARSE, ENCODE_DEPTH, ENCODES_INVALID, PRECISION, SPARSE_RATIO, SPARSE_SAFE, Settings,
};

/// Why something is not encoded.
pub(super) enum Problem {
    /// The text of the error.
    Text(String),
    Lua(mlua::Error),
}

impl From<mlua::Error> for Problem {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// Writes one value.
pub(super) struct Encoder<'a> {
    pub(super) out: Vec<u8>,
    /// Bytes from which on there is no memory: a small table can name others very often.
    pub(super) out_max: usize,
    /// `next` of Lua.
    pub(super) next: &'a Function,
    pub(super) settings: Settings,
}

/// A table that has begun.
enum Level {
    Array {
        table: Table,
        /// Number of elements that have been written.
        written: usize,
        length: usize,
    },
    Object {
        table: Table,
        /// The key that was written last; nil before the first one.
        key: Value,
    },
}

fn refused(value: &Value, why: &str) -> Problem {
    Problem::Text(format!("Cannot serialise {}: {why}", name_of(value)))
}

/// Returns the name that Lua has for the type of a value.
pub(super) fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::UserData(_) | Value::Error(_) => "userdata",
        value => value.type_name(),
    }
}

impl Encoder<'_> {
    /// Writes `value`.
    pub(super) fn encode(&mut self, value: &Value) -> Result<(), Problem> {
        let mut levels: Vec<Level> = Vec::new();
        let mut value = value.clone();
        loop {
            if let Some(level) = self.begin(&value, levels.len() + 1)? {
                levels.push(level);
            }
            value = loop {
                let Some(level) = levels.last_mut() else {
                    return Ok(());
                };
                match self.advance(level)? {
                    Some(next) => break next,
                    None => levels.pop(),
                };
            };
        }
    }

    /// Writes `value`; of a table, which would be in `depth` tables with itself, the beginning.
    fn begin(&mut self, value: &Value, depth: usize) -> Result<Option<Level>, Problem> {
        if self.out.len() > self.out_max {
            let text = "not enough memory".to_owned();
            return Err(Problem::Lua(mlua::Error::MemoryError(text)));
        }
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(true) => self.out.extend_from_slice(b"true"),
            Value::Boolean(false) => self.out.extend_from_slice(b"false"),
            Value::Integer(_) | Value::Number(_) => self.number(value)?,
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Table(table) => return self.table(table, depth).map(Some),
            value => return Err(refused(value, "type not supported")),
        }
        Ok(None)
    }

    fn number(&mut self, value: &Value) -> Result<(), Problem> {
        let number = match value {
            Value::Integer(number) => *number as f64,
            Value::Number(number) => *number,
            _ => f64::NAN,
        };
        let text = match self.settings.at(ENCODES_INVALID) {
            _ if number.is_finite() => general(number, self.settings.at(PRECISION)),
            0 => return Err(refused(value, "must not be NaN or Inf")),
            1 if number.is_nan() => "nan".to_owned(),
            // The words of C.
            1 => format!("{number}"),
            _ => "null".to_owned(),
        };
        self.out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn string(&mut self, text: &[u8]) {
        self.out.push(b'"');
        for byte in text {
            let escaped = match byte {
                b'"' => b"\\\"".as_slice(),
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                8 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                12 => b"\\f",
                b'\r' => b"\\r",
                0..=31 | 127 => {
                    let escape = format!("\\u{byte:04x}");
                    self.out.extend_from_slice(escape.as_bytes());
                    continue;
                }
                _ => {
                    self.out.push(*byte);
                    continue;
                }
            };
            self.out.extend_from_slice(escaped);
        }
        self.out.push(b'"');
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<Level, Problem> {
        if depth > self.settings.depth(ENCODE_DEPTH) {
            let text = format!("Cannot serialise, excessive nesting ({depth})");
            return Err(Problem::Text(text));
        }
        let table = table.clone();
        Ok(match self.length(&table)? {
            Some(length) if length > 0 => {
                self.out.push(b'[');
                Level::Array {
                    table,
                    written: 0,
                    length,
                }
            }
            _ => {
                self.out.push(b'{');
                let key = Value::Nil;
                Level::Object { table, key }
            }
        })
    }

    /// Writes what is before the next value of a table, and returns that; or the table's end.
    fn advance(&mut self, level: &mut Level) -> Result<Option<Value>, Problem> {
        match level {
            Level::Array {
                table,
                written,
                length,
            } => {
                if written == length {
                    self.out.push(b']');
                    return Ok(None);
                }
                if *written > 0 {
                    self.out.push(b',');
                }
                *written += 1;
                Ok(Some(table.raw_get(*written)?))
            }
            Level::Object { table, key } => {
                let is_first = key.is_nil();
                let (next, value) = self.next.call::<(Value, Value)>((&*table, &*key))?;
                if next.is_nil() {
                    self.out.push(b'}');
                    return Ok(None);
                }
                if !is_first {
                    self.out.push(b',');
                }
                self.key(&next)?;
                *key = next;
                Ok(Some(value))
            }
        }
    }

    /// Returns the place of an array's last element; `None` if it is to be an object.
    fn length(&self, table: &Table) -> Result<Option<usize>, Problem> {
        let (mut last, mut count) = (0, 0_usize);
        for pair in table.pairs::<Value, Value>() {
            let Some(place) = place_of(&pair?.0) else {
                return Ok(None);
            };
            last = last.max(place);
            count += 1;
        }
        let (ratio, safe) = (
            self.settings.at(SPARSE_RATIO),
            self.settings.at(SPARSE_SAFE),
        );
        if ratio == 0 || last <= count.saturating_mul(ratio) || last <= safe {
            return Ok(Some(last));
        }
        if self.settings.at(CONVERTS_SPARSE) == 1 {
            return Ok(None);
        }
        let table = Value::Table(table.clone());
        Err(refused(&table, "excessively sparse array"))
    }

    fn key(&mut self, key: &Value) -> Result<(), Problem> {
        match key {
            Value::String(text) => self.string(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                self.out.push(b'"');
                self.number(key)?;
                self.out.push(b'"');
            }
            key => return Err(refused(key, "table key must be a number or string")),
        }
        self.out.push(b':');
        Ok(())
    }
}

/// Returns the place in an array that a key is.
pub(super) fn place_of(key: &Value) -> Option<usize> {
    let number = key
        .as_number()
        .or_else(|| key.as_integer().map(|key| key as f64))?;
    if number < 1.0 || number.fract() != 0.0 || number >= 9_007_199_254_740_992.0 {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is whole, and below 2^53"
    )]
    let place = number as usize;
    Some(place)
}
