//! Where a key is, or belongs, as a search has found it, so that the change of it that follows
//! need not search again.

use pando_pool::{PagePin, Pool};

use crate::finger::Finger;
use crate::leaf::Leaf;
use crate::node::search::Spot;
use crate::tree::Tree;

/// Where one key is, or belongs: a leaf as it was seen, and a spot in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    finger: Finger,
    /// The spot in the leaf at the version of the finger; None if only the leaf is known.
    spot: Option<Spot>,
}

impl From<Finger> for Place {
    /// The place of a key that is near others, as far as its leaf is certain to cover it.
    fn from(finger: Finger) -> Self {
        Self { finger, spot: None }
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::NONE
    }
}

impl Place {
    /// The place of a key of which nothing is known.
    pub const NONE: Self = Self {
        finger: Finger::NONE,
        spot: None,
    };

    /// Makes the place of a key that belongs at `spot` of the leaf of `finger`.
    pub(crate) fn at(finger: Finger, spot: Spot) -> Self {
        let spot = Some(spot);
        Self { finger, spot }
    }

    /// Returns the leaf, for other keys.
    pub fn finger(&self) -> Finger {
        self.finger
    }

    /// Returns false for one that was made by default.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.finger.is_known()
    }

    /// Returns whether the leaf is one of `tree` and has not changed since it was seen, at the
    /// moment of the call. If so it is warm, as that of [`Tree::try_find_place`].
    #[inline]
    pub fn is_current(&self, tree: Tree, pool: &Pool) -> bool {
        let leaf = self.finger.leaf(tree, pool);
        leaf.inspect(|leaf| leaf.here.warm()).is_some()
    }

    /// Pins the leaf, if it is one of `tree` and has not changed since it was seen.
    #[inline]
    pub fn pin<'p>(&self, tree: Tree, pool: &'p Pool) -> Option<PagePin<'p>> {
        self.finger.leaf(tree, pool)?.here.pin().ok()
    }

    /// Returns the leaf, and the spot where `key` is or would be in it, if the leaf has not changed
    /// and is certain to cover `key`. `key` is that for which this was made. The caller validates
    /// the leaf as after a descent.
    #[inline]
    pub(crate) fn reach<'p>(
        &self,
        tree: Tree,
        pool: &'p Pool,
        key: &[u8],
    ) -> Option<(Leaf<'p>, Spot)> {
        let Some(spot) = self.spot else {
            return self.finger.reach(tree, pool, key);
        };
        let leaf = self.finger.leaf(tree, pool)?;
        debug_assert!(
            leaf.find(key) == spot || leaf.here.validate().is_err(),
            "the place of another key"
        );
        Some((leaf, spot))
    }
}
