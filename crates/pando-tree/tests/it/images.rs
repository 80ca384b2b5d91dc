//! Only images of pages that were laid out anew are checked before they are written.

use std::collections::BTreeSet;

use pando_format::{Extent, FrameIndex, Lsn, PageEncoder, PageId};
use pando_pool::{CheckImages, Image, Marks};
use pando_tree::Packed;

use crate::rig::{Rig, Session, enter, retry};

/// Four such values fit into a leaf.
const VALUE: [u8; 900] = [7; 900];

fn refuse(_page: &[u8]) -> Result<(), &'static str> {
    Err("is looked at")
}

fn images(rig: &Rig, mut each: impl FnMut(Image)) {
    for frame in (0..rig.pool.frames() as u32).map(FrameIndex) {
        if let Some(image) = rig.pool.image_of(frame, None) {
            each(image);
        }
    }
}

/// Returns a tree of the keys 0 to `leaves` * 4, whose pages are all written.
fn written_tree(leaves: u8) -> (Rig, Session) {
    let rig = Rig::checking(4096, 64, refuse, CheckImages::Rebuilt);
    let mut session = Session::default();
    for key in 0..leaves * 4 {
        rig.insert(&mut session, &[key], &VALUE);
    }
    let mut block = 0;
    images(&rig, |image| {
        block += 1;
        let extent = Extent { block, blocks: 1 };
        rig.pool.complete_image(image, extent).unwrap();
    });
    (rig, session)
}

/// Returns the pages whose images are checked, and the number of images that are not. No image is
/// written afterwards.
fn checked(rig: &Rig) -> (BTreeSet<PageId>, usize) {
    let (mut checked, mut others) = (BTreeSet::new(), 0);
    images(rig, |mut image| {
        match rig.pool.seal_image(&mut image, &mut PageEncoder::default()) {
            Ok(()) => others += 1,
            Err(bad) => {
                assert_eq!((bad.page, &bad.what[..]), (image.page(), "is looked at"));
                checked.insert(bad.page);
            }
        }
        rig.pool.abandon_image(image);
    });
    (checked, others)
}

fn leaf_of(rig: &Rig, key: u8) -> PageId {
    retry(|| rig.tree.try_contains(&rig.pool, &[key])).leaf
}

#[test]
fn a_change_of_a_record_is_not_checked() {
    let (rig, mut session) = written_tree(4);
    rig.insert(&mut session, &[1], &[8; 900]);
    assert_eq!(checked(&rig), (BTreeSet::new(), 1));
}

#[test]
fn both_sides_of_a_split_and_their_parent_are_checked() {
    let (rig, mut session) = written_tree(4);
    let before = rig.pages_used();
    rig.insert(&mut session, &[1, 0], &VALUE);
    assert_eq!(rig.pages_used(), before + 1);
    let pages = [rig.tree.root, leaf_of(&rig, 0), leaf_of(&rig, 3)];
    assert_eq!(checked(&rig), (BTreeSet::from(pages), 0));
}

#[test]
fn a_root_that_is_split_is_checked() {
    let rig = Rig::checking(4096, 64, refuse, CheckImages::Rebuilt);
    let mut session = Session::default();
    for key in 0..5 {
        rig.insert(&mut session, &[key], &VALUE);
    }
    let pages = [rig.tree.root, leaf_of(&rig, 0), leaf_of(&rig, 4)];
    assert_eq!(checked(&rig), (BTreeSet::from(pages), 0));
}

#[test]
fn a_merged_page_and_its_parent_are_checked() {
    let (rig, mut session) = written_tree(6);
    let before = rig.pages_used();
    for key in (4..7).chain(8..11) {
        rig.remove(&mut session, &[key]);
    }
    assert_eq!(rig.pages_used(), before - 1);
    let (checked, others) = checked(&rig);
    let pages = BTreeSet::from([rig.tree.root, leaf_of(&rig, 7)]);
    assert!(pages.is_subset(&checked), "{checked:?} and {others}");
}

#[test]
fn the_node_that_loses_a_child_is_checked() {
    let (rig, mut session) = written_tree(6);
    let before = rig.pages_used();
    for key in 4..8 {
        let marks = Marks {
            lsn: Lsn(session.lsn),
            multi_lsn: Lsn(0),
        };
        let inside = enter(&rig.pool);
        let token = &rig.pool.apply_token(&inside);
        let scratch = &mut session.scratch;
        retry(|| (rig.tree).try_remove(&rig.pool, token, marks, &[key], scratch));
        retry(|| (rig.tree).try_remove_empty(&rig.pool, token, marks, &[key]));
    }
    assert_eq!(rig.pages_used(), before - 1);
    assert_eq!(checked(&rig), (BTreeSet::from([rig.tree.root]), 1));
}

#[test]
fn packed_nodes_and_their_parent_are_checked() {
    let (rig, mut session) = written_tree(6);
    let marks = Marks {
        lsn: Lsn(session.lsn),
        multi_lsn: Lsn(0),
    };
    // The leaves have a page's worth of free room, and the first two hold too many records for one
    // leaf.
    for key in [1, 2, 5, 9, 10, 13, 14, 17, 18, 21, 22] {
        let scratch = &mut session.scratch;
        let inside = enter(&rig.pool);
        let token = rig.pool.apply_token(&inside);
        retry(|| (rig.tree).try_remove(&rig.pool, &token, marks, &[key], scratch));
    }
    let pages = [rig.tree.root, leaf_of(&rig, 0), leaf_of(&rig, 4)];
    let mut next = Vec::new();
    let packed = retry(|| {
        let inside = enter(&rig.pool);
        let token = rig.pool.apply_token(&inside);
        let scratch = &mut session.scratch;
        (rig.tree).try_pack(&rig.pool, &token, marks, &[0], 0, &mut next, scratch)
    });
    assert_eq!(packed, Packed::Next);
    assert_eq!(checked(&rig), (BTreeSet::from(pages), 4));
}
