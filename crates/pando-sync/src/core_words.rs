//! Counters by core: rows of words that only grow.
//!
//! Each processor has a row on cache lines of its own. Where the kernel supports restartable
//! sequences (`rseq`), an addition is a plain one to the row of the processor. Without them it is
//! an atomic one to the row of the core that the thread is on, or to a row of the thread where the
//! core is not known. After the rows for plain additions comes a last row, which takes, atomically,
//! the additions of unregistered threads and unknown processors.
//!
//! Invariants: a word is written by plain additions or by atomic ones, never by both; no addition
//! is lost; a sum that one thread reads twice does not become smaller. Additions order nothing
//! else.
#![expect(unsafe_code, reason = "promises the words that sequences add to")]

use crate::WordArena;
use crate::atomic::{AtomicU64, Ordering};
use crate::core_local::{core_count, core_id};
use crate::rseq::{self, row_bytes};

/// Maximum number of rows of processors. Further processors share the last row.
const ROWS_MAX: usize = 1024;
// The limit of plain rows stays below 2^31.
const _: () = assert!(ROWS_MAX * rseq::ROW_BYTES_MAX < 1 << 31);

/// How additions are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addition {
    /// By restartable sequences where they exist, otherwise atomically.
    Best,
    /// Atomically, to the row of the core; for comparisons.
    Atomic,
}

/// `WORDS` counters, in a row for each core.
#[derive(Debug)]
pub struct CoreWords<const WORDS: usize> {
    arena: WordArena,
    /// The rseq area for plain additions, None if additions are atomic. Constant.
    area: Option<rseq::Area>,
    /// Length in bytes of the rows for plain additions. Constant.
    plain_bytes: u32,
}

impl<const WORDS: usize> CoreWords<WORDS> {
    /// Distance of two rows in words.
    const STRIDE: usize = row_bytes(WORDS) / size_of::<u64>();

    /// Makes counters that are all 0. Their memory is named `structure` in the audit. Only pages
    /// that were written to cost memory.
    ///
    /// # Errors
    /// When the system refuses the mapping.
    pub fn new(structure: &'static str, addition: Addition) -> std::io::Result<Self> {
        let area = match addition {
            Addition::Best => rseq::area(),
            Addition::Atomic => None,
        };
        let (plain, rows) = match area {
            Some(_) => (processors(), processors() + 1),
            None => (0, core_count()),
        };
        let plain_bytes = u32::try_from(plain * row_bytes(WORDS));
        Ok(Self {
            arena: WordArena::new(structure, rows * Self::STRIDE, false)?,
            area,
            plain_bytes: plain_bytes.expect("rows and their number are bounded"),
        })
    }

    /// Adds `count` to word `word`.
    ///
    /// # Panics
    /// When there is no such word.
    #[inline]
    pub fn add(&self, word: usize, count: u64) {
        assert!(word < WORDS, "word outside of the row");
        crate::audit::read(&self.plain_bytes);
        if let Some(area) = self.area {
            let first = self.arena.base().wrapping_add(word);
            // SAFETY: `plain_bytes` are whole rows at the beginning of the arena, which lives as
            // long as self; `word` is one of a row's words. The other function that adds writes
            // only after them. They are fewer than 2^31, as asserted above.
            let done = unsafe { rseq::add::<WORDS>(area, first, self.plain_bytes, count) };
            if done {
                return;
            }
        }
        self.add_atomically(word, count);
    }

    /// Adds to a row that has no plain additions.
    #[cfg_attr(not(any(pando_loom, pando_shuttle, pando_audit)), cold)]
    fn add_atomically(&self, word: usize, count: u64) {
        let row = match self.area {
            Some(_) => self.rows() - 1,
            None => core_id() % self.rows(),
        };
        // Relaxed: counters order nothing. An atomic addition, not load and store: another thread
        // may run on this core between the two.
        self.row(row)[word].fetch_add(count, Ordering::Relaxed);
    }

    /// Returns the number of rows of all kinds, which a sum reads.
    pub fn rows(&self) -> usize {
        self.arena.len() / Self::STRIDE
    }

    /// Returns whether additions are plain, except for those of unregistered threads.
    pub fn is_plain(&self) -> bool {
        self.area.is_some()
    }

    /// Returns the length of all rows in bytes, which is the maximum memory use.
    pub fn bytes(&self) -> usize {
        self.rows() * row_bytes(WORDS)
    }

    /// Returns the sum of word `word` over all rows. Wraps around.
    ///
    /// # Panics
    /// When there is no such word.
    pub fn sum(&self, word: usize) -> u64 {
        // Relaxed: the sum is of some moment during the call. A row's word only grows, and loads of
        // one word by one thread do not go back.
        let of_row = |row: usize| self.row(row)[word].load(Ordering::Relaxed);
        (0..self.rows()).map(of_row).fold(0, u64::wrapping_add)
    }

    /// Adds the sum of each word to the element of `sums` with the same index, if there is one.
    pub fn add_sums(&self, sums: &mut [u64]) {
        for row in 0..self.rows() {
            for (sum, word) in sums.iter_mut().zip(self.row(row)) {
                // Relaxed: as in sum.
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            }
        }
    }

    /// Returns the words of a row, which threads of any core may change.
    pub(crate) fn row(&self, row: usize) -> &[AtomicU64] {
        self.arena.words(row * Self::STRIDE, WORDS)
    }
}

/// Returns the number of processors that this machine may have, within bounds.
fn processors() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        // The last number of a list such as `0-3,8-11`.
        let last = possible.ok().and_then(|list| {
            let last = list.trim_end().rsplit(['-', ',']).next()?;
            last.parse::<usize>().ok()
        });
        // Without that list, assume many processors: numbers may have gaps, and unused rows cost no
        // memory.
        last.map_or(256, |last| last.saturating_add(1))
            .clamp(1, ROWS_MAX)
    })
}
