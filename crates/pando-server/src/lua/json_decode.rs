//! `cjson.decode`: JSON as values of Lua. Texts of errors, and what is let pass, are those of
//! Redis.
//!
//! A loop with levels of its own, as for encoding.

use mlua::{Lua, Table, Value};

use super::decimal::leading;
use super::json_encode::Problem;
use super::json_settings::{DECODE_DEPTH, DECODES_INVALID, Settings};

/// A piece of the text.
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    Colon,
    Comma,
    End,
    /// What is wrong.
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::String(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::Wrong(text) => text,
        }
    }
}

/// What has begun, and has not ended yet.
enum Level {
    /// With the key that the next value belongs to.
    Object(Table, Value),
    /// With the number of its elements.
    Array(Table, usize),
}

/// Reads one text.
pub(super) struct Decoder<'a> {
    lua: &'a Lua,
    text: &'a [u8],
    at: usize,
    levels: Vec<Level>,
    settings: Settings,
}

/// A token, and where it begins or goes wrong.
type Found = (Token, usize);

fn expected(what: &str, (token, at): &Found) -> Problem {
    let found = token.name();
    Problem::Text(format!(
        "Expected {what} but found {found} at character {}",
        at + 1
    ))
}

/// Returns true if a text begins with a number that JSON does not have: hexadecimal, infinite, with
/// a plus or with a zero in front.
fn is_not_json(text: &[u8]) -> bool {
    let bare = text.strip_prefix(b"-").unwrap_or(text);
    let begins = |word: &[u8]| {
        let start = bare.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    match bare {
        _ if text.starts_with(b"+") => true,
        [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
        _ => begins(b"inf") || begins(b"nan"),
    }
}

impl<'a> Decoder<'a> {
    pub(super) fn new(lua: &'a Lua, text: &'a [u8], settings: Settings) -> Self {
        Self {
            lua,
            text,
            at: 0,
            levels: Vec::new(),
            settings,
        }
    }

    /// Returns the value that the whole text is.
    pub(super) fn decode(mut self) -> Result<Value, Problem> {
        if self.text.len() >= 2 && (self.text[0] == 0 || self.text[1] == 0) {
            let text = "JSON parser does not support UTF-16 or UTF-32";
            return Err(Problem::Text(text.to_owned()));
        }
        let mut found = self.next();
        loop {
            let begun = match found.0 {
                Token::ObjectBegin => self.object()?,
                Token::ArrayBegin => self.array()?,
                _ => Err(self.scalar(found)?),
            };
            found = match begun {
                Ok(first) => first,
                Err(value) => match self.put(value)? {
                    Ok(behind) => behind,
                    Err(whole) => return Ok(whole),
                },
            };
        }
    }

    fn next(&mut self) -> Found {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let start = self.at;
        let Some(byte) = self.text.get(start) else {
            return (Token::End, start);
        };
        let rest = &self.text[start..];
        let (token, bytes) = match byte {
            // The end of a string of C, whatever comes behind it.
            0 => (Token::End, 0),
            b'{' => (Token::ObjectBegin, 1),
            b'}' => (Token::ObjectEnd, 1),
            b'[' => (Token::ArrayBegin, 1),
            b']' => (Token::ArrayEnd, 1),
            b':' => (Token::Colon, 1),
            b',' => (Token::Comma, 1),
            b'"' => return self.string(start),
            _ if rest.starts_with(b"true") => (Token::Boolean(true), 4),
            _ if rest.starts_with(b"false") => (Token::Boolean(false), 5),
            _ if rest.starts_with(b"null") => (Token::Null, 4),
            _ if self.settings.at(DECODES_INVALID) == 0 && is_not_json(rest) => match byte {
                b'-' | b'0'..=b'9' => (Token::Wrong("invalid number"), 0),
                _ => (Token::Wrong("invalid token"), 0),
            },
            b'-' | b'+' | b'0'..=b'9' | b'i' | b'I' | b'n' | b'N' => match leading(rest) {
                Some((number, bytes)) => (Token::Number(number), bytes),
                None if matches!(byte, b'-' | b'+') => (Token::Wrong("invalid number"), 0),
                None => (Token::Wrong("invalid token"), 0),
            },
            _ => (Token::Wrong("invalid token"), 0),
        };
        self.at += bytes;
        (token, start)
    }

    fn string(&mut self, start: usize) -> Found {
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            match self.text.get(self.at) {
                Some(b'"') => break,
                None | Some(0) => return (Token::Wrong("unexpected end of string"), self.at),
                Some(b'\\') => {
                    let byte = match self.text.get(self.at + 1) {
                        Some(byte @ (b'"' | b'\\' | b'/')) => *byte,
                        Some(b'b') => 8,
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => 12,
                        Some(b'r') => b'\r',
                        Some(b'u') => match self.unicode(&mut bytes) {
                            true => continue,
                            false => {
                                return (Token::Wrong("invalid unicode escape code"), self.at);
                            }
                        },
                        _ => return (Token::Wrong("invalid escape code"), self.at),
                    };
                    bytes.push(byte);
                    self.at += 2;
                }
                Some(byte) => {
                    bytes.push(*byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        (Token::String(bytes), start)
    }

    /// Returns the four hexadecimal digits behind `\u` at `at`.
    fn escape(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at + 2..at + 6)?;
        let digits = digits.iter().map(|digit| char::from(*digit).to_digit(16));
        digits
            .into_iter()
            .try_fold(0, |all, digit| Some(all << 4 | digit?))
    }

    /// Takes an escape; of a pair of surrogates both.
    fn unicode(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Some(mut code) = self.escape(self.at) else {
            return false;
        };
        let mut length = 6;
        if code & 0xf800 == 0xd800 {
            let low = self.text.get(self.at + 6..self.at + 8) == Some(b"\\u");
            let low = self
                .escape(self.at + 6)
                .filter(|_| low && code & 0x400 == 0);
            match low {
                Some(low) if low & 0xfc00 == 0xdc00 => {
                    code = ((code & 0x3ff) << 10 | low & 0x3ff) + 0x1_0000;
                    length = 12;
                }
                _ => return false,
            }
        }
        let Some(character) = char::from_u32(code) else {
            return false;
        };
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += length;
        true
    }

    fn scalar(&mut self, found: Found) -> Result<Value, Problem> {
        Ok(match found.0 {
            Token::String(bytes) => Value::String(self.lua.create_string(bytes)?),
            Token::Number(number) => Value::Number(number),
            Token::Boolean(yes) => Value::Boolean(yes),
            Token::Null => Value::NULL,
            _ => return Err(expected("value", &found)),
        })
    }

    /// Returns the table of an object or array that begins.
    fn descend(&mut self) -> Result<Table, Problem> {
        let (depth, at) = (self.levels.len() + 1, self.at);
        if depth <= self.settings.depth(DECODE_DEPTH) {
            return Ok(self.lua.create_table()?);
        }
        Err(Problem::Text(format!(
            "Found too many nested data structures ({depth}) at character {at}"
        )))
    }

    /// Begins an object. Returns the token of its first value, or the object if it is empty.
    fn object(&mut self) -> Result<Result<Found, Value>, Problem> {
        let table = self.descend()?;
        let first = self.next();
        if matches!(first.0, Token::ObjectEnd) {
            return Ok(Err(Value::Table(table)));
        }
        let key = self.key(first)?;
        self.levels.push(Level::Object(table, key));
        Ok(Ok(self.next()))
    }

    /// Begins an array, as [`object`](Self::object) does.
    fn array(&mut self) -> Result<Result<Found, Value>, Problem> {
        let table = self.descend()?;
        let first = self.next();
        if matches!(first.0, Token::ArrayEnd) {
            return Ok(Err(Value::Table(table)));
        }
        self.levels.push(Level::Array(table, 0));
        Ok(Ok(first))
    }

    /// Returns the key that `found` is; the colon behind it is taken, too.
    fn key(&mut self, found: Found) -> Result<Value, Problem> {
        let (Token::String(key), _) = found else {
            return Err(expected("object key string", &found));
        };
        let colon = self.next();
        match colon.0 {
            Token::Colon => Ok(Value::String(self.lua.create_string(key)?)),
            _ => Err(expected("colon", &colon)),
        }
    }

    /// Puts a value into what it lies in, and that if it ends there, and so on. Returns the token
    /// of the next value, or the value that the whole text is.
    fn put(&mut self, mut value: Value) -> Result<Result<Found, Value>, Problem> {
        while let Some(level) = self.levels.pop() {
            match level {
                Level::Object(table, key) => {
                    table.raw_set(key, value)?;
                    let behind = self.next();
                    match behind.0 {
                        Token::ObjectEnd => value = Value::Table(table),
                        Token::Comma => {
                            let found = self.next();
                            let key = self.key(found)?;
                            self.levels.push(Level::Object(table, key));
                            return Ok(Ok(self.next()));
                        }
                        _ => return Err(expected("comma or object end", &behind)),
                    }
                }
                Level::Array(table, count) => {
                    table.raw_set(count + 1, value)?;
                    let behind = self.next();
                    match behind.0 {
                        Token::ArrayEnd => value = Value::Table(table),
                        Token::Comma => {
                            self.levels.push(Level::Array(table, count + 1));
                            return Ok(Ok(self.next()));
                        }
                        _ => return Err(expected("comma or array end", &behind)),
                    }
                }
            }
        }
        match self.next() {
            (Token::End, _) => Ok(Err(value)),
            other => Err(expected("the end", &other)),
        }
    }
}
