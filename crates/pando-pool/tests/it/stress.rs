//! Many threads and few frames, of which more or fewer are parked: no read is torn, and no write is
//! lost.

use fastrand::Rng;
use pando_format::PageId;
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::thread;

use crate::rig::{Rig, VALUE_WORD};

const PAGES: u64 = 200;

/// Every page holds the same value in two distant words, so that a torn read is detected.
fn check(threads: u64) {
    let rig = Rig::new(64);
    let pages: Vec<PageId> = (0..PAGES).map(|_| rig.create(0)).collect();
    let written: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let work = AtomicU64::new(0);
    let total = 30_000_u64;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Rng::with_seed(threads);
            while !done.load(Ordering::Relaxed) {
                rig.pool.park_frames(random.usize(..30));
                rig.pool.adjust_parked(8);
                rig.pool.unpark(random.usize(..2));
                thread::yield_now();
            }
        });
        for thread in 0..threads {
            let (rig, pages, written, done, work) = (&rig, &pages, &written, &done, &work);
            scope.spawn(move || {
                let mut random = Rng::with_seed(thread);
                while work.fetch_add(1, Ordering::Relaxed) < total {
                    let index = random.usize(..pages.len());
                    if random.bool() {
                        rig.drive(|| {
                            let mut latched = rig.pool.exclusive(pages[index])?;
                            let mut page = latched.modify(&rig.pool.apply_token(&rig.pass()))?;
                            let value = page.words().load(VALUE_WORD) + 1;
                            page.store(VALUE_WORD, value);
                            page.store(500, value);
                            Ok(())
                        });
                        written[index].fetch_add(1, Ordering::Relaxed);
                    } else {
                        let (first, second) = rig.drive(|| {
                            let seen = rig.pool.optimistic(pages[index], 0)?;
                            let first = seen.words().load(VALUE_WORD);
                            let second = seen.words().load(500);
                            seen.validate()?;
                            seen.touch();
                            Ok((first, second))
                        });
                        assert_eq!(first, second, "torn");
                    }
                }
                done.store(true, Ordering::Relaxed);
            });
        }
    });
    for (page, count) in pages.iter().zip(&written) {
        assert_eq!(rig.read(*page), count.load(Ordering::Relaxed));
    }
}

#[test]
fn two_threads_lose_nothing() {
    check(2);
}

#[test]
fn sixteen_threads_lose_nothing() {
    check(16);
}

#[test]
fn sixty_four_threads_lose_nothing() {
    check(64);
}
