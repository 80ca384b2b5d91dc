//! The leaves of many keys, read before anybody looks into them.

use pando_format::PageId;
use pando_pool::{Pool, Restart};
use pando_tree::Tree;

use crate::error::Result;

/// Levels of a tree, with some to spare.
const LEVELS_MAX: usize = 12;

/// Has `fetch` read the leaves of `keys`, and what is missing above them, all of a level at the
/// same time; it is told of leaves that are in memory, too. Some may be missing all the same, if
/// pages leave memory or change meanwhile. It does not count as a use of the leaves: what is read
/// once goes first when memory is short.
///
/// # Errors
/// Those of `fetch`.
pub(crate) fn fetch_leaves(
    (pool, tree): (&Pool, Tree),
    keys: &[&[u8]],
    mut fetch: impl FnMut(&[PageId]) -> Result<()>,
) -> Result<()> {
    let mut pages = Vec::new();
    for _ in 0..LEVELS_MAX {
        pages.clear();
        let mut has_leaves = true;
        for key in keys {
            match tree.try_leaf_of(pool, key) {
                Ok(leaf) => pages.push(leaf),
                Err(Restart::Fault(page) | Restart::Damaged(page, _)) => {
                    has_leaves = false;
                    pages.push(page);
                }
                Err(_) => {}
            }
        }
        pages.sort_unstable();
        pages.dedup();
        fetch(&pages)?;
        if has_leaves {
            break;
        }
    }
    Ok(())
}
