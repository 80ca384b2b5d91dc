//! The context of one read, in which a device may leave notes for the reader (decision 014).
//!
//! A reader has one context for all its reads, and resets it before each one: a device that uses it
//! finds nothing of the previous read, and a device that does not use it pays nothing. A context is
//! a few plain words: nothing is allocated, locked or measured for it unless a device does so.

use std::fmt;

use pando_sync::time::Duration;

/// Notes about one read. The device writes them; the reader clears them and adds them to errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadContext {
    /// Number of requests that the read has taken so far.
    pub requests: u32,
    /// Time that the device has measured, if it measures time.
    pub elapsed: Option<Duration>,
    /// Any other note.
    pub remark: Option<&'static str>,
}

impl ReadContext {
    /// Restores the initial state.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns whether the context is in the initial state.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// Writes nothing in the initial state, and otherwise a text to append to that of an error.
impl fmt::Display for ReadContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.requests > 0 {
            write!(f, " ({} requests)", self.requests)?;
        }
        if let Some(elapsed) = self.elapsed {
            write!(f, " (after {} ms)", elapsed.as_millis())?;
        }
        match self.remark {
            Some(remark) => write!(f, " ({remark})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context of an earlier read leaves no trace in the errors of the next one.
    #[test]
    fn a_reset_context_says_nothing() {
        let mut context = ReadContext::default();
        assert!(context.is_clean() && context.to_string().is_empty());
        context.requests = 2;
        context.remark = Some("slow");
        assert!(!context.is_clean());
        assert_eq!(context.to_string(), " (2 requests) (slow)");
        context.reset();
        assert_eq!(context, ReadContext::default());
    }
}
