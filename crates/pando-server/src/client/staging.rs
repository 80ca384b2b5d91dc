//! Arguments that are too long to be held in memory: they are written to chunks of the store as
//! they arrive (decision 029).
//!
//! ```text
//!            begin              bytes               line end
//!   (none) ---------> arriving ---------> durable ------------> staged
//!                        | refused, failed                        | command ends, connection goes
//!                        v                                        v
//!                    discarded ---------> refusal          blocks are freed, unless a key has them
//! ```
//!
//! An argument that cannot be stored is discarded as it arrives, and its command is refused once it
//! is complete, so that the connection stays in step. Nothing here blocks: a sink that has no room
//! stops the reading of its connection, and wakes it later.

use std::task::Waker;

use pandodb::nonblocking::ValueSink;
use pandodb::{Db, LargeValue};

/// A staged argument of a command.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Place of its command in the EXEC; 0 outside.
    pub(crate) place: usize,
    /// Index of the argument in its command.
    pub(crate) index: usize,
    /// No key has it: dropping it frees its space.
    pub(crate) value: LargeValue,
}

/// Those arguments of the arriving command that are too long to be held in memory.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Boxed, since most connections never have one.
    arriving: Option<Box<Arriving>>,
    values: Vec<Staged>,
    /// Why the command cannot run, if so.
    refusal: Option<String>,
}

#[derive(Debug)]
struct Arriving {
    index: usize,
    /// Offset of its first byte from the beginning of the command.
    at: usize,
    /// Number of bytes that have not arrived.
    left: usize,
    /// Where the bytes go; `None`: they are discarded.
    sink: Option<ValueSink>,
}

/// Where an argument goes.
#[derive(Debug)]
pub(crate) enum Destination {
    Store,
    /// It is discarded. The reason is given unless the command will be refused or ignored anyway.
    Nowhere(Option<String>),
}

/// Result of taking the bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Intake {
    /// The argument is complete.
    Whole,
    /// More bytes must arrive.
    Hungry,
    /// The sink has no room; the waker is woken once it can continue.
    Waits,
}

impl Staging {
    /// Returns true while an argument arrives.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Returns the offset of the arriving argument's first byte from the beginning of the command.
    pub(crate) fn begins_at(&self) -> Option<usize> {
        self.arriving.as_ref().map(|arriving| arriving.at)
    }

    /// Returns true if no argument of the command is too long to be held.
    pub(crate) fn is_empty(&self) -> bool {
        self.arriving.is_none() && self.values.is_empty() && self.refusal.is_none()
    }

    /// Returns the staged arguments of the running command.
    pub(crate) fn values(&self) -> &[Staged] {
        &self.values
    }

    /// The same, for the queue of MULTI, which takes them over.
    pub(crate) fn values_mut(&mut self) -> &mut Vec<Staged> {
        &mut self.values
    }

    /// Takes the reason why the arrived command cannot run, if there is one.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    /// Drops the state of the command; frees the values that no key has.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.arriving = None;
        if !self.values.is_empty() {
            self.values = Vec::new();
        }
        self.refusal = None;
    }

    /// Begins argument `index`, of `bytes` bytes, at offset `at` of the command.
    pub(crate) fn begin(
        &mut self,
        (index, at, bytes): (usize, usize, usize),
        destination: Destination,
        db: Option<&Db>,
    ) {
        let sink = match (destination, db) {
            (Destination::Store, Some(db)) => match ValueSink::new(db, bytes as u64) {
                Ok(sink) => Some(sink),
                Err(error) => {
                    self.refuse(format!("ERR {error}"));
                    None
                }
            },
            (Destination::Nowhere(Some(text)), _) => {
                self.refuse(text);
                None
            }
            (Destination::Nowhere(None) | Destination::Store, _) => None,
        };
        self.arriving = Some(Box::new(Arriving {
            index,
            at,
            left: bytes,
            sink,
        }));
    }

    /// Records why the command cannot run; the first reason is kept.
    pub(crate) fn refuse(&mut self, text: String) {
        self.refusal.get_or_insert(text);
    }

    /// Removes bytes of the arriving argument from `input`, where they begin at `from`.
    pub(crate) fn take(&mut self, input: &mut Vec<u8>, from: usize, waker: &Waker) -> Intake {
        let mut taken = 0;
        let intake = self.take_some(&input[from..], &mut taken, waker);
        input.drain(from..from + taken);
        if intake == Intake::Whole {
            self.arriving = None;
        }
        intake
    }

    fn take_some(&mut self, bytes: &[u8], taken: &mut usize, waker: &Waker) -> Intake {
        let arriving = self.arriving.as_deref_mut();
        let arriving = arriving.expect("an argument arrives");
        let error = loop {
            let Some(sink) = &mut arriving.sink else {
                let count = arriving.left.min(bytes.len() - *taken);
                *taken += count;
                arriving.left -= count;
                return match arriving.left {
                    0 => Intake::Whole,
                    _ => Intake::Hungry,
                };
            };
            if arriving.left == 0 {
                match sink.finish(waker) {
                    Ok(None) => return Intake::Waits,
                    Ok(Some(value)) => {
                        self.values.push(Staged {
                            place: 0,
                            index: arriving.index,
                            value,
                        });
                        return Intake::Whole;
                    }
                    Err(error) => break error,
                }
            }
            let rest = &bytes[*taken..];
            let rest = &rest[..rest.len().min(arriving.left)];
            if rest.is_empty() {
                return Intake::Hungry;
            }
            match sink.write(rest, waker) {
                Ok(0) => return Intake::Waits,
                Ok(count) => {
                    *taken += count;
                    arriving.left -= count;
                }
                Err(error) => break error,
            }
        };
        // Dropping the sink frees the chunks that were written; the rest is discarded as it
        // arrives.
        arriving.sink = None;
        self.refuse(format!("ERR {error}"));
        self.take_some(bytes, taken, waker)
    }
}
