//! Encoded commands, and what their answers must be.

use std::io::Write;

use pando_format::cast::low_u32;
use pando_resp::{Answer, parse_integer};

use super::options::{RespOptions, RespWorkload};
use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::phase::Done;
use crate::random::Random;
use crate::values::Values;

/// Number of SETs in a hundred commands of `mixed`.
const MIXED_SETS: u64 = 10;
/// Prefix of the key of a counter, so that it differs from the keys of values.
const COUNTER: u8 = b'c';

/// State that all threads share.
#[derive(Debug)]
pub(super) struct RespPlan<'a> {
    pub(super) options: &'a RespOptions,
    /// `None`: each key is set once.
    pub(super) workload: Option<RespWorkload>,
    pub(super) keys: Keys,
    pub(super) values: &'a Values,
}

impl RespPlan<'_> {
    pub(super) fn name(&self) -> &'static str {
        self.workload.map_or("filling", RespWorkload::name)
    }

    /// Returns the number of keys of a command.
    pub(super) fn command_ops(&self) -> u64 {
        match self.workload {
            Some(RespWorkload::Mget) => self.options.batch,
            _ => 1,
        }
    }

    pub(super) fn wrong(&self, what: String) -> Error {
        Error::Wrong {
            workload: self.name(),
            what,
        }
    }
}

/// A command whose answer has not arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Get,
    Set,
    Incr,
    /// With the number of its keys.
    Mget(u64),
}

impl Sent {
    pub(super) fn ops(self) -> u64 {
        match self {
            Self::Mget(keys) => keys,
            Self::Get | Self::Set | Self::Incr => 1,
        }
    }
}

/// Writes commands; owns the buffers for that.
#[derive(Debug)]
pub(super) struct Commands<'a> {
    plan: &'a RespPlan<'a>,
    random: Random,
    /// Numbers that a fill has still to write.
    fill: std::ops::Range<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Commands<'a> {
    pub(super) fn new(plan: &'a RespPlan<'a>, fill: std::ops::Range<u64>, thread: usize) -> Self {
        let kind = plan.workload.map_or(0, |workload| workload as u64 + 1);
        let stream = kind << 32 | thread as u64;
        Self {
            plan,
            random: Random::new(plan.options.seed, stream),
            fill,
            key: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Appends the next command, for at most `limit` keys, to `out`, and the numbers of its keys to
    /// `numbers`. `None`: nothing is left to do.
    pub(super) fn write(
        &mut self,
        limit: u64,
        out: &mut Vec<u8>,
        numbers: &mut impl Extend<u64>,
    ) -> Option<Sent> {
        let num = self.plan.options.num;
        let workload = match self.plan.workload {
            None => {
                let number = self.fill.next()?;
                numbers.extend([number]);
                self.write_set(number, 0, out);
                return Some(Sent::Set);
            }
            Some(RespWorkload::Mixed) => match self.random.below(100) < MIXED_SETS {
                true => RespWorkload::Set,
                false => RespWorkload::Get,
            },
            Some(workload) => workload,
        };
        let number = self.random.below(num);
        if workload == RespWorkload::Mget {
            let keys = self.plan.options.batch.min(limit);
            array(out, keys + 1);
            bulk(out, b"MGET");
            for _ in 0..keys {
                let number = self.random.below(num);
                numbers.extend([number]);
                self.plan.keys.write(number, &mut self.key);
                bulk(out, &self.key);
            }
            return Some(Sent::Mget(keys));
        }
        numbers.extend([number]);
        match workload {
            RespWorkload::Set => {
                let version = low_u32(self.random.next());
                self.write_set(number, version, out);
                Some(Sent::Set)
            }
            RespWorkload::Incr => {
                self.plan.keys.write(number, &mut self.key);
                self.key.insert(0, COUNTER);
                array(out, 2);
                bulk(out, b"INCR");
                bulk(out, &self.key);
                Some(Sent::Incr)
            }
            _ => {
                self.plan.keys.write(number, &mut self.key);
                array(out, 2);
                bulk(out, b"GET");
                bulk(out, &self.key);
                Some(Sent::Get)
            }
        }
    }

    fn write_set(&mut self, number: u64, version: u32, out: &mut Vec<u8>) {
        self.plan.keys.write(number, &mut self.key);
        self.plan.values.write(number, version, &mut self.value);
        array(out, 3);
        bulk(out, b"SET");
        bulk(out, &self.key);
        bulk(out, &self.value);
    }

    /// Checks the complete answer `bytes` to `sent`, whose keys are next in `numbers`.
    pub(super) fn check(
        &mut self,
        sent: Sent,
        bytes: &[u8],
        mut numbers: impl Iterator<Item = u64>,
    ) -> Result<Done> {
        let plan = self.plan;
        let mut number = || numbers.next().expect("each command has left its numbers");
        let unexpected = || {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]);
            plan.wrong(format!("{sent:?} was answered by {text:?}"))
        };
        let mut found = 0;
        match sent {
            Sent::Set => {
                number();
                if bytes != b"+OK\r\n" {
                    return Err(unexpected());
                }
            }
            Sent::Incr => {
                number();
                let digits = bytes.strip_prefix(b":").map(<[u8]>::trim_ascii_end);
                // At least this command has incremented it.
                if digits.and_then(parse_integer).is_none_or(|count| count < 1) {
                    return Err(unexpected());
                }
                found = 1;
            }
            Sent::Get => {
                let (value, _) = read_bulk(bytes).ok_or_else(unexpected)?;
                found = self.check_value(number(), value)?;
            }
            Sent::Mget(keys) => {
                let head = format!("*{keys}\r\n");
                let mut rest = bytes.strip_prefix(head.as_bytes()).ok_or_else(unexpected)?;
                for _ in 0..keys {
                    let (value, more) = read_bulk(rest).ok_or_else(unexpected)?;
                    found += self.check_value(number(), value)?;
                    rest = more;
                }
            }
        }
        Ok(Done {
            ops: sent.ops(),
            found,
        })
    }

    fn check_value(&mut self, number: u64, value: Option<&[u8]>) -> Result<u64> {
        let Some(value) = value else {
            return Ok(0);
        };
        match self.plan.values.check(number, value, &mut self.value) {
            Some(_) => Ok(1),
            None => Err(self.plan.wrong(format!(
                "key {number} has a value of {} bytes that was not written for it (a server filled \
                 with other --value-size or --seed also reads so)",
                value.len()
            ))),
        }
    }
}

