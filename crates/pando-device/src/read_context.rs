//! What a reader and a device may tell each other about one read (decision 014).
//!
//! A reader has one context for all its reads, and puts it back to its initial state before each:
//! a device that looks at it finds nothing there of the read before, and one that does not look
//! pays nothing. A context is a few plain words: nothing is allocated, locked or measured for it
//! unless a device chooses to.

use std::fmt;

use pando_sync::time::Duration;

/// Notes about one read. The device writes, the reader clears, and tells of them in errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadContext {
    /// Requests that the read has taken so far.
    pub requests: u32,
    /// Time that the device has measured, if it measures.
    pub elapsed: Option<Duration>,
    /// What else there is to say.
    pub remark: Option<&'static str>,
}

impl ReadContext {
    /// Back to the initial state.
    #[inline]
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// True in the initial state.
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

/// Nothing in the initial state; else a text that goes behind that of an error.
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
