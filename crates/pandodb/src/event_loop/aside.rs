//! Reads of a transaction whose snapshot goes on on disk: they block, so the engine's helper makes
//! them, and the event loop waits for its answer.
//!
//! A step that has to wait is run again from its beginning, and asks for what it has read before.
//! What the snapshot shows never changes, so answers are kept until the step ends. A run ends when
//! it has to wait for an answer. If the answers take much, those are forgotten that neither this
//! run nor the one before has asked for: a step that goes on without them does not need them, and
//! all others are needed in each run, which would ask for them again and again.

use std::collections::VecDeque;
use std::ops::Bound;

use pando_format::TreeId;
use pando_sync::Arc;
use pando_tree::{Direction, LeafCopy, Tree};

use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::kept::pages::{KeptAhead, KeptPosition};
use crate::kept::settled::{KeptFound, Settled};
use crate::read::merged_leaf::MergedLeaf;
use crate::state::helper::Answer;
use crate::wait::reason::{Step, Unfinished, WaitReason};

/// Number of answers above which those are forgotten that are not asked for again.
const ANSWERS_MAX: usize = 1024;
/// Bytes of answers above which those are forgotten that are not asked for again.
const BYTES_MAX: usize = 16 << 20;
/// Most bytes of answers that a step may need.
const NEEDED_BYTES_MAX: usize = 64 << 20;
/// What an answer takes besides keys and values, about.
const ANSWER_BYTES: usize = 128;

/// What was asked for, in this order, and what was answered.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    asked: VecDeque<Asked>,
    /// Bytes of the questions, and of the answers that have come.
    bytes: usize,
    /// Number of the run.
    run: u64,
    /// Somebody waits for an answer: what is asked next is of another run.
    waits: bool,
    /// The place behind the last one that was asked for: a run asks what the one before has asked.
    cursor: usize,
    ahead: KeptAhead,
}

/// One question.
#[derive(Debug)]
struct Asked {
    tree: TreeId,
    of: Question,
    /// Bytes of question and answer, without the answer until it has come.
    bytes: usize,
    /// The last run that has asked.
    run: u64,
}

#[derive(Debug)]
enum Question {
    Value(Vec<u8>, Reply<FoundValue>),
    Leaf((Bound<Vec<u8>>, Direction), Reply<Arc<ScannedLeaf>>),
}

/// What was found of a key, and the value if it is copied.
type FoundValue = (KeptFound, Arc<Vec<u8>>);

/// What the helper says.
#[derive(Debug)]
enum Reply<T> {
    Awaited(Arc<Answer<T>>),
    Known(T),
}

/// A leaf of a settled snapshot.
#[derive(Debug)]
pub(crate) struct ScannedLeaf {
    pub(crate) records: Box<MergedLeaf>,
    /// Where the scan continues; None at the end.
    pub(crate) next: Option<Vec<u8>>,
    ahead: KeptAhead,
}

impl<T: Clone> Reply<T> {
    /// Returns what was answered, and whether it was not known before.
    fn take(&mut self) -> Step<(T, bool)> {
        let answer = match self {
            Self::Known(known) => return Ok((known.clone(), false)),
            Self::Awaited(answer) => answer,
        };
        let Some(answered) = answer.take() else {
            return Err(WaitReason::Answer(answer.end().clone()).into());
        };
        let answered = answered?;
        *self = Self::Known(answered.clone());
        Ok((answered, true))
    }
}

impl Aside {
    /// Forgets all answers: the step that has asked has ended.
    pub(crate) fn clear(&mut self) {
        self.asked.clear();
        (self.bytes, self.cursor, self.waits) = (0, 0, false);
    }

    /// Returns the place of a question that `is_it` knows, or of a new one, which takes `bytes`.
    ///
    /// # Errors
    /// [`Error::BatchTooLarge`] if the answers that the step needs take too much.
    fn place(
        &mut self,
        (tree, bytes): (TreeId, usize),
        is_it: impl Fn(&Question) -> bool,
        ask: impl FnOnce(&mut Self) -> Question,
    ) -> Result<usize> {
        if std::mem::take(&mut self.waits) {
            self.run += 1;
            self.cursor = 0;
        }
        let known = |asked: &Asked| asked.tree == tree && is_it(&asked.of);
        let next = self.asked.get(self.cursor).filter(|asked| known(asked));
        let place = match next {
            Some(_) => Some(self.cursor),
            None => self.asked.iter().position(known),
        };
        if let Some(place) = place {
            self.asked[place].run = self.run;
            self.cursor = place + 1;
            return Ok(place);
        }
        self.make_room()?;
        let (of, run) = (ask(self), self.run);
        let bytes = bytes + ANSWER_BYTES;
        self.bytes += bytes;
        self.asked.push_back(Asked {
            tree,
            of,
            bytes,
            run,
        });
        self.cursor = self.asked.len();
        Ok(self.asked.len() - 1)
    }

