//! Deadlines of the fields of a hash (decision 086): in memory, and in a packed hash.
//!
//! A packed hash of which a field has a deadline is of form 2: its strings are field, value and
//! deadline in turns. A deadline has 8 bytes, milliseconds since 1970 in little-endian; the string
//! is empty if the field has none.

use std::collections::HashMap;

use super::keyspace::{FieldTimes, RowError, has_ended};
use super::packed::{Encoding, Form, Strings};

/// Deadlines by field, of those that have one. It may name fields that are gone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Deadlines(HashMap<Vec<u8>, u64>);

impl Deadlines {
    /// Returns true if no field has a deadline.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the deadline of `field`.
    pub(crate) fn of(&self, field: &[u8]) -> Option<u64> {
        match self.0.is_empty() {
            true => None,
            false => self.0.get(field).copied(),
        }
    }

    /// Returns the first deadline that has not passed at `now_ms`.
    pub(crate) fn next(&self, now_ms: u64) -> Option<u64> {
        let left = self.0.values().filter(|of| !has_ended(**of, now_ms));
        left.min().copied()
    }

    /// Sets the deadline of `field`.
    pub(crate) fn set(&mut self, field: &[u8], deadline: u64) {
        self.0.insert(field.to_vec(), deadline);
    }

    /// Removes the deadline of `field`.
    pub(crate) fn clear(&mut self, field: &[u8]) {
        if !self.0.is_empty() {
            self.0.remove(field);
        }
    }

    /// Removes the fields that have expired at `now_ms` from `strings`, field and value in turns.
    pub(crate) fn drop_expired(&mut self, strings: &mut Strings, now_ms: u64) -> bool {
        if !self.0.values().any(|deadline| has_ended(*deadline, now_ms)) {
            return false;
        }
        let kept: Vec<bool> = (0..strings.len())
            .step_by(2)
            .map(|place| self.of(strings.at(place)))
            .map(|deadline| deadline.is_none_or(|of| !has_ended(of, now_ms)))
            .collect();
        strings.retain(|place| kept[place / 2]);
        self.0.retain(|_, deadline| !has_ended(*deadline, now_ms));
        true
    }

    /// Returns the first and the last deadline of the fields in `strings`; `None` if none has one.
    pub(crate) fn times(&self, strings: &Strings) -> Option<FieldTimes> {
        if self.0.is_empty() {
            return None;
        }
        let (mut first, mut last) = (u64::MAX, 0);
        for place in (0..strings.len()).step_by(2) {
            let deadline = self.of(strings.at(place)).unwrap_or(u64::MAX);
            first = first.min(deadline);
            last = last.max(deadline);
        }
        (first < u64::MAX).then_some(FieldTimes { first, last })
    }
}

/// Decodes the payload of a packed hash, which may be any bytes.
pub(crate) fn decode(payload: &[u8]) -> Result<(Strings, Deadlines), RowError> {
    let mut deadlines = Deadlines::default();
    if !Form::Timed.is_of(payload) {
        return Ok((Strings::decode(payload, 2)?, deadlines));
    }
    let mut strings = Strings::decode_form(payload, Form::Timed, 3)?;
    for place in (0..strings.len()).step_by(3) {
        match strings.at(place + 2) {
            [] => {}
            bytes => {
                let bytes = bytes.try_into().map_err(|_| RowError::Damaged)?;
                deadlines.set(strings.at(place), u64::from_le_bytes(bytes));
            }
        }
    }
    strings.retain(|place| place % 3 != 2);
    Ok((strings, deadlines))
}

/// Replaces `out` by the payload of a packed hash; returns the times of its fields.
pub(crate) fn encode(
    (strings, deadlines): (&Strings, &Deadlines),
    encoding: Encoding,
    out: &mut Vec<u8>,
) -> Option<FieldTimes> {
    let Some(times) = deadlines.times(strings) else {
        strings.encode(encoding, out);
        return None;
    };
    let mut timed = Strings::default();
    for place in (0..strings.len()).step_by(2) {
        let field = strings.at(place);
        timed.push(field);
        timed.push(strings.at(place + 1));
        match deadlines.of(field) {
            Some(deadline) => timed.push(&deadline.to_le_bytes()),
            None => timed.push(b""),
        }
    }
    timed.encode_form(encoding, Form::Timed, out);
    Some(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fields_and_deadlines_come_back_until_they_expire(
            fields in prop::collection::btree_map(
                prop::collection::vec(any::<u8>(), 0..9), prop::option::of(0..20_u64), 0..9),
            now_ms in 0..20_u64,
        ) {
            let (mut strings, mut deadlines) = (Strings::default(), Deadlines::default());
            for (field, deadline) in &fields {
                strings.push(field);
                strings.push(b"v");
                deadline.iter().for_each(|deadline| deadlines.set(field, *deadline));
            }
            let mut payload = Vec::new();
            let times = encode((&strings, &deadlines), Encoding::Listpack, &mut payload);
            let first = fields.values().flatten().min().copied();
            prop_assert_eq!(times.map(|times| times.first), first);
            let last = fields.values().map(|of| of.unwrap_or(u64::MAX)).max();
            prop_assert_eq!(times.map(|times| times.last), last.filter(|_| first.is_some()));
            let (mut again, mut same) = decode(&payload).unwrap();
            prop_assert_eq!(&same, &deadlines);
            prop_assert!(again.iter().eq(strings.iter()));
            let next = fields.values().flatten().filter(|of| **of >= now_ms).min();
            prop_assert_eq!(same.next(now_ms), next.copied());
            same.drop_expired(&mut again, now_ms);
            let lives = |of: &Option<u64>| of.is_none_or(|of| of >= now_ms);
            let left = fields.iter().filter(|(_, of)| lives(of)).map(|(field, _)| &field[..]);
            prop_assert!(again.iter().step_by(2).eq(left));
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(
            head in prop::collection::vec(0..5_u8, 0..4),
            tail in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = decode(&[head, tail].concat());
        }
    }
}
