//! Tests with one thread: pages are evicted and read back, a checkpoint has the state of one
//! moment, and no extent leaks.

use std::collections::BTreeMap;
use std::task::{Wake, Waker};

use fastrand::Rng;
use pando_format::bytes::{put_u32, put_u64, u32_at};
use pando_format::compression::{BODY_BYTES_AT, CODEC_AT};
use pando_format::page::{
    HEADER_BYTES, PageKind, WORD_EPOCH, WORD_KIND, WORD_LSN_MAX, WORD_MULTI_LSN, checksum,
};
use pando_format::{
    Codec, Compression, Epoch, Extent, FrameIndex, Lsn, PageDecoder, PageEncoder, PageId,
    StoredPage,
};
use pando_pool::{Attempt, Exclusive, LoadStart, PoolOptions, Resource, Restart};
use pando_stats::Ticker;
use pando_sync::Arc;
use pando_sync::atomic::{AtomicBool, Ordering};

use crate::rig::{Rig, TREE, VALUE_WORD, options};

#[test]
fn ten_times_more_pages_than_frames_are_all_read_back() {
    let rig = Rig::new(64);
    let pages: Vec<PageId> = (0..640).map(|value| rig.create(value)).collect();
    for (value, page) in pages.iter().enumerate() {
        assert_eq!(rig.read(*page), value as u64);
    }
}

#[test]
fn a_random_history_matches_its_twin_and_checkpoints_match_their_moment() {
    random_history(&Rig::new(40));
}

#[test]
fn a_random_history_of_compressed_pages_matches_its_twin() {
    random_history(&Rig::compressed(40, 4096, 512, Compression::Lz4));
    random_history(&Rig::compressed(40, 16384, 4096, Compression::Snappy));
}

fn random_history(rig: &Rig) {
    let mut twin = BTreeMap::new();
    let mut mapping: BTreeMap<PageId, u64> = BTreeMap::new();
    let mut random = Rng::with_seed(12345);
    for step in 0..20_000_u64 {
        let pick = random.usize(..twin.len().max(1));
        let some = twin.keys().nth(pick).copied();
        match random.u32(..100) {
            0..30 if twin.len() < 300 => {
                twin.insert(rig.create(step), step);
            }
            0..50 => {
                if let Some(page) = some {
                    assert_eq!(rig.read(page), twin[&page]);
                }
            }
            50..90 => {
                if let Some(page) = some {
                    rig.write(page, step);
                    twin.insert(page, step);
                }
            }
            90..98 => {
                if let Some(page) = some {
                    rig.free(page);
                    twin.remove(&page);
                }
            }
            _ => {
                let moment = twin.clone();
                // Changes after the gate has been opened again must not reach the checkpoint.
                let pairs = rig.checkpoint(Lsn(step), || {
                    for page in moment.keys().take(3) {
                        rig.write(*page, step + 1_000_000);
                    }
                    for page in moment.keys().skip(3).take(2) {
                        rig.free(*page);
                    }
                });
                for page in moment.keys().take(3) {
                    twin.insert(*page, step + 1_000_000);
                }
                for page in moment.keys().skip(3).take(2) {
                    twin.remove(page);
                }
                for (page, word) in pairs {
                    if word == 0 {
                        mapping.remove(&page);
                    } else {
                        mapping.insert(page, word);
                    }
                }
                assert_eq!(mapping.len(), moment.len());
                for (page, value) in moment {
                    assert_eq!(rig.stored_value(mapping[&page]), value, "{page}");
                }
            }
        }
    }
    // Every extent belongs to a page of the last checkpoint or to a page of the current state, so
    // none leaks.
    rig.checkpoint(Lsn(u64::MAX), || ());
    rig.checkpoint(Lsn(u64::MAX), || ());
    if rig.pool.options().compression == Compression::None {
        assert_eq!(rig.owned(), twin.len());
    } else {
        // These pages are equal except for their headers, so each is stored in one block.
        assert_eq!(rig.owned(), twin.len());
        assert!(ticks(rig, Ticker::PagesCompressed) > 1000);
        assert!(ticks(rig, Ticker::PagesDecompressed) > 1000);
    }
}

fn ticks(rig: &Rig, ticker: Ticker) -> u64 {
    rig.pool.statistics().get(ticker)
}

