//! The client's side: parses replies of both protocol versions, for tools, tests and benchmarks.
//! Its work is bounded all the same, since a server may be as hostile as a client.

use std::fmt;

use crate::number::parse_integer;

/// Maximum nesting of a reply that is accepted.
pub const DEPTH_MAX: usize = 32;

/// A reply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Answer {
    /// `+text`.
    Simple(String),
    /// `-text`, or the bulk form of RESP3.
    Error(String),
    /// `:number`.
    Integer(i64),
    /// `$length` and bytes.
    Bulk(Vec<u8>),
    /// `$-1`, `*-1` or `_`.
    Null,
    /// `*length` and elements.
    Array(Vec<Answer>),
    /// `%pairs` and their keys and values.
    Map(Vec<(Answer, Answer)>),
    /// `~length` and elements.
    Set(Vec<Answer>),
    /// `,number`.
    Double(f64),
    /// `#t` or `#f`.
    Boolean(bool),
    /// `(digits`.
    BigNumber(String),
    /// `=length` and text, without its format.
    Verbatim(String),
    /// `>length` and elements.
    Push(Vec<Answer>),
}

/// Error: the bytes are not a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerError {
    /// An unknown type, a bad length, a missing line end.
    Malformed {
        /// Offset of the error from the beginning of the reply.
        offset: usize,
    },
    /// Nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl fmt::Display for AnswerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { offset } => write!(f, "not a reply at byte {offset}"),
            Self::TooDeep => write!(f, "a reply nested deeper than {DEPTH_MAX}"),
        }
    }
}

impl std::error::Error for AnswerError {}

/// Why parsing has stopped.
enum Stop {
    More,
    Error(AnswerError),
}

impl Answer {
    /// Parses the reply that `bytes` begin with; returns it with its length, or `None` if more
    /// bytes must arrive.
    ///
    /// # Errors
    /// The bytes are not a reply.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, AnswerError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.value(0) {
            Ok(answer) => Ok(Some((answer, reader.at))),
            Err(Stop::More) => Ok(None),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    /// Returns the length of the reply that `bytes` begin with; builds nothing.
    ///
    /// # Errors
    /// The bytes are not a reply.
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, AnswerError> {
        let mut reader = Reader { bytes, at: 0 };
        match reader.skip() {
            Ok(()) => Ok(Some(reader.at)),
            Err(Stop::More) => Ok(None),
            Err(Stop::Error(error)) => Err(error),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self) -> Stop {
        Stop::Error(AnswerError::Malformed { offset: self.at })
    }

    /// Returns the type byte and the text of the next line.
    fn line(&mut self) -> Result<(u8, &'a [u8]), Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = memchr::memchr(b'\r', rest) else {
            return Err(Stop::More);
        };
        match rest.get(end + 1) {
            None => return Err(Stop::More),
            Some(b'\n') if end > 0 => {}
            Some(_) => return Err(self.malformed()),
        }
        self.at += end + 2;
        Ok((rest[0], &rest[1..end]))
    }

    fn text(text: &[u8]) -> String {
        String::from_utf8_lossy(text).into_owned()
    }

    /// Parses a length; `None` stands for -1.
    fn count(&self, text: &[u8]) -> Result<Option<usize>, Stop> {
        match parse_integer(text) {
            Some(-1) => Ok(None),
            Some(count) => match usize::try_from(count) {
                Ok(count) => Ok(Some(count)),
                Err(_) => Err(self.malformed()),
            },
            None => Err(self.malformed()),
        }
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        if rest.len() < 2 || rest.len() - 2 < length {
            return Err(Stop::More);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(self.malformed());
        }
        self.at += length + 2;
        Ok(&rest[..length])
    }

