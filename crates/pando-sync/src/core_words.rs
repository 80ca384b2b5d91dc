//! Counters by core: rows of words that are only ever added to.
//!
//! Each processor has a row on lines of its own. Where the kernel restarts sequences (`rseq`), an
//! addition is a plain one to the row of the processor; without, an atomic one to the row of the
//! core that the thread is on, or of the thread where that is not known. Behind plain rows there is
//! a last one: it takes, atomically, the additions of threads and processors that are strange to
//! the first way.
//!
//! Invariants: a word is written by plain additions or by atomic ones, never by both; no addition
//! is lost; a sum that one thread reads twice does not become smaller. It orders nothing else.
#![expect(unsafe_code, reason = "promises the words that sequences add to")]

use crate::WordArena;
use crate::atomic::{AtomicU64, Ordering};
use crate::core_local::{core_count, core_id};
use crate::rseq::{self, row_bytes};

/// Most rows of processors; further ones share the last row.
const ROWS_MAX: usize = 1024;
// The limit of plain rows stays below 2^31.
const _: () = assert!(ROWS_MAX * rseq::ROW_BYTES_MAX < 1 << 31);

/// How additions are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addition {
    /// By restartable sequences where they exist, else atomically.
    Best,
    /// Atomically, to the row of the core: for comparison.
    Atomic,
}

/// `WORDS` counters, in a row for each core.
#[derive(Debug)]
pub struct CoreWords<const WORDS: usize> {
    arena: WordArena,
    /// How plain additions are made, if they are. Constant.
    area: Option<rseq::Area>,
    /// Bytes of the rows of plain additions. Constant.
    plain_bytes: u32,
}

impl<const WORDS: usize> CoreWords<WORDS> {
    /// Words from a row to the next.
    const STRIDE: usize = row_bytes(WORDS) / size_of::<u64>();

    /// All at zero; their memory is named `structure` in the audit. Memory is used only for pages
    /// that were added to.
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
            // only behind them. They are fewer than 2^31, as asserted above.
            let done = unsafe { rseq::add::<WORDS>(area, first, self.plain_bytes, count) };
            if done {
                return;
            }
        }
        self.add_atomically(word, count);
    }

    /// To a row that has no plain additions.
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

    /// Rows, all kinds of them together: what a sum reads.
    pub fn rows(&self) -> usize {
        self.arena.len() / Self::STRIDE
    }

    /// True if additions are plain ones, but for those of strange threads.
    pub fn is_plain(&self) -> bool {
        self.area.is_some()
    }

    /// Bytes of all rows: the most memory that this comes to use.
    pub fn bytes(&self) -> usize {
        self.rows() * row_bytes(WORDS)
    }

    /// The sum of word `word` over all rows. Wraps.
    ///
    /// # Panics
    /// When there is no such word.
    pub fn sum(&self, word: usize) -> u64 {
        // Relaxed: as of some moment during the call. A row's word only grows, and loads of one
        // word by one thread do not go back.
        let of_row = |row: usize| self.row(row)[word].load(Ordering::Relaxed);
        (0..self.rows()).map(of_row).fold(0, u64::wrapping_add)
    }

    /// Adds each word's sum to the element of `sums` with its number, as far as there are such.
    pub fn add_sums(&self, sums: &mut [u64]) {
        for row in 0..self.rows() {
            for (sum, word) in sums.iter_mut().zip(self.row(row)) {
                // Relaxed: as in sum.
                *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
            }
        }
    }

    pub(crate) fn row(&self, row: usize) -> &[AtomicU64] {
        self.arena.words(row * Self::STRIDE, WORDS)
    }
}

/// Processors that this machine may have, within bounds.
fn processors() -> usize {
    static COUNT: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *COUNT.get_or_init(|| {
        let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible");
        // The last number of a list such as `0-3,8-11`.
        let last = possible.ok().and_then(|list| {
            let last = list.trim_end().rsplit(['-', ',']).next()?;
            last.parse::<usize>().ok()
        });
        // Where nobody says, numbers may have gaps; rows that nobody uses cost no memory.
        last.map_or(256, |last| last.saturating_add(1))
            .clamp(1, ROWS_MAX)
    })
}