#[test]
fn what_pads_a_compressed_image_is_zeros_whatever_the_buffer_held() {
    let rig = Rig::compressed(40, 16384, 4096, Compression::Lz4);
    let pages: Vec<PageId> = (0..200).map(|value| rig.create(value)).collect();
    for page in &pages {
        // Even pages get bytes that do not compress; odd pages compress.
        rig.drive(|| {
            let mut latched = rig.pool.exclusive(*page)?;
            let mut words = latched.modify(&rig.pool.apply_token(&rig.pass()))?;
            let mut random = Rng::with_seed(page.0.into());
            for index in VALUE_WORD + 1..rig.pool.page_size().words() {
                let is_noise = page.0.is_multiple_of(2) || index < 700 + page.index();
                words.store(index, if is_noise { random.u64(..) } else { u64::MAX });
            }
            Ok(())
        });
    }
    let mut lengths = std::collections::BTreeSet::new();
    let mut compressed = 0;
    for image in rig.stored_images() {
        lengths.insert(image.len());
        if image[CODEC_AT] == Codec::Plain.encode() {
            assert_eq!(image.len(), 16384);
            continue;
        }
        let used = HEADER_BYTES + u32_at(&image, BODY_BYTES_AT) as usize;
        assert!(image[used..].iter().all(|byte| *byte == 0));
        compressed += 1;
    }
    assert!(compressed > 50 && lengths.len() > 1, "{lengths:?}");
    for (value, page) in pages.iter().enumerate() {
        assert_eq!(rig.read(*page), value as u64);
    }
}

#[test]
fn bytes_of_another_length_than_the_extent_are_no_page() {
    let rig = Rig::compressed(40, 4096, 512, Compression::Lz4);
    let pages: Vec<PageId> = (0..100).map(|value| rig.create(value)).collect();
    let gone = |page: &&PageId| rig.pool.optimistic(**page, 0).is_err();
    let page = *pages.iter().find(gone).unwrap();
    for length in [0, 511, 1024, 4096] {
        let LoadStart::Claimed(ticket) = rig.drive(|| rig.pool.begin_load(page)) else {
            panic!("{page} is on disk and not being read");
        };
        assert_eq!(ticket.stored().extent.blocks, 1);
        let bytes = vec![0; length];
        let result = rig
            .pool
            .finish_load(ticket, &bytes, &mut PageDecoder::default());
        assert!(result.unwrap_err().what.contains("instead of 512"));
    }
    rig.read(page);
}

#[test]
fn a_held_page_is_not_evicted() {
    let rig = Rig::new(32);
    let page = rig.create(7);
    let hold = rig.pool.pin(page, 0).unwrap();
    for value in 0..200 {
        rig.create(value);
    }
    assert!(
        rig.pool.optimistic(page, 0).is_ok(),
        "the pinned page is in memory"
    );
    drop(hold);
    for value in 0..200 {
        rig.create(value);
    }
    assert_eq!(
        rig.pool.optimistic(page, 0).err(),
        Some(Restart::Fault(page))
    );
    assert_eq!(rig.read(page), 7);
}

/// The id of a freed page is not used again before its image in flight is done.
#[test]
fn a_page_that_is_freed_is_found_by_nobody_while_its_image_is_in_flight() {
    let rig = Rig::new(32);
    let page = rig.create(7);
    let frame = rig.pool.exclusive(page).unwrap().hint() - 1;
    let mut image = rig.pool.image_of(FrameIndex(frame), None).unwrap();
    let hint = rig.pool.optimistic(page, 0).unwrap().hint();
    rig.free(page);
    let gone = |result: Option<Restart>| matches!(result, Some(Restart::Damaged(..)));
    assert!(gone(rig.pool.optimistic(page, hint).err()));
    assert!(gone(rig.pool.exclusive(page).err()));
    let again = rig
        .pool
        .free_unread(&rig.pool.apply_token(&rig.pass()), page);
    assert_eq!(again, Err(Restart::Damaged(page, "freed twice")));
    assert_ne!(
        rig.create(8),
        page,
        "the id is not used again before the image is done"
    );
    let mut encoder = PageEncoder::default();
    rig.pool.seal_image(&mut image, &mut encoder).unwrap();
    let extent = rig.store(image.bytes());
    assert!(rig.pool.complete_image(image, extent).is_ok());
    let fresh: Vec<_> = (0..2).map(|value| rig.create(value)).collect();
    assert!(fresh.contains(&page), "the id is used again after that");
}

