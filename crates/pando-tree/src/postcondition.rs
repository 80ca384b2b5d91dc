//! What is true behind a change of several nodes, asserted while all of them are still latched.
//!
//! Each is rare, so the assertions are in every build. They rest on what the change has written and
//! on nothing else: what a damaged page may hold was refused before.

use pando_format::{Lsn, PageId};

use crate::node::search::Spot;
use crate::node::view::Node;
use crate::word::Word;

/// Two neighbours that were laid out anew have `entries` together, and `separator` lies between
/// their keys.
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

/// A node that was laid out anew has nothing in its heap but records, and its slots end in front of
/// them.
pub(crate) fn assert_whole<W: Word>(node: &Node<'_, W>) {
    assert!(
        node.slots_end() <= node.heap_start(),
        "slots that overlap the heap"
    );
    assert_eq!(node.dead_words(), 0, "laid out anew, with dead words");
}

/// Children `index` - 1 and `index` of `parent` are `left` and `right`, of `level`, and
/// `separator` tells them apart.
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

/// A node that took over what others covered has their marks, at least.
pub(crate) fn assert_inherits<W: Word>(node: &Node<'_, W>, marks: (Lsn, Lsn)) {
    assert!(node.lsn_max() >= marks.0, "a newest batch is forgotten");
    assert!(
        node.multi_lsn() >= marks.1,
        "a newest batch of many writes is forgotten"
    );
}
