//! Error replies by their first word. Each loop has its own counts; INFO reads those of all loops.

use std::collections::BTreeMap;

use pando_sync::Mutex;

/// Maximum number of error codes that are counted separately, as clients can make up codes (through
/// scripts, for example).
const ERROR_CODES_MAX: usize = 128;

/// Returns the first word of an error reply, without the leading `-`.
pub(crate) fn code_of(reply: &[u8]) -> &[u8] {
    let end = reply.iter().position(|byte| matches!(byte, b' ' | b'\r'));
    &reply[1.min(reply.len())..end.unwrap_or(reply.len())]
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
        assert_eq!(code_of(b"-NOAUTH\r\n"), b"NOAUTH");
        assert_eq!(code_of(b""), b"");
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
