//! Elements at an end of a large collection that were read with those before them, for the next
//! commands of a pipeline run: ZPOPMIN after ZPOPMIN would else copy the same leaf again and again
//! (decision 102).
//!
//! They are kept with the head of the collection of which they are, and the head is another one
//! after each change of an element. So whoever finds that head, among what is stored or among the
//! writes of the batch, sees the collection of which they are. The command that has removed those
//! before them has written a head for just this state: then they are kept with that. Nobody else
//! gives them another head.

use pando_sync::Arc;
use pandodb::Lsn;

use super::part::{Behind, Goal, Load, Loaded};
use crate::data::elements::Kind;
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

/// Most elements that are kept, and that a command may need at once: others read them itself.
pub(super) const AHEAD_MAX: usize = 16;

/// Where elements lie in the order of a collection: database, the last swap of its table of
/// elements, which rows show them, and whether they are counted from the last one on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    database: usize,
    last_swap: Lsn,
    kind: Kind,
    is_backwards: bool,
}

impl Order {
    fn of(goal: &Goal, is_backwards: bool) -> Self {
        Self {
            database: goal.database,
            last_swap: goal.last_swap,
            kind: goal.kind,
            is_backwards,
        }
    }
}

/// Elements that were read before they are needed.
#[derive(Debug)]
pub(crate) struct Ahead {
    order: Order,
    head: TreeHead,
    /// What lies between the end and them, and was not removed.
    before: Option<Arc<Load>>,
    /// From the end on, as in [`Load`].
    strings: Strings,
    positions: Strings,
    /// Place of the first one that is left.
    next: usize,
}

impl Ahead {
    /// Keeps what was read behind the elements of `load`; `None` if nothing was.
    pub(super) fn behind(load: &Arc<Load>, behind: Behind) -> Option<Self> {
        (behind.strings.len() > 0).then(|| Self {
            order: Order::of(&load.goal, load.goal.is_backwards),
            head: load.goal.head,
            before: Some(load.clone()),
            strings: behind.strings,
            positions: behind.positions,
            next: 0,
        })
    }

    /// Returns what `goal` asks for, elements at an end, if these are they.
    pub(super) fn take(&mut self, goal: &Goal, is_backwards: bool) -> Option<Arc<Load>> {
        let is_it = self.before.is_none()
            && self.head == goal.head
            && self.order == Order::of(goal, is_backwards)
            && self.left(goal.strings_of_one()) >= goal.count;
        if !is_it {
            return None;
        }
        let mut load = Load::new(goal.clone());
        self.fill(&mut load);
        load.strings.seal();
        let load = Arc::new(load);
        self.before = Some(load.clone());
        Some(load)
    }

    /// Notes that all elements of `loaded` were removed, none was added, and the collection has the
    /// head `head` now.
    pub(super) fn note_removed(&mut self, loaded: &Loaded, head: &TreeHead) {
        if let Some(before) = &self.before
            && Arc::ptr_eq(before, &loaded.load)
        {
            self.before = None;
            self.head = *head;
        }
    }

    /// Returns the number of elements that are left.
    fn left(&self, of_one: usize) -> usize {
        self.strings.len() / of_one - self.next
    }

    /// Moves the next elements to `load`, as many as it needs.
    fn fill(&mut self, load: &mut Load) {
        let (of_one, count) = (load.goal.strings_of_one(), load.goal.count);
        let places = self.next..self.next + count;
        load.make_room(count);
        for place in places.clone() {
            let strings = place * of_one..(place + 1) * of_one;
            strings.for_each(|at| load.strings.push(self.strings.at(at)));
            if load.goal.kind == Kind::Position {
                load.positions.push(self.positions.at(place));
            }
        }
        load.left = 0;
        load.put_in_order(self.order.is_backwards);
        self.next = places.end;
    }
}
