//! Reads of a transaction whose snapshot goes on on disk: they block, so the engine's helper makes
//! them, one at a time, and the event loop waits for its answer.

use std::ops::Bound;

use pando_format::TreeId;
use pando_sync::Arc;
use pando_tree::{Direction, LeafCopy, Tree};

use crate::engine::Engine;
use crate::error::Result;
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::{KeptFound, Settled};
use crate::read::merged_leaf::MergedLeaf;
use crate::state::helper::{Answer, Ending};
use crate::wait::reason::{Step, WaitReason};

/// The read that was asked for.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    asked: Option<Asked>,
    ahead: KeptAhead,
}

#[derive(Debug)]
enum Asked {
    Value(TreeId, Vec<u8>, Arc<Answer<(KeptFound, Vec<u8>)>>),
    Leaf(TreeId, Bound<Vec<u8>>, Arc<Answer<ScannedLeaf>>),
}

/// A leaf of a settled snapshot.
#[derive(Debug, Default)]
pub(crate) struct ScannedLeaf {
    pub(crate) leaf: LeafCopy,
    /// The records that count instead of those of `leaf`, if `is_merged`.
    pub(crate) merged: Option<Box<MergedLeaf>>,
    pub(crate) is_merged: bool,
    ahead: KeptAhead,
}

impl Aside {
    /// Returns what the helper has answered, or that it has not yet.
    fn answered<T: std::fmt::Debug + Send + 'static>(&mut self, answer: Arc<Answer<T>>) -> Step<T> {
        let Some(answered) = answer.take() else {
            let awaited: Arc<dyn Ending> = answer;
            return Err(WaitReason::Answer(awaited).into());
        };
        self.asked = None;
        Ok(answered?)
    }

    /// Finds `key` of `tree` at `settled`; `out` has the value if it is copied. Asks for it at the
    /// first call.
    pub(crate) fn open(
        &mut self,
        engine: &Engine,
        (settled, tree): (Arc<Settled>, Tree),
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Step<KeptFound> {
        let answer = match &self.asked {
            Some(Asked::Value(of, known, answer)) if *of == tree.id && known == key => {
                answer.clone()
            }
            _ => {
                let sought = key.to_vec();
                let answer = engine.helper.ask(move |_: &Engine| {
                    let mut value = Vec::new();
                    let found = settled.open(tree, &sought, &mut value)?;
                    Ok((found, value))
                });
                self.asked = Some(Asked::Value(tree.id, key.to_vec(), answer.clone()));
                answer
            }
        };
        let (found, value) = self.answered(answer)?;
        *out = value;
        Ok(found)
    }

    /// Copies the leaf of `tree` at `settled` where a scan continues at `from`. Asks for it at the
    /// first call.
    pub(crate) fn scan(
        &mut self,
        engine: &Engine,
        (settled, tree): (Arc<Settled>, Tree),
        from: Bound<&[u8]>,
    ) -> Step<ScannedLeaf> {
        let answer = match &self.asked {
            Some(Asked::Leaf(of, known, answer))
                if *of == tree.id && known.as_ref().map(|key| &key[..]) == from =>
            {
                answer.clone()
            }
            _ => {
                let begin = from.map(<[u8]>::to_vec);
                let ahead = std::mem::take(&mut self.ahead);
                let answer = engine
                    .helper
                    .ask(move |engine: &Engine| scan(engine, (&settled, tree), &begin, ahead));
                let asked = Asked::Leaf(tree.id, from.map(<[u8]>::to_vec), answer.clone());
                self.asked = Some(asked);
                answer
            }
        };
        let mut scanned = self.answered(answer)?;
        self.ahead = std::mem::take(&mut scanned.ahead);
        Ok(scanned)
    }
}

/// Copies a leaf. Blocks.
fn scan(
    engine: &Engine,
    (settled, tree): (&Settled, Tree),
    from: &Bound<Vec<u8>>,
    ahead: KeptAhead,
) -> Result<ScannedLeaf> {
    let mut scanned = ScannedLeaf {
        ahead,
        ..ScannedLeaf::default()
    };
    let position = KeptPosition {
        from: from.as_ref().map(|key| &key[..]),
        until: Bound::Unbounded,
        direction: Direction::Forward,
    };
    let copies = (&mut scanned.leaf, &mut scanned.merged);
    let ahead = &mut scanned.ahead;
    scanned.is_merged = engine.scan_settled(settled, tree, position, copies, ahead)?;
    Ok(scanned)
}
