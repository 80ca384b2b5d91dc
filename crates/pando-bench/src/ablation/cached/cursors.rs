//! Lists of open cursors: one that all share, or one for each core. A read registers before its
//! descent and takes itself out at its end, as engines do that ask their cursors to move.

use pando_format::PageId;
use pando_sync::{CoreLocal, Mutex, Rank, audit};

/// Open cursors; places are used again, so that nothing is searched for.
#[derive(Debug, Default)]
struct List {
    open: Vec<Option<PageId>>,
    free: Vec<usize>,
}

impl List {
    fn add(&mut self, root: PageId) -> usize {
        let place = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() - 1
        });
        self.open[place] = Some(root);
        place
    }

    fn remove(&mut self, place: usize) {
        let open = self.open[place].take();
        assert!(open.is_some(), "a cursor was closed twice");
        self.free.push(place);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.open.len() - self.free.len()
    }
}

/// Where cursors register.
pub(super) trait Cursors: Sync {
    /// Which list, and the place in it.
    type Place;

    /// Registers a cursor over the tree of `root`.
    fn open(&self, root: PageId) -> Self::Place;

    /// Takes it out.
    fn close(&self, place: Self::Place);

    /// Returns the number of open cursors.
    #[cfg(test)]
    fn count(&self) -> usize;
}

/// One list, behind one lock.
#[derive(Debug)]
pub(super) struct SharedList(Box<Mutex<List>>);

impl SharedList {
    pub(super) fn new() -> Self {
        let list = Box::new(Mutex::new(Rank::Leaf, List::default()));
        audit::name("cursor list", &*list);
        Self(list)
    }
}

impl Cursors for SharedList {
    type Place = usize;

    fn open(&self, root: PageId) -> usize {
        self.0.lock().add(root)
    }

    fn close(&self, place: usize) {
        self.0.lock().remove(place);
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.lock().len()
    }
}

/// A list for each core, each behind a lock of its own.
#[derive(Debug)]
pub(super) struct LocalLists(CoreLocal<Mutex<List>>);

impl LocalLists {
    pub(super) fn new() -> Self {
        Self(CoreLocal::new("cursor lists of cores", |_| {
            Mutex::new(Rank::Leaf, List::default())
        }))
    }
}

impl Cursors for LocalLists {
    type Place = (usize, usize);

    fn open(&self, root: PageId) -> (usize, usize) {
        let core = self.0.index();
        (core, self.0.at(core).lock().add(root))
    }

    fn close(&self, (core, place): (usize, usize)) {
        self.0.at(core).lock().remove(place);
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.0.iter().map(|list| list.lock().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<C: Cursors>(cursors: &C) {
        let first = cursors.open(PageId(1));
        let second = cursors.open(PageId(1));
        assert_eq!(cursors.count(), 2);
        cursors.close(first);
        let third = cursors.open(PageId(2));
        assert_eq!(cursors.count(), 2);
        cursors.close(second);
        cursors.close(third);
        assert_eq!(cursors.count(), 0);
    }

    #[test]
    fn a_cursor_is_in_a_list_from_its_opening_to_its_end() {
        check(&SharedList::new());
        check(&LocalLists::new());
    }

    #[test]
    #[should_panic(expected = "closed twice")]
    fn a_cursor_is_closed_once() {
        let cursors = SharedList::new();
        let place = cursors.open(PageId(1));
        cursors.close(place);
        cursors.close(place);
    }
}
