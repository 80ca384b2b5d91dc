//! A tree whose pages are all in memory, filled in random order, and reads of it that are checked.

use pando_format::{Compression, Lsn, PageSize, TreeId};
use pando_pool::{Attempt, CheckImages, Content, Marks, Pool, PoolOptions, Restart};
use pando_stats::Statistics;
use pando_sync::gate::GateGuard;
use pando_sync::{Arc, thread};
use pando_tree::{Scratch, Tree, check_page, prepare_image};

use crate::error::{Error, Result};
use crate::keys::Keys;
use crate::options::KeyKind;
use crate::random::mix;

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 100;
/// Bytes that an entry takes in a leaf, about.
pub(super) const ENTRY_BYTES: u64 = 128;
/// Frames beside those of the leaves, at least what a pool must have.
const FRAMES_SPARE: usize = 256;

/// Goes into the gate of `pool`, which nobody closes here.
pub(super) fn enter(pool: &Pool) -> GateGuard<'_> {
    pool.gate().try_enter().expect("nothing here ends an epoch")
}

/// A pool, and the tree in it.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) pool: Pool,
    pub(super) tree: Tree,
    pub(super) keys: Keys,
    /// Number of keys.
    pub(super) num: u64,
}

impl Rig {
    /// An empty tree with room for `num` keys.
    pub(super) fn empty(num: u64, page_bytes: usize, seed: u64) -> Result<Self> {
        let refused = |what: &str| Error::option("page-size", what);
        let page_size = PageSize::new(page_bytes).ok_or_else(|| refused("is no size of a page"))?;
        // Leaves that were filled in random order are half full at least, but for the first ones.
        let pages = 2 * num * ENTRY_BYTES / page_bytes as u64;
        let pages = usize::try_from(pages).map_err(|_| refused("so many pages"))? + FRAMES_SPARE;
        let pool = Pool::new(PoolOptions {
            page_size,
            frames: pages,
            page_ids_max: pages,
            images: 2,
            block_bytes: 4096.min(page_bytes),
            compression: Compression::None,
            prepare_image,
            check_page,
            check_images: CheckImages::Rebuilt,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .map_err(|source| Error::Io {
            during: "mapping memory".to_owned(),
            source,
        })?;
        let tree =
            Tree::create(&pool, &pool.apply_token(&enter(&pool)), TreeId(1)).map_err(refusal)?;
        let root = retry(|| pool.exclusive(tree.root))?;
        root.wire();
        drop(root);
        Ok(Self {
            pool,
            tree,
            keys: Keys::new(KeyKind::Random, KEY_BYTES, seed),
            num,
        })
    }

    /// A tree with all of `num` keys.
    pub(super) fn filled(num: u64, page_bytes: usize, seed: u64) -> Result<Self> {
        let rig = Self::empty(num, page_bytes, seed)?;
        let (mut scratch, mut key) = (Scratch::new(), Vec::new());
        for number in 0..num {
            rig.keys.write(number, &mut key);
            rig.insert(&key, &value_of(number), &mut scratch)?;
        }
        Ok(rig)
    }

    pub(super) fn insert(&self, key: &[u8], value: &[u8], scratch: &mut Scratch) -> Result<()> {
        let marks = Marks {
            lsn: Lsn(1),
            multi_lsn: Lsn(0),
        };
        let (pool, tree) = (&self.pool, &self.tree);
        retry(|| {
            tree.try_insert(
                pool,
                &pool.apply_token(&enter(pool)),
                marks,
                key,
                value,
                scratch,
            )
        })?;
        retry(|| scratch.try_finish(pool, &pool.apply_token(&enter(pool))))
    }
}

/// The value of key `number`: words that all say which one it is.
pub(super) fn value_of(number: u64) -> [u8; VALUE_BYTES] {
    let word = mix(number).to_le_bytes();
    std::array::from_fn(|index| word[index % word.len()])
}

/// True if `value` is that of key `number`, to the last byte.
#[inline]
pub(super) fn is_value_of(number: u64, value: &[u8]) -> bool {
    let word = mix(number).to_le_bytes();
    let (chunks, rest) = value.as_chunks::<8>();
    value.len() == VALUE_BYTES
        && chunks.iter().all(|chunk| *chunk == word)
        && word.starts_with(rest)
}

/// Tries again after conflicts; everything is in memory, so nothing else is waited for.
pub(super) fn retry<T>(mut attempt: impl FnMut() -> Attempt<T>) -> Result<T> {
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(Restart::Conflict) => thread::yield_now(),
            Err(other) => return Err(refusal(other)),
        }
    }
}

fn refusal(restart: Restart) -> Error {
    Error::Wrong {
        workload: "a tree in memory",
        what: format!("{restart:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_that_of_one_key() {
        let value = value_of(7);
        assert!(is_value_of(7, &value));
        assert!(!is_value_of(8, &value) && !is_value_of(7, &value[..96]));
        for byte in [0, 50, VALUE_BYTES - 1] {
            let mut other = value;
            other[byte] ^= 1;
            assert!(!is_value_of(7, &other), "byte {byte}");
        }
    }
}
