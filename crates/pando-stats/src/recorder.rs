//! A histogram that all threads add to, core by core.

use pando_sync::{Addition, CoreWords};

use crate::histogram::Histogram;
use crate::scale::{BUCKETS, bucket_of};

/// Number of words: one for each bucket, and the sum after them.
const WORDS: usize = BUCKETS + 1;
/// Under model checkers nothing is recorded.
const IS_MODEL: bool = cfg!(any(pando_loom, pando_shuttle));

/// Counts by bucket for each core.
#[derive(Debug)]
pub struct Recorder {
    words: Option<CoreWords<WORDS>>,
}

impl Recorder {
    /// Makes a recorder without values.
    ///
    /// # Errors
    /// When the system refuses address space. Only buckets that are used cost memory, 4 KiB for
    /// each 512 adjacent ones of a core.
    pub fn new(addition: Addition) -> std::io::Result<Self> {
        let words = match IS_MODEL {
            true => None,
            false => Some(CoreWords::new("histograms", addition)?),
        };
        Ok(Self { words })
    }

    /// Adds a value.
    #[inline]
    pub fn record(&self, value: u64) {
        if let Some(words) = &self.words {
            words.add(bucket_of(value), 1);
            words.add(BUCKETS, value);
        }
    }

    /// Adds a value `times` times.
    #[inline]
    pub fn record_many(&self, value: u64, times: u64) {
        if let Some(words) = &self.words {
            words.add(bucket_of(value), times);
            words.add(BUCKETS, value.wrapping_mul(times));
        }
    }

    /// Returns all values up to now. Reads the rows of all cores.
    pub fn histogram(&self) -> Histogram {
        let mut sums = vec![0; WORDS];
        if let Some(words) = &self.words {
            words.add_sums(&mut sums);
        }
        let sum = sums.pop().expect("the sum stands behind the buckets");
        Histogram::of(sums, sum)
    }

    /// Returns the maximum memory use in bytes.
    pub fn bytes_max(&self) -> usize {
        self.words.as_ref().map_or(0, CoreWords::bytes)
    }
}

#[cfg(all(test, not(any(pando_loom, pando_shuttle))))]
mod tests {
    use super::*;
    use pando_sync::{Arc, thread};

    #[test]
    fn values_of_all_threads_are_there_once() {
        for addition in [Addition::Best, Addition::Atomic] {
            let recorder = Arc::new(Recorder::new(addition).unwrap());
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    let recorder = recorder.clone();
                    thread::spawn(move || {
                        (0..20_000).for_each(|value| recorder.record(value << number));
                    })
                })
                .collect();
            threads.into_iter().for_each(|one| one.join().unwrap());
            recorder.record_many(77, 5);
            let mut twin = Histogram::new();
            (0..5).for_each(|_| twin.add(77));
            for number in 0..4 {
                (0..20_000).for_each(|value| twin.add(value << number));
            }
            assert_eq!(recorder.histogram(), twin);
            assert!(recorder.bytes_max() >= WORDS * 8);
        }
    }
}
