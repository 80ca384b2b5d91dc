//! Walks over the rows of a large list, from one of its ends, for an element (decision 120): they
//! search it ([`Search`]), or remove it ([`Removal`]); or for what goes at an end ([`Trim`]).
//! `walks.rs` drives them.
//!
//! A walk reads leaf by leaf, gives others a turn now and then, and keeps where it stands in the
//! progress of its command: so it takes memory for what it has found, and not for the list. It is
//! of one state of the list, whose head its goal has. The next run goes on with it if it finds the
//! same head, and else begins again, as one that loads a part (`load.rs`).

use std::ops::Bound;

use pando_sync::Arc;
use pandodb::Lsn;

use super::list_end::ListEnd;
use super::list_row::RowOf;
use super::removal::Removal;
use super::search::Search;
use super::trim::Trim;
use crate::context::interrupted::{Interrupted, Run};
use crate::data::elements::{self, Kind};
use crate::data::tree_head::TreeHead;

/// What a walk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Search {
        is_backwards: bool,
        /// Number of matches that are passed over.
        skipped: usize,
        /// So many matches are enough.
        most: usize,
        /// Number of elements that are compared.
        compared: usize,
    },
    Trim {
        end: ListEnd,
        /// Number of elements that go.
        count: usize,
    },
    Removal {
        /// Matches before this place stay.
        from: usize,
        /// Number of matches that go.
        most: usize,
    },
}

impl Task {
    /// Returns true if a run of a command has at most one walk of this and of that kind.
    fn is_like(self, other: Self) -> bool {
        match (self, other) {
            (Self::Trim { end, .. }, Self::Trim { end: other, .. }) => end == other,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }

    fn is_backwards(self) -> bool {
        match self {
            Self::Search { is_backwards, .. } => is_backwards,
            Self::Trim { end, .. } => end == ListEnd::Tail,
            Self::Removal { .. } => false,
        }
    }
}

/// What a walk is for, in which state of which list, and for which command of EXEC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WalkGoal {
    pub(super) exec_index: Option<usize>,
    pub(super) database: usize,
    pub(super) last_swap: Lsn,
    pub(super) head: TreeHead,
    /// Length and hash of the element: a script may call another command in its next run.
    pub(super) element: (usize, u64),
    pub(super) task: Task,
}

/// What it does with each row.
#[derive(Debug)]
pub(super) enum Work {
    Search(Search),
    Trim(Trim),
    Removal(Removal),
}

/// A walk that is under way, or has ended.
#[derive(Debug)]
pub(crate) struct ListWalk {
    pub(super) goal: WalkGoal,
    /// Where it goes on.
    pub(super) from: Bound<Vec<u8>>,
    pub(super) is_backwards: bool,
    /// Number of leaves that were read since others had a turn. A run that waits for a page plays
    /// back the head that it has read before, and would not see that it is another one.
    pub(super) leaves: usize,
    pub(super) work: Work,
}

/// The walks of a command; one of EXEC or a script may have one for each of its commands.
#[derive(Debug, Default)]
pub(crate) struct ListWalks {
    pub(super) open: Vec<ListWalk>,
    pub(super) ended: Vec<Arc<ListWalk>>,
}

impl ListWalks {
    /// Returns the memory that they take, about.
    pub(in crate::context) fn bytes(&self) -> usize {
        let open = self.open.iter().map(ListWalk::bytes);
        let ended = self.ended.iter().map(|walk| walk.bytes());
        open.chain(ended).sum()
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        if self.open.capacity() + self.ended.capacity() > 0 {
            *self = Self::default();
        }
    }

    pub(super) fn ended(&self, goal: &WalkGoal) -> Option<Arc<ListWalk>> {
        self.ended.iter().find(|walk| walk.goal == *goal).cloned()
    }

