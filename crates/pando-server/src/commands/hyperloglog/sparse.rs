//! Registers as runs of the same value, in the encoding of Redis (described in the comments of its
//! `hyperloglog.c`): `00` and six bits of a length of zeros, `01` and fourteen bits of one, `1`,
//! five bits of a value and two of its length. Lengths and values are stored less one.
//!
//! A change splits and joins runs in the order in which Redis does, so the bytes are the same.

use super::hash::REGISTERS;

/// Greatest value that a run can have.
const VALUE_MAX: u8 = 32;
/// Longest run of a value.
const VALUE_LENGTH_MAX: usize = 4;
/// Longest run of zeros in one byte.
const ZEROS_MAX: usize = 64;
/// Number of runs that are looked at for neighbours to join, after a change.
const JOINED: usize = 5;

/// Registers beside each other that have one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Run {
    /// 0 for zeros.
    pub(super) value: u8,
    pub(super) length: usize,
    /// Number of bytes that it is encoded in.
    pub(super) bytes: usize,
}

impl Run {
    /// Decodes the first run of `bytes`; `None` if there is no whole one.
    pub(super) fn first(bytes: &[u8]) -> Option<Self> {
        let first = *bytes.first()?;
        let low = usize::from(first & 0x3f);
        Some(match first >> 6 {
            0 => Self {
                value: 0,
                length: low + 1,
                bytes: 1,
            },
            1 => Self {
                value: 0,
                length: (low << 8 | usize::from(*bytes.get(1)?)) + 1,
                bytes: 2,
            },
            _ => Self {
                value: (first >> 2 & 0x1f) + 1,
                length: usize::from(first & 3) + 1,
                bytes: 1,
            },
        })
    }

    fn is_zeros(self) -> bool {
        self.value == 0
    }
}

/// Appends a run of `length` registers with `value`, if there are any.
fn push(out: &mut Vec<u8>, value: u8, length: usize) {
    let byte = |number: usize| u8::try_from(number & 0xff).unwrap_or(0);
    let Some(less) = length.checked_sub(1) else {
        return;
    };
    match value {
        0 if length <= ZEROS_MAX => out.push(byte(less)),
        0 => out.extend([0x40 | byte(less >> 8), byte(less)]),
        value => out.push(0x80 | (value - 1) << 2 | byte(less)),
    }
}

/// Returns registers that are all zero.
pub(super) fn empty() -> Vec<u8> {
    let mut runs = Vec::new();
    push(&mut runs, 0, REGISTERS);
    runs
}

/// Iterates over the runs; ends early if the rest is damaged.
pub(super) fn runs(bytes: &[u8]) -> impl Iterator<Item = Run> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let run = Run::first(rest)?;
        rest = &rest[run.bytes..];
        Some(run)
    })
}

/// What came of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Raised {
    /// The register has the value, or a greater one.
    Already,
    Changed,
    /// It has no place in this encoding; nothing was changed.
    NeedsDense,
    /// The register is not among the runs.
    Corrupt,
}

/// Raises register `index` to `value`, unless the runs have more than `bytes_max` bytes then.
pub(super) fn raise(runs: &mut Vec<u8>, index: usize, value: u8, bytes_max: usize) -> Raised {
    if value > VALUE_MAX {
        return Raised::NeedsDense;
    }
    let (mut at, mut first, mut previous) = (0, 0, 0);
    let run = loop {
        let Some(run) = Run::first(&runs[at..]) else {
            return Raised::Corrupt;
        };
        if index < first + run.length {
            break run;
        }
        previous = at;
        at += run.bytes;
        first += run.length;
    };
    if run.value >= value {
        return Raised::Already;
    }
    let mut new = Vec::with_capacity(5);
    push(&mut new, run.value, index - first);
    push(&mut new, value, 1);
    push(&mut new, run.value, first + run.length - 1 - index);
    // A longer run of zeros of one register is replaced like any other, though it never grows.
    let grown = runs.len() + new.len() - run.bytes;
    if grown > runs.len() && grown > bytes_max {
        return Raised::NeedsDense;
    }
    runs.splice(at..at + run.bytes, new);
    join(runs, previous);
    Raised::Changed
}

/// Joins neighbours of the same value, from the run at `at` on.
fn join(runs: &mut Vec<u8>, mut at: usize) {
    for _ in 0..JOINED {
        let Some(run) = Run::first(&runs[at..]) else {
            return;
        };
        let next = Run::first(&runs[at + run.bytes..]).filter(|_| !run.is_zeros());
        match next {
            Some(next)
                if next.value == run.value && run.length + next.length <= VALUE_LENGTH_MAX =>
            {
                let mut joined = Vec::with_capacity(1);
                push(&mut joined, run.value, run.length + next.length);
                runs.splice(at..at + 2, joined);
            }
            _ => at += run.bytes,
        }
    }
}
