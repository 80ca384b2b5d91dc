//! Tests of chunks that are moved.

use pando_format::{Extent, Lsn, StoredKind, StoredPage};

use crate::rig::Rig;

fn at(block: u32) -> StoredPage {
    StoredPage {
        extent: Extent { block, blocks: 4 },
        tag: 7,
        names_chunks: false,
        kind: StoredKind::Chunk,
    }
}

#[test]
fn a_chunk_that_moves_leaves_its_place_to_the_checkpoint() {
    let rig = Rig::new(64);
    let epochs = rig.pool.epochs();
    let guard = rig.pass();
    let token = rig.pool.apply_token(&guard);
    let epoch = token.epoch();
    let (old, new) = (at(1000), at(10));
    let page = rig.pool.adopt_chunk(&token, old).unwrap();
    assert!(
        !rig.pool.move_chunk(&token, page, new, old),
        "the chunk lies elsewhere"
    );
    assert!(rig.pool.move_chunk(&token, page, old, new));
    assert_eq!(rig.pool.chunk(page), Some(new));
    // The old place is not free at once, although the chunk got it in this epoch, because a log
    // record names it.
    assert!(!epochs.take_free_now().contains(&old.extent));
    assert!(
        !rig.pool.move_chunk(&token, page, old, new),
        "the chunk was moved"
    );
    drop(guard);
    epochs.advance(&rig.pool.gate().close(), Lsn(1));
    let pairs = epochs.take_pairs(epoch);
    assert_eq!(pairs[pairs.len() - 1], (page, new.encode()));
    assert!(epochs.take_retired(epoch).contains(&old.extent));
}
