//! Commands that make a part of a value: for values that are too long for one payload.

use crate::data::keyspace::ValueType;
use crate::data::packed::strings_of_one;
use crate::data::stream_id::{ID_TEXT_BYTES, StreamId};
use crate::data::stream_rows::PendingRow;
use crate::dump::{Elements, GroupValue, Refused, StreamValue, Value};
use crate::dump::{decode, stream_version, strings_of};

/// Elements in one command: a loop of the server is held for a fraction of a millisecond.
const ELEMENTS_MAX: usize = 256;

/// Part of a value, as it stands in a file.
#[derive(Debug, Clone, Copy)]
pub enum Part<'p> {
    /// Some of the elements of a collection, as a value of its own: the byte of its kind, their
    /// number, and they.
    Elements(&'p [u8]),
    /// Some of the listpacks of a stream, each behind the ID of its first entry.
    Entries(&'p [u8]),
    /// What is behind the listpacks of a stream of this kind.
    Rest(u8, &'p [u8]),
}

/// Takes the words of a command. False: no more of them are wanted.
type Take<'t> = &'t mut dyn FnMut(&[&[u8]]) -> bool;

/// Makes the commands that add `part` to the value of `key`, and gives them to `take` one after the
/// other, while that wants more. Elements go behind those that are there already. At most `most`
/// bytes of memory are taken by what is expanded. Returns false if the part is damaged or longer;
/// then nothing was given to `take`, else whether it wanted all.
///
/// A pending entry that the stream has no longer is not pending afterwards, and the times at which
/// consumers were seen are new.
pub fn commands(part: Part<'_>, key: &[u8], most: usize, take: Take<'_>) -> bool {
    let given: Result<bool, Refused> = match part {
        Part::Elements(value) => decode(value, most).and_then(|value| match value {
            Value::Collection(elements) => Ok(add(&elements, key, take)),
            _ => Err(Refused::Damaged),
        }),
        Part::Entries(bytes) => {
            StreamValue::of_entries(bytes, most).map(|stream| add_entries(&stream, key, take))
        }
        Part::Rest(kind, bytes) => stream_version(kind)
            .ok_or(Refused::Damaged)
            .and_then(|version| StreamValue::of_rest(bytes, version, most))
            .map(|stream| complete(&stream, key, take)),
    };
    given.unwrap_or(false)
}

fn add(elements: &Elements, key: &[u8], take: Take<'_>) -> bool {
    let command: &[u8] = match elements.value_type {
        ValueType::List => b"RPUSH",
        ValueType::Set => b"SADD",
        ValueType::SortedSet => b"ZADD",
        _ => b"HSET",
    };
    let of_one = strings_of_one(elements.value_type);
    let strings: Vec<&[u8]> = elements.strings.iter().collect();
    for some in strings.chunks(ELEMENTS_MAX * of_one) {
        let mut words = vec![command, key];
        let scores: Vec<String>;
        if elements.value_type == ValueType::SortedSet {
            scores = some.iter().skip(1).step_by(2).map(score_text).collect();
            let members = some.iter().step_by(2);
            words.extend(
                scores
                    .iter()
                    .zip(members)
                    .flat_map(|(score, member)| [score.as_bytes(), member]),
            );
        } else {
            words.extend(some);
        }
        if !take(&words) {
            return false;
        }
    }
    strings.iter().step_by(of_one).all(|field| {
        let deadline = elements.deadlines.of(field);
        let deadline = deadline.map(|deadline| deadline.to_string());
        deadline.is_none_or(|deadline| {
            let deadline = deadline.as_bytes();
            take(&[b"HPEXPIREAT", key, deadline, b"FIELDS", b"1", field])
        })
    })
}

/// Returns the text of a score of 8 bytes, which is read as the same number.
fn score_text(bytes: &&[u8]) -> String {
    let bits = bytes.first_chunk().copied().unwrap_or_default();
    format!("{:e}", f64::from_le_bytes(bits))
}

fn add_entries(stream: &StreamValue, key: &[u8], take: Take<'_>) -> bool {
    stream.entries.iter().all(|(id, row)| {
        let mut text = [0; ID_TEXT_BYTES];
        let mut words: Vec<&[u8]> = vec![b"XADD", key, id.text(&mut text)];
        words.extend(strings_of(row));
        take(&words)
    })
}

fn complete(stream: &StreamValue, key: &[u8], take: Take<'_>) -> bool {
    // XSETID of Redis 7.0 makes last IDs that are smaller, but takes none with both.
    let max_deleted = text(stream.max_deleted.min(stream.last));
    let last = text(stream.last);
    let added = stream.added.to_string();
    let set = [
        b"XSETID",
        key,
        last.as_bytes(),
        b"ENTRIESADDED",
        added.as_bytes(),
        b"MAXDELETEDID",
        max_deleted.as_bytes(),
    ];
    take(&set)
        && stream
            .groups
            .iter()
            .all(|group| add_group(group, key, take))
}

fn add_group(group: &GroupValue, key: &[u8], take: Take<'_>) -> bool {
    let name = &group.row.name[..];
    let (last, read) = (text(group.row.last), group.row.read.to_string());
    let (last, read) = (last.as_bytes(), read.as_bytes());
    let mut goes_on = take(&[b"XGROUP", b"CREATE", key, name, last, b"ENTRIESREAD", read]);
    for consumer in &group.consumers {
        goes_on = goes_on && take(&[b"XGROUP", b"CREATECONSUMER", key, name, &consumer.name]);
    }
    goes_on
        && group
            .pending
            .iter()
            .all(|one| add_pending(group, one, key, take))
}

fn add_pending(
    group: &GroupValue,
    (id, row): &(StreamId, PendingRow),
    key: &[u8],
    take: Take<'_>,
) -> bool {
    // The numbers of consumers follow each other.
    let first = group.consumers.first().map_or(0, |of| of.number);
    let place = row
        .consumer
        .checked_sub(first)
        .and_then(|place| usize::try_from(place).ok());
    let Some(consumer) = place.and_then(|place| group.consumers.get(place)) else {
        return true;
    };
    let (id, delivered, times) = (text(*id), row.delivered.to_string(), row.times.to_string());
    take(&[
        b"XCLAIM",
        key,
        &group.row.name,
        &consumer.name,
        b"0",
        id.as_bytes(),
        b"TIME",
        delivered.as_bytes(),
        b"RETRYCOUNT",
        times.as_bytes(),
        b"FORCE",
        b"JUSTID",
    ])
}

fn text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.sequence)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(part: Part<'_>, most: usize) -> (bool, Vec<String>) {
        let mut all = Vec::new();
        let is_done = commands(part, b"k", most, &mut |words| {
            let words: Vec<_> = words.iter().map(|word| word.escape_ascii()).collect();
            let words: Vec<_> = words.into_iter().map(|word| word.to_string()).collect();
            all.push(words.join(" "));
            true
        });
        (is_done, all)
    }

    #[test]
    fn elements_are_added_in_their_order() {
        for (value, expected) in [
            (&b"\x01\x02\x01a\xc0\xf9"[..], "RPUSH k a -7"),
            (b"\x02\x01\x01a", "SADD k a"),
            (b"\x04\x01\x01f\0", "HSET k f "),
            (
                b"\x05\x02\x01a\x9a\x99\x99\x99\x99\x99\xb9\x3f\x01b\0\0\0\0\0\0\xf0\xff",
                "ZADD k 1e-1 a -inf b",
            ),
        ] {
            let found = words_of(Part::Elements(value), 1 << 20);
            assert_eq!(found, (true, vec![expected.to_owned()]));
            assert_eq!(words_of(Part::Elements(value), 0), (false, vec![]));
            let cut = &value[..value.len() - 1];
            assert_eq!(words_of(Part::Elements(cut), 1 << 20), (false, vec![]));
        }
        let string = words_of(Part::Elements(b"\0\x01a"), 1 << 20);
        assert_eq!(string, (false, vec![]));
    }

    #[test]
    fn commands_are_short_and_end_when_they_are_not_wanted() {
        let mut value = vec![1, 0x43, 0xe8];
        value.extend(b"\x01a".repeat(1000));
        let mut lengths = Vec::new();
        let is_done = commands(Part::Elements(&value), b"k", 1 << 20, &mut |words| {
            lengths.push(words.len() - 2);
            lengths.len() < 3
        });
        assert_eq!((is_done, lengths), (false, vec![256; 3]));
        let found = words_of(Part::Elements(&value), 1 << 20);
        assert!(found.0 && found.1.len() == 4);
    }

    #[test]
    fn what_is_behind_the_entries_of_a_stream_is_set_again() {
        // Length 2, last ID 5-2, first 1-1, highest deleted 3-0, 7 were added; a group at 5-2 that
        // has read 7, with 5-2 pending, delivered at 1 for the second time, of consumer `c`; and
        // consumer `d`.
        let rest = b"\x02\x05\x02\x01\x01\x03\x00\x07\x01\x01g\x05\x02\x07\x01\
            \0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\0\x02\
            \x02\x01c\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x02\
            \x01d\0\0\0\0\0\0\0\0\0";
        let expected = [
            "XSETID k 5-2 ENTRIESADDED 7 MAXDELETEDID 3-0",
            "XGROUP CREATE k g 5-2 ENTRIESREAD 7",
            "XGROUP CREATECONSUMER k g c",
            "XGROUP CREATECONSUMER k g d",
            "XCLAIM k g c 0 5-2 TIME 1 RETRYCOUNT 2 FORCE JUSTID",
        ];
        let (is_done, found) = words_of(Part::Rest(19, rest), 1 << 20);
        assert!(is_done);
        assert_eq!(found, expected);
        for end in 0..rest.len() {
            let cut = words_of(Part::Rest(19, &rest[..end]), 1 << 20);
            assert_eq!(cut, (false, vec![]), "{end}");
        }
        assert_eq!(words_of(Part::Rest(4, rest), 1 << 20), (false, vec![]));
        // The last ID was set back, behind the highest deleted one.
        let back = words_of(
            Part::Rest(19, b"\x01\x05\x02\x01\x01\x06\x01\x07\0"),
            1 << 20,
        );
        let expected = "XSETID k 5-2 ENTRIESADDED 7 MAXDELETEDID 5-2".to_owned();
        assert_eq!(back, (true, vec![expected]));
    }
}
