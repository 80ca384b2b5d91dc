//! The order of reads of several pages: neighbours in the data file are read together (decision
//! 114).

use pando_format::PageId;
use pando_pool::Pool;

/// Puts pages in the order in which they lie in the data file, in which neighbours are read
/// together. `places` is working memory.
pub(crate) fn order_by_place(
    pool: &Pool,
    pages: &mut Vec<PageId>,
    places: &mut Vec<(u32, PageId)>,
) {
    // Each place is looked up once: others may move the page meanwhile.
    let place = |page: PageId| pool.place_on_disk(page).map(|stored| stored.extent.block);
    places.clear();
    places.extend(pages.iter().map(|page| (place(*page).unwrap_or(0), *page)));
    places.sort_unstable();
    pages.clear();
    pages.extend(places.iter().map(|(_, page)| *page));
}