#[test]
fn wired_frames_are_capped_and_stay() {
    let rig = Rig::new(32);
    let mut wired = Vec::new();
    for value in 0..9 {
        let page = rig.create(value);
        let latched = rig.pool.exclusive(page).unwrap();
        if latched.wire() {
            wired.push(page);
        }
    }
    assert_eq!(wired.len(), 8, "a quarter of 32 frames");
    assert_eq!(rig.pool.wired(), 8);
    for value in 0..100 {
        rig.create(value);
    }
    for page in wired {
        rig.pool.exclusive(page).unwrap().unwire();
    }
    assert_eq!(rig.pool.wired(), 0);
}

#[test]
fn a_corrupt_page_is_reported_with_its_place_and_the_claim_ends() {
    let rig = Rig::new(32);
    let page = rig.create(1);
    for value in 0..200 {
        rig.create(value);
    }
    let extent = rig.pool.stored_extent(page).unwrap();
    rig.corrupt(extent);
    for _ in 0..2 {
        let ticket = rig.drive(|| match rig.pool.begin_load(page)? {
            LoadStart::Claimed(ticket) => Ok(ticket),
            other => panic!("{other:?}"),
        });
        let error = rig
            .pool
            .finish_load(ticket, &[0; 4096], &mut PageDecoder::default())
            .unwrap_err();
        assert_eq!((error.page, error.stored.extent), (page, extent));
        assert!(error.what.contains("checksum"), "{}", error.what);
    }
}

#[test]
fn two_loads_of_one_page_share_one_read() {
    let rig = Rig::new(32);
    let page = rig.create(1);
    for value in 0..200 {
        rig.create(value);
    }
    let LoadStart::Claimed(ticket) = rig.drive(|| rig.pool.begin_load(page)) else {
        panic!()
    };
    assert!(matches!(rig.pool.begin_load(page), Ok(LoadStart::Loading)));
    assert!(
        !rig.pool.wait_for_load(page, &pando_sync::thread_waker()),
        "still loading"
    );
    assert_eq!(
        rig.pool
            .free_unread(&rig.pool.apply_token(&rig.pass()), page),
        Err(Restart::Conflict)
    );
    rig.pool.fail_load(ticket);
    assert!(rig.pool.wait_for_load(page, &pando_sync::thread_waker()));
}

#[test]
fn a_writer_without_buffer_or_spare_frame_waits_instead_of_losing_the_old_state() {
    let rig = Rig::new(32);
    let pages: Vec<_> = (0..20).map(|value| rig.create(value)).collect();
    rig.pool.epochs().advance(&rig.pool.gate().close(), Lsn(1));
    let guard = rig.pass();
    let token = rig.pool.apply_token(&guard);
    let change = |page: &PageId| {
        let mut latched = rig.pool.exclusive(*page).unwrap();
        latched.modify(&token).map(drop)
    };
    // Writers get four buffers and the free frames beyond those that the cleaner keeps ready for
    // loads. They also get one more frame: with exactly the wanted number free the cleaner would
    // not evict, and nothing else would.
    let spare = rig.pool.free_count() + 1 - rig.pool.options().free_frames_high();
    assert_eq!(spare, 5);
    for page in &pages[..4 + spare] {
        assert_eq!(change(page), Ok(()));
    }
    for page in &pages[4 + spare..] {
        assert_eq!(change(page), Err(Restart::Wait(Resource::Images)));
    }
    assert_eq!(
        rig.pool.free_count() + 1,
        rig.pool.options().free_frames_high(),
        "loads still find the frames that the cleaner keeps ready"
    );
}

#[test]
fn a_writer_waits_for_no_image_once_checkpoints_are_over() {
    let rig = Rig::new(32);
    let pages: Vec<_> = (0..20).map(|value| rig.create(value)).collect();
    rig.pool.epochs().advance(&rig.pool.gate().close(), Lsn(1));
    let guard = rig.pass();
    let token = rig.pool.apply_token(&guard);
    let change = |page: &PageId| {
        let mut latched = rig.pool.exclusive(*page).unwrap();
        latched.modify(&token).map(drop)
    };
    assert!(pages.iter().any(|page| change(page).is_err()));
    rig.pool.end_checkpoints();
    assert!(pages.iter().all(|page| change(page) == Ok(())));
}