fn array(out: &mut Vec<u8>, count: u64) {
    write!(out, "*{count}\r\n").expect("a vector takes all");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    write!(out, "${}\r\n", bytes.len()).expect("a vector takes all");
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// The bulk string that whole answers begin with, null as None, and what follows.
fn read_bulk(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    let len = Answer::length(bytes).ok()??;
    let (answer, rest) = bytes.split_at(len);
    let answer = answer.strip_prefix(b"$")?;
    let end = answer.iter().position(|byte| *byte == b'\r')?;
    if &answer[..end] == b"-1" {
        return Some((None, rest));
    }
    Some((Some(answer.get(end + 2..answer.len() - 2)?), rest))
}

#[cfg(test)]
mod tests {
    use super::{Commands, RespPlan, Sent, read_bulk};
    use crate::resp::options::{RespOptions, RespWorkload};
    use crate::values::Values;

    #[test]
    fn bulk_strings_and_nulls_are_read() {
        let bytes = b"$3\r\na\rb\r\n$-1\r\n+OK\r\n";
        let (value, rest) = read_bulk(bytes).unwrap();
        assert_eq!(value, Some(&b"a\rb"[..]));
        let (value, rest) = read_bulk(rest).unwrap();
        assert_eq!((value, rest), (None, &b"+OK\r\n"[..]));
        assert!(read_bulk(rest).is_none());
        assert!(read_bulk(b"$0\r\n\r\n").unwrap().0.unwrap().is_empty());
    }

    #[test]
    fn wrong_answers_are_noticed() {
        let options = RespOptions {
            num: 10,
            value_bytes: 20,
            ..RespOptions::default()
        };
        let values = Values::new(20, 1.0, options.seed);
        let plan = RespPlan {
            options: &options,
            workload: Some(RespWorkload::Get),
            keys: options.keys(),
            values: &values,
        };
        let mut commands = Commands::new(&plan, 0..0, 0);
        let mut value = Vec::new();
        values.write(7, 5, &mut value);
        let mut answer = b"$20\r\n".to_vec();
        answer.extend_from_slice(&value);
        answer.extend_from_slice(b"\r\n");
        let mut check = |sent, bytes: &[u8], number: u64| {
            let done = commands.check(sent, bytes, [number, 8].into_iter());
            done.map(|done| (done.ops, done.found)).ok()
        };
        assert_eq!(check(Sent::Get, &answer, 7), Some((1, 1)));
        assert_eq!(check(Sent::Get, &answer, 6), None);
        assert_eq!(check(Sent::Get, b"$-1\r\n", 7), Some((1, 0)));
        assert_eq!(check(Sent::Get, b"-ERR no\r\n", 7), None);
        assert_eq!(check(Sent::Set, b"+OK\r\n", 7), Some((1, 0)));
        assert_eq!(check(Sent::Set, b"+QUEUED\r\n", 7), None);
        assert_eq!(check(Sent::Incr, b":12\r\n", 7), Some((1, 1)));
        assert_eq!(check(Sent::Incr, b":0\r\n", 7), None);
        let mut many = b"*2\r\n".to_vec();
        many.extend_from_slice(&answer);
        many.extend_from_slice(b"$-1\r\n");
        assert_eq!(check(Sent::Mget(2), &many, 7), Some((2, 1)));
        assert_eq!(check(Sent::Mget(3), &many, 7), None);
        assert_eq!(check(Sent::Mget(2), &many, 9), None);
    }
}
