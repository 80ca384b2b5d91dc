//! Postconditions of changes of several nodes, asserted while all of them are still latched.
//!
//! Such changes are rare, so the assertions are in every build. They only check what the change has
//! written: the change has rejected damaged pages before.

use pando_format::{Lsn, PageId};

use crate::node::search::Spot;
use crate::node::view::Node;
use crate::word::Word;

/// Asserts that two neighbours that were laid out anew have `entries` entries together, and that
/// `separator` separates their keys.
pub(crate) fn assert_apart<W: Word>(
    left: &Node<'_, W>,
    right: &Node<'_, W>,
    separator: &[u8],
    entries: usize,
) {
    assert!(left.count() > 0, "a left side without entries");
    assert!(right.count() > 0, "a right side without entries");
    assert_eq!(
        left.count() + right.count(),
        entries,
        "entries are lost, or there twice"
    );
    assert_eq!(left.kind(), right.kind(), "neighbours of two kinds");
    assert_eq!(left.level(), right.level(), "neighbours of two levels");
    assert_eq!(left.tree(), right.tree(), "neighbours of two trees");
    let behind = Spot {
        index: left.count(),
        exact: false,
    };
    assert_eq!(
        left.find(separator),
        behind,
        "a key of the left side is not below the separator"
    );
    assert_eq!(
        right.find(separator).index,
        right.first_key(),
        "a key of the right side is below the separator"
    );
    assert_whole(left);
    assert_whole(right);
}

/// Asserts that a node that was laid out anew has only records in its heap, and that its slots end
/// before them.
pub(crate) fn assert_whole<W: Word>(node: &Node<'_, W>) {
    assert!(
        node.slots_end() <= node.heap_start(),
        "slots that overlap the heap"
    );
    assert_eq!(node.dead_words(), 0, "laid out anew, with dead words");
}

/// Asserts that the children `index` - 1 and `index` of `parent` are `left` and `right`, of
/// `level`, and that `separator` separates them.
pub(crate) fn assert_parent<W: Word>(
    parent: &Node<'_, W>,
    index: usize,
    (left, right): (PageId, PageId),
    separator: &[u8],
    level: u8,
) {
    assert!(parent.is_inner(), "a parent that is a leaf");
    assert_eq!(parent.level(), level + 1, "levels are not one apart");
    assert_ne!(left, right, "a page that is there twice");
    assert_ne!(parent.page(), left, "a parent of itself");
    assert_ne!(parent.page(), right, "a parent of itself");
    assert_eq!(parent.child(index - 1).page(), left, "another left child");
    assert_eq!(parent.child(index).page(), right, "another right child");
    assert_eq!(
        parent.find(separator),
        Spot { index, exact: true },
        "the separator is not where it leads to"
    );
}

/// Asserts that a node that took over keys of others has at least their marks.
pub(crate) fn assert_inherits<W: Word>(node: &Node<'_, W>, marks: (Lsn, Lsn)) {
    assert!(node.lsn_max() >= marks.0, "a newest batch is forgotten");
    assert!(
        node.multi_lsn() >= marks.1,
        "a newest batch of many writes is forgotten"
    );
}