    fn values(&mut self, count: usize, depth: usize) -> Result<Vec<Answer>, Stop> {
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn value(&mut self, depth: usize) -> Result<Answer, Stop> {
        if depth > DEPTH_MAX {
            return Err(Stop::Error(AnswerError::TooDeep));
        }
        let (kind, text) = self.line()?;
        Ok(match kind {
            b'+' => Answer::Simple(Self::text(text)),
            b'-' => Answer::Error(Self::text(text)),
            b':' => Answer::Integer(parse_integer(text).ok_or_else(|| self.malformed())?),
            b'_' => Answer::Null,
            b'#' => Answer::Boolean(text == b"t"),
            b'(' => Answer::BigNumber(Self::text(text)),
            b',' => {
                let number = Self::text(text).parse();
                Answer::Double(number.map_err(|_| self.malformed())?)
            }
            b'$' | b'!' | b'=' => self.blob(kind, text)?,
            b'*' | b'~' | b'>' | b'%' => self.aggregate(kind, text, depth)?,
            _ => return Err(self.malformed()),
        })
    }

    fn blob(&mut self, kind: u8, text: &[u8]) -> Result<Answer, Stop> {
        let Some(length) = self.count(text)? else {
            return Ok(Answer::Null);
        };
        let bytes = self.bytes(length)?;
        Ok(match kind {
            b'!' => Answer::Error(Self::text(bytes)),
            b'=' => Answer::Verbatim(Self::text(bytes.get(4..).unwrap_or_default())),
            _ => Answer::Bulk(bytes.to_vec()),
        })
    }

    fn aggregate(&mut self, kind: u8, text: &[u8], depth: usize) -> Result<Answer, Stop> {
        let Some(count) = self.count(text)? else {
            return Ok(Answer::Null);
        };
        if kind != b'%' {
            let values = self.values(count, depth)?;
            return Ok(match kind {
                b'~' => Answer::Set(values),
                b'>' => Answer::Push(values),
                _ => Answer::Array(values),
            });
        }
        let mut pairs = Vec::new();
        for _ in 0..count {
            let key = self.value(depth + 1)?;
            pairs.push((key, self.value(depth + 1)?));
        }
        Ok(Answer::Map(pairs))
    }

    fn skip(&mut self) -> Result<(), Stop> {
        // Number of values still to be skipped, so that nesting takes no stack here.
        let mut open: usize = 1;
        while open > 0 {
            open -= 1;
            let (kind, text) = self.line()?;
            let elements = match kind {
                b'+' | b'-' | b':' | b'_' | b'#' | b'(' | b',' => 0,
                b'$' | b'!' | b'=' => {
                    if let Some(length) = self.count(text)? {
                        self.bytes(length)?;
                    }
                    0
                }
                b'*' | b'~' | b'>' => self.count(text)?.unwrap_or(0),
                b'%' => self.count(text)?.unwrap_or(0).saturating_mul(2),
                _ => return Err(self.malformed()),
            };
            open = open.saturating_add(elements);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn replies_of_both_versions_are_read() {
        let bytes = b"*3\r\n%1\r\n+a\r\n:1\r\n~1\r\n#t\r\n$-1\r\n=7\r\ntxt:abc\r\n";
        let (answer, length) = Answer::parse(bytes).unwrap().unwrap();
        let map = Answer::Map(vec![(Answer::Simple("a".into()), Answer::Integer(1))]);
        let set = Answer::Set(vec![Answer::Boolean(true)]);
        assert_eq!(answer, Answer::Array(vec![map, set, Answer::Null]));
        assert_eq!(Answer::length(bytes), Ok(Some(length)));
        let (text, _) = Answer::parse(&bytes[length..]).unwrap().unwrap();
        assert_eq!(text, Answer::Verbatim("abc".into()));
        for cut in 0..length {
            assert_eq!(Answer::parse(&bytes[..cut]), Ok(None));
            assert_eq!(Answer::length(&bytes[..cut]), Ok(None));
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let bytes = b"*1\r\n".repeat(100_000);
        assert_eq!(Answer::parse(&bytes), Err(AnswerError::TooDeep));
        assert_eq!(Answer::length(&bytes), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(
            pieces in prop::collection::vec(prop_oneof![
                Just(b"*2\r\n".to_vec()), Just(b"$3\r\nabc\r\n".to_vec()), Just(b"%1\r\n".to_vec()),
                Just(b"\r\n".to_vec()), Just(b"=2\r\nab\r\n".to_vec()), Just(b"+\r\n".to_vec()),
                prop::collection::vec(any::<u8>(), 0..6),
            ], 0..12),
        ) {
            let bytes = pieces.concat();
            let parsed = Answer::parse(&bytes);
            if let Ok(Some((_, length))) = &parsed {
                prop_assert_eq!(Answer::length(&bytes), Ok(Some(*length)));
            }
        }
    }
}
