//! Collections that are too long for one reply: their elements are read some at a time. All replies
//! are of one moment, so there are as many as their collection says it has.

use pando_resp::Answer;

use super::exporter::{Exporter, Missing, text};

/// Kinds of values of a file, one element after the other.
const LIST: u8 = 1;
const SET: u8 = 2;
const HASH: u8 = 4;
/// Scores are doubles of eight bytes.
const SORTED_SET: u8 = 5;
/// Deadlines of fields are counted from the first one; 0 is none.
const HASH_TIMED: u8 = 24;
const VERSION_OF_TIMED: u16 = 12;
/// Elements that are asked for at once.
const ELEMENTS: u64 = 200;

type Pieced<T> = Result<T, Missing>;

impl Exporter {
    /// Writes a key with its value. Returns false, and has written nothing, if its type has no
    /// pieces.
    pub(super) fn pieces(&mut self, key: (&[u8], Option<u64>)) -> Pieced<bool> {
        let (name, deadline) = key;
        let answer = self.asked(&[b"TYPE", name])?;
        let (kind, length): (u8, &[u8]) = match text(&answer).as_deref() {
            Some("list") => (LIST, b"LLEN"),
            Some("set") => (SET, b"SCARD"),
            Some("hash") => (HASH, b"HLEN"),
            Some("zset") => (SORTED_SET, b"ZCARD"),
            _ => return Ok(false),
        };
        let length = match self.asked(&[length, name])? {
            Answer::Integer(length) => u64::try_from(length).unwrap_or(0),
            _ => return Err(refused("its length is no number")),
        };
        let first = match kind {
            HASH => self.first_deadline(name)?,
            _ => None,
        };
        match first {
            None => self.file.begin_key(name, kind, deadline)?,
            Some(first) => {
                self.file.begin_key(name, HASH_TIMED, deadline)?;
                self.file.needs(VERSION_OF_TIMED);
                self.file.put(&first.to_le_bytes())?;
            }
        }
        self.file.put_length(length)?;
        let written = match kind {
            LIST => self.list(name, length)?,
            SORTED_SET => self.sorted_set(name, length)?,
            SET => self.scanned(name, b"SSCAN", |exporter, elements| {
                elements
                    .iter()
                    .try_for_each(|element| exporter.file.put_string(element))?;
                Ok(elements.len() as u64)
            })?,
            _ => self.scanned(name, b"HSCAN", |exporter, parts| {
                exporter.fields(name, first, &parts)?;
                Ok(parts.len() as u64 / 2)
            })?,
        };
        match written == length {
            true => Ok(true),
            false => Err(refused(&format!(
                "it has {length} elements, and showed {written}"
            ))),
        }
    }

    fn list(&mut self, name: &[u8], length: u64) -> Pieced<u64> {
        let mut written = 0;
        while written < length {
            let (from, to) = (written.to_string(), (written + ELEMENTS - 1).to_string());
            let elements = self.strings(&[b"LRANGE", name, from.as_bytes(), to.as_bytes()])?;
            if elements.is_empty() {
                break;
            }
            for element in &elements {
                self.file.put_string(element)?;
            }
            written += elements.len() as u64;
        }
        Ok(written)
    }

    fn sorted_set(&mut self, name: &[u8], length: u64) -> Pieced<u64> {
        let mut written = 0;
        while written < length {
            let (from, to) = (written.to_string(), (written + ELEMENTS - 1).to_string());
            let words = [
                b"ZRANGE",
                name,
                from.as_bytes(),
                to.as_bytes(),
                b"WITHSCORES",
            ];
            let parts = self.strings(&words)?;
            if parts.is_empty() {
                break;
            }
            for pair in parts.chunks(2) {
                let score = pair.get(1).and_then(|score| str::from_utf8(score).ok());
                let score = score.and_then(|score| score.parse::<f64>().ok());
                let score = score.ok_or_else(|| refused("a score is no number"))?;
                self.file.put_string(&pair[0])?;
                self.file.put(&score.to_le_bytes())?;
            }
            written += parts.len() as u64 / 2;
        }
        Ok(written)
    }

