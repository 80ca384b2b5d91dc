//! Where a node that is too full is cut in two.
//!
//! A cut always exists for records within [`record_words_max`]: filling the left side until the
//! next entry does not fit leaves at most two records' worth for the right side.

use pando_format::PageSize;
use pando_format::page::HEADER_WORDS;

use super::list::RecordList;
use super::slot::leaf_record_words;

/// Words kept for what rounding costs when the prefix of a half grows.
const SLACK_WORDS: usize = 16;

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
    (0..list.len())
        .flat_map(|distance| [middle.checked_sub(distance), middle.checked_add(distance)])
        .flatten()
        .find(|cut| fits(list, *cut))
}

/// `index` as the first entry of the right side, for an ascending load that goes on there: the left
/// side stays full. Only if it is the heavier one: a load in front of many entries would leave
/// small nodes behind.
pub fn at(list: &RecordList, index: usize) -> Option<usize> {
    (index * 2 >= list.len() && fits(list, index)).then_some(index)
}

fn fits(list: &RecordList, cut: usize) -> bool {
    (1..list.len()).contains(&cut)
        && list.prefix_to_fit(0, cut).is_some()
        && list.prefix_to_fit(cut, list.len()).is_some()
}