    /// Takes out the walk for `goal` that is under way, if there is one. Else forgets those of the
    /// same command in other states of its list, and returns how many these are.
    pub(super) fn take(&mut self, goal: &WalkGoal) -> Result<ListWalk, u32> {
        if let Some(place) = self.open.iter().position(|walk| walk.goal == *goal) {
            return Ok(self.open.swap_remove(place));
        }
        let place = |of: &WalkGoal| (of.exec_index, of.database);
        let state = |of: &WalkGoal| (of.head, of.last_swap);
        let stays = |of: &WalkGoal| {
            place(of) != place(goal) || state(of) == state(goal) || !of.task.is_like(goal.task)
        };
        let is_of_list = |of: &WalkGoal| !stays(of) && of.head.id == goal.head.id;
        let ended = self.ended.iter().map(|walk| &walk.goal);
        let goals = self.open.iter().map(|walk| &walk.goal).chain(ended);
        let begun = goals.filter(|of| is_of_list(of)).count();
        self.open.retain(|walk| stays(&walk.goal));
        self.ended.retain(|walk| stays(&walk.goal));
        Err(u32::try_from(begun).unwrap_or(u32::MAX))
    }
}

impl ListWalk {
    /// Returns a walk that begins at an end, or at the row with this position.
    pub(super) fn new(goal: WalkGoal, position: Option<&[u8]>, work: Work) -> Self {
        let is_backwards = goal.task.is_backwards();
        let id = goal.head.id;
        let from = match position {
            Some(position) => {
                let mut key = Vec::new();
                elements::position_key(id, position, &mut key);
                Bound::Included(key)
            }
            None if is_backwards => Bound::Excluded(elements::behind(id, Kind::Position).to_vec()),
            None => Bound::Included(elements::start(id, Kind::Position).to_vec()),
        };
        Self {
            goal,
            from,
            is_backwards,
            leaves: 0,
            work,
        }
    }

    /// Returns the memory that it takes besides itself, about.
    pub(super) fn bytes(&self) -> usize {
        match &self.work {
            Work::Search(search) => search.bytes(),
            Work::Trim(trim) => Removal::bytes_of(trim.edits()),
            Work::Removal(removal) => removal.bytes(),
        }
    }

    /// Passes a row. Returns true if no other one is needed.
    pub(super) fn pass(
        &mut self,
        key: &[u8],
        row: &RowOf<'_>,
        element: &[u8],
    ) -> Result<bool, Interrupted> {
        let position = elements::position_of(key);
        match &mut self.work {
            Work::Search(search) => search.pass(position, row, element),
            Work::Trim(trim) => trim.pass(position, row),
            Work::Removal(removal) => removal.pass(position, row, element),
        }
    }

    /// Ends it behind the last row that was needed, which is the last one of the list if
    /// `is_at_end`.
    pub(super) fn end(&mut self, is_at_end: bool) -> Run {
        let passed = match &mut self.work {
            Work::Search(search) => search.passed(),
            Work::Trim(trim) => trim.passed(),
            Work::Removal(removal) => removal.end(is_at_end)?,
        };
        match is_at_end && passed != self.goal.head.len() {
            true => Err(Interrupted::Torn),
            false => Ok(()),
        }
    }

    /// Returns true if it has to know a long element of so many bytes.
    pub(super) fn wants(&self, bytes: usize) -> bool {
        let is_as_long = bytes == self.goal.element.0;
        match &self.work {
            Work::Search(_) => is_as_long,
            Work::Trim(_) => false,
            Work::Removal(removal) => is_as_long || removal.keeps_rest(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goal(edition: u64, end: ListEnd) -> WalkGoal {
        WalkGoal {
            exec_index: None,
            database: 0,
            last_swap: Lsn::default(),
            head: TreeHead {
                edition,
                ..TreeHead::new_blocks(1)
            },
            element: (0, 0),
            task: Task::Trim { end, count: 1 },
        }
    }

    /// A walk that is under way is of one state; those of other kinds stay.
    #[test]
    fn walks_go_on_in_the_state_in_which_they_have_begun() {
        let mut walks = ListWalks::default();
        let walk = |goal| ListWalk::new(goal, None, Work::Trim(Trim::new(ListEnd::Head, 1)));
        let (head, tail) = (goal(1, ListEnd::Head), goal(1, ListEnd::Tail));
        walks.open.extend([walk(head), walk(tail)]);
        walks.ended.push(Arc::new(walk(head)));
        assert!(walks.ended(&head).is_some() && walks.ended(&goal(2, ListEnd::Head)).is_none());
        assert_eq!(walks.take(&goal(2, ListEnd::Head)).err(), Some(2));
        assert!(walks.ended(&head).is_none());
        assert_eq!(walks.take(&tail).map(|walk| walk.goal).ok(), Some(tail));
        assert_eq!(walks.take(&tail).err(), Some(0));
    }
}