#[test]
fn copies_in_frames_take_a_quarter_of_the_pool_at_most() {
    let rig = Rig::new(64);
    let pages: Vec<_> = (0..30).map(|value| rig.create(value)).collect();
    rig.pool.epochs().advance(&rig.pool.gate().close(), Lsn(1));
    let guard = rig.pass();
    let token = rig.pool.apply_token(&guard);
    let changed = pages.iter().filter(|page| {
        let mut latched = rig.pool.exclusive(**page).unwrap();
        latched.modify(&token).is_ok()
    });
    assert_eq!(changed.count(), 4 + 16);
}

#[test]
fn what_a_page_held_at_the_cut_is_written_from_a_copy_in_a_frame() {
    let rig = Rig::new(64);
    let pages: Vec<_> = (0..12).map(|value| rig.create(value)).collect();
    let free = rig.pool.free_count();
    let pairs = rig.checkpoint(Lsn(1), || {
        for (value, page) in pages.iter().enumerate() {
            let mut latched = rig.pool.exclusive(*page).unwrap();
            let mut changed = latched.modify(&rig.pool.apply_token(&rig.pass())).unwrap();
            changed.store(VALUE_WORD, 1000 + value as u64);
        }
        assert_eq!(rig.pool.free_count(), free - 8, "four pages have buffers");
    });
    let mapping: BTreeMap<_, _> = pairs.into_iter().collect();
    for (value, page) in pages.iter().enumerate() {
        assert_eq!(rig.stored_value(mapping[page]), value as u64);
        assert_eq!(rig.read(*page), 1000 + value as u64);
    }
    assert_eq!(rig.pool.free_count(), free, "the frames are free again");
    let later: BTreeMap<_, _> = rig.checkpoint(Lsn(2), || ()).into_iter().collect();
    for (value, page) in pages.iter().enumerate() {
        assert_eq!(rig.stored_value(later[page]), 1000 + value as u64);
    }
}

/// An id that is freed is used again before a new one.
#[test]
fn page_ids_run_out_with_a_reason() {
    let rig = Rig::of(PoolOptions {
        page_ids_max: 8,
        ..options(32, 4096, 4096, Compression::None)
    });
    let guard = rig.pass();
    let token = rig.pool.apply_token(&guard);
    let allocate = || rig.pool.allocate(&token, TREE, PageKind::Leaf, 0);
    let mut pages: Vec<_> = (0..8).map(|_| allocate().unwrap()).collect();
    assert_eq!(rig.pool.page_ids().available(), 0);
    let refused = |again: Attempt<Exclusive<'_>>| {
        let restart = again.map(|page| page.page()).unwrap_err();
        assert_eq!(restart, Restart::Wait(Resource::PageIds));
    };
    refused(allocate());
    // An id that is freed is used again, and no other.
    let freed = pages.remove(3);
    let id = freed.page();
    freed.free(&token);
    assert_eq!(rig.pool.page_ids().available(), 1);
    let page = allocate().unwrap();
    assert_eq!(page.page(), id);
    refused(allocate());
}

#[test]
fn a_page_freed_while_a_checkpoint_needs_it_is_in_the_checkpoint() {
    let rig = Rig::new(32);
    let written = rig.create(1);
    let unread = rig.create(2);
    let pairs = rig.checkpoint(Lsn(1), || {
        let guard = rig.pass();
        let token = rig.pool.apply_token(&guard);
        let mut latched = rig.pool.exclusive(written).unwrap();
        latched.modify(&token).unwrap();
        latched.free(&token);
        rig.pool.free_unread(&token, unread).unwrap();
    });
    let mut mapping: BTreeMap<_, _> = pairs.into_iter().collect();
    assert_eq!(rig.stored_value(mapping[&written]), 1);
    assert_eq!(rig.stored_value(mapping[&unread]), 2);
    mapping.extend(rig.checkpoint(Lsn(2), || ()));
    assert!(mapping.values().all(|word| *word == 0), "{mapping:?}");
    rig.checkpoint(Lsn(3), || ());
    assert_eq!(rig.owned(), 0);
}

#[test]
fn a_dirty_page_that_is_freed_wakes_those_that_wait_for_clean_ones() {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let rig = Rig::new(32);
    let page = rig
        .pool
        .allocate(&rig.pool.apply_token(&rig.pass()), TREE, PageKind::Leaf, 0)
        .unwrap();
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    rig.pool
        .image_waiters()
        .register(&Waker::from(woken.clone()));
    page.free(&rig.pool.apply_token(&rig.pass()));
    assert!(woken.0.load(Ordering::Relaxed));
}

