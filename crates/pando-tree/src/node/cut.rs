//! The choice of the place where a node that is too full is cut in two.
//!
//! For records within [`record_words_max`] a cut always exists: if the left side is filled until
//! the next entry does not fit, the words of at most two records remain for the right side.

use pando_format::PageSize;
use pando_format::page::HEADER_WORDS;

use super::course::Course;
use super::list::RecordList;
use super::slot::leaf_record_words;

/// Number of words reserved for rounding when the prefix of a half grows.
const SLACK_WORDS: usize = 16;

/// Entries beyond the run get a page of their own if they are at least one in this many parts of
/// the leaf.
const BEYOND_SHARE: usize = 8;

/// Returns the maximum number of words (slot and record) of a record in a leaf.
pub fn record_words_max(page_size: PageSize) -> usize {
    (page_size.words() - HEADER_WORDS - SLACK_WORDS) / 2
}

/// Returns whether a value of this length is stored in its leaf.
pub fn is_inline(page_size: PageSize, key_bytes: usize, value_bytes: usize) -> bool {
    // One more word for the slot.
    leaf_record_words(key_bytes, value_bytes) < record_words_max(page_size)
}

/// Returns the first entry of the right side for a cut whose sides both fit into a page and have
/// about the same weight.
pub fn balanced(list: &RecordList) -> Option<usize> {
    let total: usize = (0..list.len()).map(|index| list.words_of(index)).sum();
    let mut left = 0;
    let mut middle = 0;
    while middle < list.len() && left + list.words_of(middle) <= total / 2 {
        left += list.words_of(middle);
        middle += 1;
    }
    let middle = middle.clamp(1, list.len().max(2) - 1);
    nearest(list, middle)
}

/// Returns the cut of a leaf whose newest entry is `index`, where a run of insertions continues.
/// The entries beyond, where the run will not go, are split off; otherwise every page of the run
/// would have that much less room. If they are very few they stay with the run instead, since a
/// page of their own would stay almost empty.
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

/// Returns the cut of an inner node whose child `index` is split by a run of insertions, such that
/// the part that the run has filled stays full. Only if that part is the heavier side: a run before
/// many entries would leave small nodes.
pub fn behind_run(list: &RecordList, index: usize, course: Course) -> Option<usize> {
    assert!(index < list.len(), "the child that is split is none");
    let (cut, filled) = match course {
        Course::Up => (index, index),
        Course::Down => (index + 1, list.len() - index - 1),
    };
    (filled * 2 >= list.len() && fits(list, cut)).then_some(cut)
}

/// Returns the cut before entry `index`, or the nearest one that fits.
pub fn in_front_of(list: &RecordList, index: usize) -> Option<usize> {
    let index = index.clamp(1, list.len().max(2) - 1);
    nearest(list, index)
}

/// Returns the cut nearest to `index` that fits.
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
