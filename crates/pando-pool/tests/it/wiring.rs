//! Wired frames: there is a limit, each is counted once, and each is unwired once.

use pando_format::{FrameIndex, Lsn, PageEncoder, PageId};
use pando_pool::Restart;

use crate::rig::Rig;

/// Wires new pages until one is refused. Returns the wired pages and the refused one.
fn wire_all(rig: &Rig) -> (Vec<PageId>, PageId) {
    let mut wired = Vec::new();
    loop {
        let page = rig.create(wired.len() as u64);
        if !rig.drive(|| rig.pool.exclusive(page)).wire() {
            return (wired, page);
        }
        wired.push(page);
    }
}

/// Cleans all pages, and then creates more pages than there are frames.
fn evict_all(rig: &Rig) {
    rig.checkpoint(Lsn(1), || ());
    for value in 0..200 {
        rig.create(value);
    }
}

#[test]
fn a_pool_of_under_a_hundred_frames_wires_a_quarter_and_never_nothing() {
    for frames in 32..100 {
        let rig = Rig::new(frames);
        let (wired, _) = wire_all(&rig);
        assert!(wired.len() >= 8, "{} of {frames}", wired.len());
        assert_eq!(wired.len(), frames / 4);
        assert_eq!(rig.pool.wired(), wired.len() as u64);
    }
}

#[test]
fn a_refused_page_is_a_page_like_any_other_and_may_ask_again() {
    let rig = Rig::new(40);
    let (wired, refused) = wire_all(&rig);
    assert_eq!(rig.pool.wired(), 10);
    let latched = rig.pool.exclusive(refused).unwrap();
    latched.unwire();
    assert_eq!(rig.pool.wired(), 10, "the page was not wired");
    drop(latched);
    evict_all(&rig);
    assert!(rig.pool.is_on_disk(refused), "the page is evicted");
    assert!(wired.iter().all(|page| !rig.pool.is_on_disk(*page)));
    rig.pool.exclusive(wired[3]).unwrap().unwire();
    let latched = rig.drive(|| rig.pool.exclusive(refused));
    assert!(latched.wire());
    assert!(latched.wire(), "the page is wired already");
    assert_eq!(rig.pool.wired(), 10, "the page is counted once");
}

#[test]
fn a_wired_page_that_is_freed_is_unwired_once() {
    let rig = Rig::new(40);
    let (wired, _) = wire_all(&rig);
    for (freed, page) in wired.iter().enumerate() {
        // In turn, a page is clean, has an image in flight, or is dirty.
        let mut image = None;
        match freed % 3 {
            0 => {
                rig.checkpoint(Lsn(freed as u64 + 1), || ());
            }
            1 => {
                rig.write(*page, 7);
                let frame = rig.pool.exclusive(*page).unwrap().hint() - 1;
                image = rig.pool.image_of(FrameIndex(frame), None);
                assert!(image.is_some());
            }
            _ => rig.write(*page, 8),
        }
        rig.drive(|| {
            rig.pool
                .free_unread(&rig.pool.apply_token(&rig.pass()), *page)
        });
        assert_eq!(rig.pool.wired(), (wired.len() - freed - 1) as u64);
        if let Some(mut image) = image {
            rig.pool
                .seal_image(&mut image, &mut PageEncoder::default())
                .unwrap();
            let extent = rig.store(image.bytes());
            assert!(rig.pool.complete_image(image, extent).is_ok());
            assert_eq!(rig.pool.wired(), (wired.len() - freed - 1) as u64);
        }
    }
    // Frames that held wired pages can be emptied and used again.
    let (again, _) = wire_all(&rig);
    assert_eq!(again.len(), 10);
    assert_eq!(rig.pool.wired(), 10);
}

#[test]
#[should_panic(expected = "is wired: unwire it before it is freed")]
fn a_wired_page_is_not_freed_unasked() {
    let rig = Rig::new(40);
    let page = rig.create(1);
    let latched = rig.pool.exclusive(page).unwrap();
    assert!(latched.wire());
    latched.free(&rig.pool.apply_token(&rig.pass()));
}

#[test]
fn a_share_keeps_writers_out_until_it_is_given_back() {
    let rig = Rig::new(40);
    let page = rig.create(5);
    let first = rig.pool.shared(page, 0).unwrap();
    let second = rig.pool.shared(page, first.seen().hint()).unwrap();
    assert_eq!(rig.read(page), 5, "optimistic readers continue");
    assert!(matches!(rig.pool.exclusive(page), Err(Restart::Conflict)));
    drop(first);
    assert!(matches!(rig.pool.exclusive(page), Err(Restart::Conflict)));
    second.seen().validate().unwrap();
    drop(second);
    let latched = rig.pool.exclusive(page).unwrap();
    assert!(matches!(rig.pool.shared(page, 0), Err(Restart::Conflict)));
    drop(latched);
    // A wrong hint costs only a look-up in the table, and a page that is not in memory is a fault.
    assert_eq!(rig.pool.shared(page, 17).unwrap().seen().page(), page);
    evict_all(&rig);
    assert!(matches!(rig.pool.shared(page, 1), Err(Restart::Fault(at)) if at == page));
}