    /// Forgets answers that the step does not ask for any more, oldest first, if there are many.
    fn make_room(&mut self) -> Result<()> {
        let run = self.run;
        while self.asked.len() >= ANSWERS_MAX || self.bytes > BYTES_MAX {
            let Some(place) = self.asked.iter().position(|asked| asked.run + 1 < run) else {
                break;
            };
            self.remove(place);
        }
        if self.bytes > NEEDED_BYTES_MAX {
            return Err(Error::BatchTooLarge {
                bytes: self.bytes,
                limit: NEEDED_BYTES_MAX,
            });
        }
        Ok(())
    }

    fn remove(&mut self, place: usize) {
        let removed = self.asked.remove(place).expect("it is there");
        self.bytes -= removed.bytes;
        if place < self.cursor {
            self.cursor -= 1;
        }
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
        let is_it = |of: &Question| matches!(of, Question::Value(known, _) if known == key);
        let place = self.place((tree.id, key.len()), is_it, |_| {
            let sought = key.to_vec();
            let answer = engine.helper.ask(move |_: &Engine| {
                let mut value = Vec::new();
                let found = settled.open(tree, &sought, &mut value)?;
                Ok((found, Arc::new(value)))
            });
            Question::Value(key.to_vec(), Reply::Awaited(answer))
        })?;
        let Question::Value(_, reply) = &mut self.asked[place].of else {
            unreachable!("it was found as one");
        };
        match reply.take() {
            Ok(((found, value), is_new)) => {
                if is_new {
                    self.note(place, value.len());
                }
                value.as_slice().clone_into(out);
                Ok(found)
            }
            Err(stopped) => Err(self.stopped(place, stopped)),
        }
    }

    /// Returns the leaf of `tree` at `settled` where a scan continues at `from`. Asks for it at the
    /// first call.
    pub(crate) fn scan(
        &mut self,
        engine: &Engine,
        (settled, tree): (Arc<Settled>, Tree),
        (from, direction): (Bound<&[u8]>, Direction),
    ) -> Step<Arc<ScannedLeaf>> {
        let is_it = |of: &Question| match of {
            Question::Leaf((known, of), _) => {
                known.as_ref().map(|key| &key[..]) == from && *of == direction
            }
            Question::Value(..) => false,
        };
        let bytes = match from {
            Bound::Included(key) | Bound::Excluded(key) => key.len(),
            Bound::Unbounded => 0,
        };
        let place = self.place((tree.id, bytes), is_it, |own| {
            let begin = from.map(<[u8]>::to_vec);
            let ahead = own.ahead;
            let answer = engine.helper.ask(move |engine: &Engine| {
                let scanned = scan(engine, (&settled, tree), (&begin, direction), ahead)?;
                Ok(Arc::new(scanned))
            });
            let asked = (from.map(<[u8]>::to_vec), direction);
            Question::Leaf(asked, Reply::Awaited(answer))
        })?;
        let Question::Leaf(_, reply) = &mut self.asked[place].of else {
            unreachable!("it was found as one");
        };
        match reply.take() {
            Ok((scanned, is_new)) => {
                if is_new {
                    self.note(place, scanned.records.memory());
                    self.ahead = scanned.ahead;
                }
                Ok(scanned)
            }
            Err(stopped) => Err(self.stopped(place, stopped)),
        }
    }

    /// Notes that the answer at `place` takes `bytes` bytes.
    fn note(&mut self, place: usize, bytes: usize) {
        self.asked[place].bytes += bytes;
        self.bytes += bytes;
    }

    /// Forgets a question whose answer was an error, or notes that somebody waits for it.
    fn stopped(&mut self, place: usize, stopped: Unfinished) -> Unfinished {
        match stopped {
            Unfinished::Error(_) => self.remove(place),
            _ => self.waits = true,
        }
        stopped
    }
}

/// Copies a leaf. Blocks.
fn scan(
    engine: &Engine,
    (settled, tree): (&Settled, Tree),
    (from, direction): (&Bound<Vec<u8>>, Direction),
    mut ahead: KeptAhead,
) -> Result<ScannedLeaf> {
    let position = KeptPosition {
        from: from.as_ref().map(|key| &key[..]),
        until: Bound::Unbounded,
        direction,
    };
    let (mut leaf, mut merged) = (LeafCopy::new(), None);
    let copies = (&mut leaf, &mut merged);
    let is_merged = engine.scan_settled(settled, tree, position, copies, &mut ahead)?;
    let mut records = merged.unwrap_or_default();
    if !is_merged {
        let all = (position.direction, usize::MAX);
        records.fill(&mut leaf, std::iter::empty(), all);
    }
    Ok(ScannedLeaf {
        records,
        next: leaf.next_key().map(<[u8]>::to_vec),
        ahead,
    })
}
