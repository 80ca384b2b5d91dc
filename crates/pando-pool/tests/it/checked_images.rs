//! Checks of images before they are written, and images that fail them.

use pando_format::page::WORD_ID;
use pando_format::{Extent, FrameIndex, Lsn, PageEncoder, PageId};
use pando_pool::{BadImage, Image, PageMut};

use crate::rig::{BAD_VALUE, Rig, VALUE_WORD};

fn refused(page: PageId, what: &str) -> Result<(), BadImage> {
    let what = what.to_owned();
    Err(BadImage { page, what })
}

fn image(rig: &Rig) -> Option<Image> {
    let mut frames = (0..rig.pool.frames() as u32).map(FrameIndex);
    frames.find_map(|frame| rig.pool.image_of(frame, None))
}

fn seal(rig: &Rig, image: &mut Image) -> Result<(), BadImage> {
    rig.pool.seal_image(image, &mut PageEncoder::default())
}

fn rebuild(rig: &Rig, page: PageId, change: impl FnOnce(PageMut<'_>)) {
    let guard = rig.pass();
    let mut latched = rig.pool.exclusive(page).unwrap();
    change(latched.rebuild(&rig.pool.apply_token(&guard)).unwrap());
}

#[test]
fn a_page_that_was_laid_out_anew_is_checked_once() {
    let rig = Rig::new(32);
    let page = rig.create(BAD_VALUE);
    let mut first = image(&rig).unwrap();
    assert_eq!(
        seal(&rig, &mut first),
        Ok(()),
        "the page was not laid out anew"
    );
    rig.pool.complete_image(first, block(1)).unwrap();
    rebuild(&rig, page, |mut changed| changed.store(VALUE_WORD, 1));
    let mut second = image(&rig).unwrap();
    assert_eq!(seal(&rig, &mut second), Ok(()));
    rig.pool.complete_image(second, block(2)).unwrap();
    rig.write(page, BAD_VALUE);
    let mut third = image(&rig).unwrap();
    assert_eq!(
        seal(&rig, &mut third),
        Ok(()),
        "only the image before this one was laid out anew"
    );
    rig.pool.complete_image(third, block(3)).unwrap();
    rebuild(&rig, page, |_| ());
    let mut fourth = image(&rig).unwrap();
    assert_eq!(seal(&rig, &mut fourth), refused(page, "has a bad value"));
}

fn block(block: u32) -> Extent {
    Extent { block, blocks: 1 }
}

#[test]
fn what_a_checkpoint_needs_of_a_page_that_was_laid_out_anew_is_checked() {
    let rig = Rig::new(64);
    let pages: Vec<_> = (0..6).map(|value| rig.create(value)).collect();
    for page in &pages {
        rebuild(&rig, *page, |mut changed| {
            changed.store(VALUE_WORD, BAD_VALUE)
        });
    }
    rig.pool.epochs().advance(&rig.pool.gate().close(), Lsn(1));
    // Four pages get image buffers, and two are copied to frames.
    pages.iter().for_each(|page| rig.write(*page, 7));
    assert_eq!(rig.pool.copies(), 2);
    let mut count = 0;
    loop {
        let mut images = Vec::new();
        rig.pool.take_started_images(&mut images, usize::MAX);
        if images.is_empty() {
            break;
        }
        for mut image in images {
            count += 1;
            let page = image.page();
            assert_eq!(seal(&rig, &mut image), refused(page, "has a bad value"));
            rig.pool.abandon_image(image);
        }
    }
    assert_eq!(count, pages.len());
}

#[test]
fn a_page_that_calls_itself_another_is_not_written() {
    let rig = Rig::new(32);
    let page = rig.create(1);
    let guard = rig.pass();
    let mut latched = rig.pool.exclusive(page).unwrap();
    let mut changed = latched.modify(&rig.pool.apply_token(&guard)).unwrap();
    changed.store(WORD_ID, 77 << 32);
    drop(latched);
    let mut image = image(&rig).unwrap();
    let what = format!("calls itself {}", PageId(77));
    assert_eq!(seal(&rig, &mut image), refused(page, &what));
}
