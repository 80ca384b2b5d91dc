//! Patterns of SORT's BY and GET: keys, or fields of hashes, whose names contain an element.

use crate::context::{Context, Found, Interrupted, Part, replies};
use crate::data::keyspace::{RowError, ValueType};
use crate::data::packed::Reader;
use crate::data::shown_sort;

/// Most bytes of rows that one command looks through: it holds its loop as long as that takes.
const LOOKED_BYTES_MAX: usize = 256 << 20;
/// What an event takes besides its key.
const EVENT_BYTES: usize = 64;
pub(super) const TOO_MUCH: &str =
    "ERR the values that BY and GET name have more than 256 MiB together";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern<'a> {
    /// `#`: the element itself.
    Element,
    /// No element can be put into it: there is no such value.
    Constant,
    /// The string at a key, or a field of the hash there. The element comes between both parts.
    Key {
        before: &'a [u8],
        after: &'a [u8],
        field: Option<&'a [u8]>,
    },
}

/// What a pattern has for an element.
pub(super) enum Value {
    None,
    Bytes(Vec<u8>),
    /// A string in chunks.
    Long(Found),
}

impl Value {
    /// Returns its bytes, which are needed in memory.
    pub(super) fn into_bytes(self) -> Result<Option<Vec<u8>>, Interrupted> {
        match self {
            Self::None => Ok(None),
            Self::Bytes(bytes) => Ok(Some(bytes)),
            Self::Long(_) => Err(replies::TOO_MANY_LONG.into()),
        }
    }
}

/// Reads what patterns have for elements, within a bound for all of a command.
#[derive(Default)]
pub(super) struct LookUps {
    /// Bytes of the rows that were looked through.
    looked: usize,
}

impl LookUps {
    /// Reads what `pattern` has for `element`.
    pub(super) fn value(
        &mut self,
        context: &mut Context<'_>,
        pattern: &Pattern<'_>,
        element: &[u8],
    ) -> Result<Value, Interrupted> {
        pattern.look_up(context, element, &mut self.looked)
    }
}

impl<'a> Pattern<'a> {
    /// Reads a pattern. As in Redis, a zero byte ends the part in which the star and the arrow of a
    /// field are looked for.
    pub(super) fn parse(text: &'a [u8]) -> Self {
        if text == b"#" {
            return Self::Element;
        }
        let end = text.iter().position(|byte| *byte == 0);
        let searched = &text[..end.unwrap_or(text.len())];
        let Some(star) = searched.iter().position(|byte| *byte == b'*') else {
            return Self::Constant;
        };
        let behind = star + 1;
        let arrow = searched[behind..].windows(2).position(|two| two == b"->");
        let arrow = arrow.map(|at| behind + at);
        let (key_end, field) = match arrow {
            Some(at) if !matches!(text.get(at + 2), None | Some(0)) => (at, Some(&text[at + 2..])),
            _ => (text.len(), None),
        };
        Self::Key {
            before: &text[..star],
            after: &text[behind..key_end],
            field,
        }
    }

    /// Returns it for a thread.
    pub(super) fn owned(&self) -> shown_sort::Pattern {
        match *self {
            Self::Element => shown_sort::Pattern::Element,
            Self::Constant => shown_sort::Pattern::Nothing,
            Self::Key {
                before,
                after,
                field,
            } => shown_sort::Pattern::Key {
                before: before.to_vec(),
                after: after.to_vec(),
                field: field.map(<[u8]>::to_vec),
            },
        }
    }

    /// Reads what it has for `element`. `looked` is the number of bytes looked through so far.
    fn look_up(
        &self,
        context: &mut Context<'_>,
        element: &[u8],
        looked: &mut usize,
    ) -> Result<Value, Interrupted> {
        let (before, after, field) = match *self {
            Self::Element => return Ok(Value::Bytes(element.to_vec())),
            Self::Constant => return Ok(Value::None),
            Self::Key {
                before,
                after,
                field,
            } => (before, after, field),
        };
        let key = [before, element, after].concat();
        let found = context.read(&key)?;
        let Some(row) = found.row else {
            // It may be told (`keymiss`), and until then it is kept.
            *looked += key.len() + EVENT_BYTES;
            if *looked > LOOKED_BYTES_MAX {
                return Err(TOO_MUCH.into());
            }
            return Ok(Value::None);
        };
        let is_decoded = found.former.tree.is_some() || row.times().fields.is_some();
        if let (ValueType::Hash, Some(field), true) = (row.value_type, field, is_decoded) {
            let hash = context.decoded(found, row.value_type, &Part::Named(&[field]))?;
            let place = hash.strings.find(field, 2);
            let value = place.map(|place| hash.strings.at(place + 1));
            *looked += hash.strings.bytes();
            if *looked > LOOKED_BYTES_MAX {
                return Err(TOO_MUCH.into());
            }
            return Ok(value.map_or(Value::None, |value| Value::Bytes(value.to_vec())));
        }
        let payload = context.payload(row);
        *looked += payload.len();
        if *looked > LOOKED_BYTES_MAX {
            return Err(TOO_MUCH.into());
        }
        match (row.value_type, field) {
            (ValueType::String, None) if found.large.is_some() => Ok(Value::Long(found)),
            (ValueType::String, None) => Ok(Value::Bytes(payload.to_vec())),
            (ValueType::Hash, Some(field)) => Ok(field_of(payload, field)?),
            _ => Ok(Value::None),
        }
    }
}

/// Returns a field of the hash whose payload is `payload`.
fn field_of(payload: &[u8], field: &[u8]) -> Result<Value, RowError> {
    let mut reader = Reader::new(payload)?;
    while let Some(name) = reader.next()? {
        let value = reader.next()?.ok_or(RowError::Damaged)?;
        if name == field {
            return Ok(Value::Bytes(value.to_vec()));
        }
    }
    Ok(Value::None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::packed::{Encoding, Strings};

    #[test]
    fn patterns_have_a_star_and_perhaps_a_field() {
        let key = |before, after, field| Pattern::Key {
            before,
            after,
            field,
        };
        let cases: [(&[u8], Pattern<'_>); 12] = [
            (b"#", Pattern::Element),
            (b"##", Pattern::Constant),
            (b"nosort", Pattern::Constant),
            (b"", Pattern::Constant),
            (b"a\0*", Pattern::Constant),
            (b"*", key(b"", b"", None)),
            (b"a*b*", key(b"a", b"b*", None)),
            (b"a*b->f", key(b"a", b"b", Some(b"f"))),
            (b"*->", key(b"", b"->", None)),
            (b"->*", key(b"->", b"", None)),
            (b"*->a->b", key(b"", b"", Some(b"a->b"))),
            (b"*x\0->f", key(b"", b"x\0->f", None)),
        ];
        for (text, pattern) in cases {
            assert_eq!(Pattern::parse(text), pattern, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_field_is_found_among_fields_only() {
        let mut strings = Strings::default();
        ["a", "b", "b", "c"]
            .iter()
            .for_each(|of| strings.push(of.as_bytes()));
        let mut payload = Vec::new();
        strings.encode(Encoding::Listpack, &mut payload);
        let found = |field: &[u8]| field_of(&payload, field).unwrap().into_bytes();
        assert!(matches!(found(b"b"), Ok(Some(value)) if value == b"c"));
        assert!(matches!(found(b"c"), Ok(None)));
        payload.pop();
        assert!(field_of(&payload, b"b").is_err());
    }
}
