//! Where a node that is too full is cut in two.
//!
//! A cut always exists for records within [`record_words_max`]: filling the left side until the
//! next entry does not fit leaves at most two records' worth for the right side.

use pando_format::PageSize;
use pando_format::page::HEADER_WORDS;

use super::course::Course;
use super::list::RecordList;
use super::slot::leaf_record_words;

/// Words kept for what rounding costs when the prefix of a half grows.
const SLACK_WORDS: usize = 16;

/// So many parts of a leaf are one that gets a page of its own.
const BEYOND_SHARE: usize = 8;

/// Most words (slot and record) that a record in a leaf may have.
pub fn record_words_max(page_size: PageSize) -> usize {
    (page_size.words() - HEADER_WORDS - SLACK_WORDS) / 2
}

/// True when a record of such a key and value lies in its leaf.
pub fn is_inline(page_size: PageSize, key_bytes: usize, value_bytes: usize) -> bool {
    // One more word for the slot.
    leaf_record_words(key_bytes, value_bytes) < record_words_max(page_size)
}

/// The first entry of the right side such that both sides fit into a page and are about equally
/// heavy.
pub fn balanced(list: &RecordList) -> Option<usize> {
    let total: usize = (0..list.len()).map(|index| list.weight(index)).sum();
    let mut left = 0;
    let mut middle = 0;
    while middle < list.len() && left + list.weight(middle) <= total / 2 {
        left += list.weight(middle);
        middle += 1;
    }
    let middle = middle.clamp(1, list.len().max(2) - 1);
    nearest(list, middle)
}

/// Of a leaf where insertions go on at `index`, which is the newest. What lies beyond, where they
/// will not go, is split off, or every page of the run would have less room by that much. If it is
/// next to nothing it goes on with the run instead, since a page for it would stay empty.
pub fn beside(list: &RecordList, index: usize, course: Course) -> Option<usize> {
    assert!(index < list.len(), "the newest entry is none");
    let (beyond, after, before) = match course {
        Course::Up => (list.len() - index - 1, index + 1, index),
        Course::Down => (index, index, index + 1),
    };
    let cut = if beyond * BEYOND_SHARE >= list.len() {
        after
    } else {
        before
    };
    fits(list, cut).then_some(cut)
}

/// Of an inner node whose child `index` is split where insertions go on: what the run has filled
/// stays full. Only if it is the heavier side: a run in front of many entries would leave small
/// nodes behind.
pub fn behind_run(list: &RecordList, index: usize, course: Course) -> Option<usize> {
    assert!(index < list.len(), "the child that is split is none");
    let (cut, filled) = match course {
        Course::Up => (index, index),
        Course::Down => (index + 1, list.len() - index - 1),
    };
    (filled * 2 >= list.len() && fits(list, cut)).then_some(cut)
}

/// In front of entry `index`, or where that does not fit as near to it as possible.
pub fn in_front_of(list: &RecordList, index: usize) -> Option<usize> {
    let index = index.clamp(1, list.len().max(2) - 1);
    nearest(list, index)
}

/// The cut that fits nearest to `index`.
fn nearest(list: &RecordList, index: usize) -> Option<usize> {
    (0..list.len())
        .flat_map(|distance| [index.checked_sub(distance), index.checked_add(distance)])
        .flatten()
        .find(|cut| fits(list, *cut))
}

fn fits(list: &RecordList, cut: usize) -> bool {
    (1..list.len()).contains(&cut)
        && list.prefix_to_fit(0, cut).is_some()
        && list.prefix_to_fit(cut, list.len()).is_some()
}