    /// Hands all that a scan shows to `put`, some at a time; returns the sum of what that returns.
    fn scanned(
        &mut self,
        name: &[u8],
        scan: &[u8],
        mut put: impl FnMut(&mut Self, Vec<Vec<u8>>) -> Pieced<u64>,
    ) -> Pieced<u64> {
        let (mut cursor, mut sum) = ("0".to_owned(), 0);
        loop {
            let count = ELEMENTS.to_string();
            let words = [scan, name, cursor.as_bytes(), b"COUNT", count.as_bytes()];
            let Answer::Array(parts) = self.asked(&words)? else {
                return Err(refused("a reply of a scan has another form than expected"));
            };
            let [next, elements] = &parts[..] else {
                return Err(refused("a reply of a scan has another form than expected"));
            };
            sum += put(self, strings(elements)?)?;
            cursor = text(next).ok_or_else(|| refused("a cursor is no text"))?;
            if cursor == "0" {
                return Ok(sum);
            }
        }
    }

    /// Writes fields and values of a hash, with the deadlines of the fields if there is a `first`.
    fn fields(&mut self, name: &[u8], first: Option<u64>, parts: &[Vec<u8>]) -> Pieced<()> {
        let fields: Vec<&[u8]> = parts.iter().step_by(2).map(|field| &field[..]).collect();
        let deadlines = match first {
            Some(_) => self.deadlines(name, &fields)?,
            None => Vec::new(),
        };
        for (at, pair) in parts.chunks(2).enumerate() {
            if let Some(first) = first {
                let deadline = deadlines.get(at).copied().flatten();
                let behind = deadline.map_or(0, |deadline| deadline.saturating_sub(first) + 1);
                self.file.put_length(behind)?;
            }
            for part in pair {
                self.file.put_string(part)?;
            }
        }
        Ok(())
    }

    /// Returns the first deadline of the fields of a hash.
    fn first_deadline(&mut self, name: &[u8]) -> Pieced<Option<u64>> {
        let mut first: Option<u64> = None;
        self.scanned(name, b"HSCAN", |exporter, parts| {
            let fields: Vec<&[u8]> = parts.iter().step_by(2).map(|field| &field[..]).collect();
            let deadlines = exporter.deadlines(name, &fields)?;
            let least = deadlines.into_iter().flatten().min();
            first = [first, least].into_iter().flatten().min();
            Ok(0)
        })?;
        Ok(first)
    }

    /// Returns the deadlines of these fields, in milliseconds.
    fn deadlines(&mut self, name: &[u8], fields: &[&[u8]]) -> Pieced<Vec<Option<u64>>> {
        if fields.is_empty() {
            return Ok(Vec::new());
        }
        let count = fields.len().to_string();
        let mut words = vec![b"HPEXPIRETIME", name, b"FIELDS", count.as_bytes()];
        words.extend(fields);
        let Answer::Array(deadlines) = self.asked(&words)? else {
            return Err(refused("deadlines of fields are no list"));
        };
        let deadlines = deadlines.iter().map(|deadline| match deadline {
            Answer::Integer(deadline) => Ok(u64::try_from(*deadline).ok()),
            _ => Err(refused("a deadline is no number")),
        });
        deadlines.collect()
    }

    fn strings(&mut self, words: &[&[u8]]) -> Pieced<Vec<Vec<u8>>> {
        let answer = self.asked(words)?;
        strings(&answer)
    }

    /// Sends a command about one key. An error is one of that key.
    fn asked(&mut self, words: &[&[u8]]) -> Pieced<Answer> {
        match self.call(words)? {
            Answer::Error(text) => Err(refused(&text)),
            answer => Ok(answer),
        }
    }
}

fn strings(answer: &Answer) -> Pieced<Vec<Vec<u8>>> {
    let Answer::Array(parts) = answer else {
        return Err(refused("elements are no list"));
    };
    let strings = parts.iter().map(|part| match part {
        Answer::Bulk(bytes) => Ok(bytes.clone()),
        _ => Err(refused("an element is no string")),
    });
    strings.collect()
}

fn refused(why: &str) -> Missing {
    Missing::Refused(why.to_owned())
}
