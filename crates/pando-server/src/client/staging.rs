//! Arguments that are too long to be held: written to chunks of the store as they
//! arrive (decision 029).
//!
//! ```text
//!            begin              bytes               line end
//!   (none) ---------> arriving ---------> durable ------------> staged
//!                        | refused, failed                        | command ends, connection goes
//!                        v                                        v
//!                   thrown away -------> refusal              blocks are free, unless a key has it
//! ```
//!
//! What cannot be kept is thrown away as it arrives, and the command is refused when it is whole:
//! the connection stays in step. Nothing here waits: a sink that has no room stops the reading of
//! its connection, and wakes it.

use std::task::Waker;

use pandodb::nonblocking::ValueSink;
use pandodb::{Db, LargeValue};

/// A value that is an argument of a command.
#[derive(Debug)]
pub(crate) struct Staged {
    /// Place of the command in its EXEC; 0 outside.
    pub(crate) place: usize,
    /// Which argument it is.
    pub(crate) index: usize,
    pub(crate) value: LargeValue,
}

/// Arguments of the command that arrives, as far as they are too long to be held.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    /// Boxed: most connections never have one.
    arriving: Option<Box<Arriving>>,
    values: Vec<Staged>,
    /// Why the command cannot run.
    refusal: Option<String>,
}

#[derive(Debug)]
struct Arriving {
    index: usize,
    /// Where its bytes begin, counted from the beginning of the command.
    at: usize,
    /// Bytes that have not arrived.
    left: usize,
    /// `None`: they are thrown away.
    sink: Option<ValueSink>,
}

/// Where an argument goes.
#[derive(Debug)]
pub(crate) enum Destination {
    Store,
    /// Nowhere; with the reason, unless the command is going to be refused or ignored by itself.
    Nowhere(Option<String>),
}

/// What became of the bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub(crate) enum Intake {
    /// The argument is complete.
    Whole,
    /// More bytes must come.
    Hungry,
    /// The waker is woken when it goes on.
    Waits,
}

impl Staging {
    /// True while an argument arrives.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving.is_some()
    }

    /// Where the bytes of the argument that arrives begin, counted from the beginning of the
    /// command.
    pub(crate) fn begins_at(&self) -> Option<usize> {
        self.arriving.as_ref().map(|arriving| arriving.at)
    }

    /// True if no argument of the command is too long to be held.
    pub(crate) fn is_empty(&self) -> bool {
        self.arriving.is_none() && self.values.is_empty() && self.refusal.is_none()
    }

    /// What has arrived of the running command.
    pub(crate) fn values(&self) -> &[Staged] {
        &self.values
    }

    pub(crate) fn values_mut(&mut self) -> &mut Vec<Staged> {
        &mut self.values
    }

    /// Why the command that has arrived cannot run, if so.
    pub(crate) fn refusal(&mut self) -> Option<String> {
        self.refusal.take()
    }

    /// Forgets the command; what no key has is freed.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.arriving = None;
        if !self.values.is_empty() {
            self.values = Vec::new();
        }
        self.refusal = None;
    }

    /// Argument `index`, of `bytes` bytes, begins at `at`.
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

    /// The first reason is told.
    fn refuse(&mut self, text: String) {
        self.refusal.get_or_insert(text);
    }

    /// Takes bytes of the argument that arrives out of `input`, where they begin at `from`.
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
        // What was written is given back; the rest is thrown away.
        arriving.sink = None;
        self.refuse(format!("ERR {error}"));
        self.take_some(bytes, taken, waker)
    }
}
