//! Error replies by their first word. Each loop has its own counts; INFO reads those of all loops.

use std::collections::BTreeMap;

use pando_sync::Mutex;

/// Maximum number of error codes that are counted separately, as clients can make up codes (through
/// scripts, for example).
const ERROR_CODES_MAX: usize = 128;

/// Bytes of an error reply among which its code ends, as in Redis: codes are kept.
const CODE_END_MAX: usize = 32;

/// Returns the first word of an error reply, without the leading `-`; `ERR` if it has one word
/// only, or a long one.
pub(crate) fn code_of(reply: &[u8]) -> &[u8] {
    let mut head = reply.iter().take(CODE_END_MAX);
    let end = head.position(|byte| matches!(byte, b' ' | b'\r'));
    let end = end.filter(|end| reply[*end] == b' ');
    end.and_then(|end| reply.get(1..end)).unwrap_or(b"ERR")
}

/// Counts of errors.
#[derive(Debug, Default)]
pub(crate) struct ErrorCodes {
    /// Guarded by its lock, held for one look-up or a walk over a bounded number.
    counts: Mutex<BTreeMap<String, u64>>,
}

impl ErrorCodes {
    /// Counts an error with the code `code`.
    pub(crate) fn add(&self, code: &[u8]) {
        let code = String::from_utf8_lossy(code);
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(code.as_ref()) {
            *count += 1;
        } else if counts.len() < ERROR_CODES_MAX {
            counts.insert(code.into_owned(), 1);
        }
    }

    /// Adds these counts to `sums`.
    pub(crate) fn add_to(&self, sums: &mut BTreeMap<String, u64>) {
        for (code, count) in self.counts.lock().iter() {
            *sums.entry(code.clone()).or_insert(0) += count;
        }
    }

    /// Resets all counts to zero.
    pub(crate) fn reset(&self) {
        self.counts.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_first_words_and_no_more_than_a_bounded_number() {
        assert_eq!(code_of(b"-ERR no\r\n"), b"ERR");
        assert_eq!(code_of(b"-NOAUTH x"), b"NOAUTH");
        // One word is no code, nor is one that would take whatever memory a script says.
        for reply in ["", "-", "-NOAUTH\r\n", "-NOAUTH\r\n+OK x", " "] {
            assert_eq!(code_of(reply.as_bytes()), b"ERR", "{reply:?}");
        }
        let longest = format!("-{} x", "C".repeat(30));
        assert_eq!(code_of(longest.as_bytes()).len(), 30);
        assert_eq!(code_of(format!("-{} x", "C".repeat(31)).as_bytes()), b"ERR");
        let errors = ErrorCodes::default();
        for number in 0..1000_u32 {
            errors.add(format!("CODE{number}").as_bytes());
            errors.add(b"CODE0");
        }
        let mut sums = BTreeMap::new();
        errors.add_to(&mut sums);
        assert_eq!((sums.len(), sums["CODE0"]), (ERROR_CODES_MAX, 1001));
        errors.reset();
        sums.clear();
        errors.add_to(&mut sums);
        assert!(sums.is_empty());
    }
}