/// Returns the result of loading a leaf with these marks, in a pool that restarts with epoch 5
/// after a checkpoint at LSN 60.
fn load_with_marks(epoch: u64, lsn_max: u64, multi_lsn: u64) -> Result<(), String> {
    let rig = Rig::new(40);
    let mut image = vec![0; 4096];
    image[WORD_KIND * 8 + 4] = PageKind::Leaf.encode();
    put_u64(&mut image, WORD_LSN_MAX * 8, lsn_max);
    put_u64(&mut image, WORD_MULTI_LSN * 8, multi_lsn);
    put_u64(&mut image, WORD_EPOCH * 8, epoch);
    let checksum = checksum(&image);
    put_u32(&mut image, 0, checksum);
    let stored = StoredPage {
        kind: pando_format::StoredKind::Page,
        extent: Extent {
            block: 7,
            blocks: 1,
        },
        tag: StoredPage::tag_of(checksum),
        names_chunks: false,
    };
    let page = PageId(0);
    rig.pool
        .restore([(page, stored)].into_iter(), Epoch(5), Lsn(60));
    let Ok(LoadStart::Claimed(ticket)) = rig.pool.begin_load(page) else {
        panic!("a page on disk can be claimed");
    };
    let loaded = rig
        .pool
        .finish_load(ticket, &image, &mut PageDecoder::default());
    loaded.map_err(|error| error.what)
}

#[test]
fn a_leaf_that_is_newer_than_its_checkpoint_is_damaged() {
    assert_eq!(load_with_marks(4, 60, 60), Ok(()));
    assert_eq!(
        load_with_marks(5, 61, 0),
        Ok(()),
        "its epoch is the current one"
    );
    let newer = load_with_marks(4, 61, 0).unwrap_err();
    assert!(newer.contains("behind its checkpoint"), "{newer}");
    let marks = load_with_marks(5, 61, 62).unwrap_err();
    assert!(marks.contains("newest batch of many writes"), "{marks}");
}

#[test]
fn a_page_that_was_written_outside_is_adopted_and_read() {
    let rig = Rig::new(64);
    let pool = &rig.pool;
    let mut ids = Vec::new();
    pool.reserve_ids(3, &mut ids);
    let available = pool.page_ids().available();
    pool.return_id(ids.pop().unwrap());
    assert_eq!(pool.page_ids().available(), available + 1);
    // The pages are written in one epoch and adopted in the next. No checkpoint knows of them
    // before.
    let written = rig.pool.epochs().current();
    let mut stored = Vec::new();
    for page in &ids {
        let mut bytes = vec![0; 4096];
        put_u32(&mut bytes, 4, page.0);
        put_u64(&mut bytes, VALUE_WORD * 8, 100 + u64::from(page.0));
        let sealed = pool.seal_outside(&mut bytes, *page, written, &mut PageEncoder::default());
        let mut sealed = sealed.unwrap();
        assert_eq!(sealed.extent.blocks, 1);
        sealed.extent = rig.store(&bytes);
        stored.push(sealed);
    }
    assert!(rig.checkpoint(Lsn(1), || ()).is_empty());
    for (page, stored) in ids.iter().zip(&stored) {
        assert_eq!(pool.stored_extent(*page), None);
        pool.adopt(&rig.pool.apply_token(&rig.pass()), *page, *stored);
        assert_eq!(rig.read(*page), 100 + u64::from(page.0));
    }
    rig.write(ids[0], 7);
    let pairs = rig.checkpoint(Lsn(2), || ());
    let pair = |page: PageId| pairs.iter().rfind(|(of, _)| *of == page).unwrap().1;
    assert_eq!(rig.stored_value(pair(ids[0])), 7);
    assert_eq!(pair(ids[1]), stored[1].encode());
    assert_eq!(rig.owned(), 2, "the old place is free");
}

/// An apply token needs a guard of the pool's own gate.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "inside the gate of another pool")]
fn being_in_the_gate_of_another_pool_is_no_proof() {
    let (rig, other) = (Rig::new(32), Rig::new(32));
    let _stay = rig.pool.apply_token(&other.pass());
}
