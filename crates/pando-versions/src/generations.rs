//! Generations: trees of versions that are dropped whole.
//!
//! Commits put versions into the newest generation. A generation knows the largest LSN of its
//! versions; once no snapshot reads below that, none of its versions is needed, and its pages are
//! freed without looking at them.
//!
//! A new generation is opened while the apply gate is closed, so a commit inside the gate finds the
//! same newest one from beginning to end, and no commit puts versions into an older one. An old
//! generation is hidden from readers before its pages are freed. A reader that still knows it comes
//! to pages that have changed, or belong to no tree of that id, and starts again; or it misses the
//! versions, which it does not need: its LSN is not below the largest one, or it was ended.

use pando_format::cast::low_u32;
use pando_format::{Lsn, PageId, TreeId};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::gate::Closed;
use pando_tree::Tree;

use crate::key_filter::KeyFilter;

/// Most generations that exist at the same time.
pub(crate) const LIVE_MAX: usize = 8;

/// The place of one generation, used again by every eighth.
#[derive(Debug)]
struct GenerationPlace {
    /// Tree id (high half), which is the generation's number, and root page.
    tree: AtomicU64,
    /// Largest LSN of its versions, raised before a version is put.
    largest: AtomicU64,
    /// Keys that may have versions in it.
    keys: KeyFilter,
}

/// The generations from `first` to `next - 1`, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) first: u32,
    pub(crate) next: u32,
}

/// One generation, as it was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Generation<'g> {
    pub(crate) tree: Tree,
    largest: &'g AtomicU64,
    /// Keys that may have versions in it. A reader for whom they are those of a later generation
    /// does not need this one.
    pub(crate) keys: &'g KeyFilter,
}

impl Generation<'_> {
    /// Returns the largest LSN of its versions.
    pub(crate) fn largest(&self) -> Lsn {
        // Acquire: pairs with the Release in raise.
        Lsn(self.largest.load(Ordering::Acquire))
    }

    /// Raises the largest LSN, before a version of `lsn` is put. Only for the newest generation, by
    /// a caller inside the gate.
    pub(crate) fn raise(&self, lsn: Lsn) {
        // Release: a dropper has closed the gate since, and sees it anyway; a reader that sees the
        // change of the leaf sees what its writer did before.
        self.largest.fetch_max(lsn.0, Ordering::Release);
    }
}

/// The generations of one store.
#[derive(Debug)]
pub(crate) struct Generations {
    /// First and next number, in the high and the low half. `next` grows while the gate is closed,
    /// `first` whenever the oldest is dropped, by one thread at a time.
    span: AtomicU64,
    places: [GenerationPlace; LIVE_MAX],
}

fn pack(span: Span) -> u64 {
    u64::from(span.first) << 32 | u64::from(span.next)
}

impl Generations {
    /// Returns none, for versions that may take `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        let place = |_| GenerationPlace {
            tree: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            keys: KeyFilter::new(bytes),
        };
        Self {
            span: AtomicU64::new(pack(Span { first: 1, next: 1 })),
            places: std::array::from_fn(place),
        }
    }

    fn place(&self, number: u32) -> &GenerationPlace {
        &self.places[number as usize % LIVE_MAX]
    }

    /// Returns which generations exist.
    #[inline]
    pub(crate) fn span(&self) -> Span {
        // Acquire: pairs with the Release in open, so the root of each is there.
        let word = self.span.load(Ordering::Acquire);
        Span {
            first: (word >> 32) as u32,
            next: low_u32(word),
        }
    }

    /// Returns generation `number`; None if it has been dropped meanwhile.
    pub(crate) fn get(&self, number: u32) -> Option<Generation<'_>> {
        let place = self.place(number);
        let word = place.tree.load(Ordering::Acquire);
        let tree = Tree {
            id: TreeId((word >> 32) as u32),
            root: PageId(low_u32(word)),
        };
        (tree.id.0 == number).then_some(Generation {
            tree,
            largest: &place.largest,
            keys: &place.keys,
        })
    }

    /// Returns the generation that commits put versions into. For a caller inside the gate.
    #[inline]
    pub(crate) fn newest(&self) -> Option<Generation<'_>> {
        let Span { first, next } = self.span();
        (first < next).then(|| self.get(next - 1)).flatten()
    }

    /// Returns the number of the next generation; None if there are as many as there can be.
    pub(crate) fn next(&self) -> Option<TreeId> {
        let Span { first, next } = self.span();
        ((next - first) as usize != LIVE_MAX).then_some(TreeId(next))
    }

    /// Opens the generation of `tree`, whose number is that of [`Generations::next`].
    pub(crate) fn open(&self, _closed: &Closed<'_>, tree: Tree) {
        let number = tree.id.0;
        let place = self.place(number);
        place.largest.store(0, Ordering::Relaxed);
        place.keys.clear();
        let word = u64::from(number) << 32 | u64::from(tree.root.0);
        place.tree.store(word, Ordering::Release);
        // Release: pairs with the Acquire in span.
        let before = self.span.fetch_add(1, Ordering::Release);
        assert_eq!(low_u32(before), number, "generations are opened in order");
    }

    /// Hides the oldest generation from those that look from now on, and returns its tree, if no
    /// snapshot reads below `horizon` and it has no newer version. The newest generation stays
    /// unless the gate is closed. One caller at a time.
    pub(crate) fn hide_oldest(&self, horizon: Lsn, closed: Option<&Closed<'_>>) -> Option<Tree> {
        let Span { first, next } = self.span();
        let stays = u32::from(closed.is_none());
        if first + stays >= next {
            return None;
        }
        let oldest = self.get(first).expect("it is dropped here only");
        if oldest.largest() > horizon {
            return None;
        }
        // Release: a reader that does not find it sees that its snapshot was ended, if it was.
        self.span.fetch_add(1 << 32, Ordering::Release);
        Some(oldest.tree)
    }
}
