//! Driving the walks over large lists (`list_walk.rs`, decision 120).

use std::ops::Bound;

use pando_sync::Arc;
use pandodb::Table;
use pandodb::nonblocking::Polled;

use super::changes::less;
use super::list_end::ListEnd;
use super::list_row::RowOf;
use super::list_walk::{ListWalk, Task, WalkGoal, Work};
use super::removal::Removal;
use super::search::{Search, Sought, Spot};
use super::source::Source;
use super::trim::Trim;
use crate::context::{Context, Data, Found, Interrupted, Run, replies};
use crate::data::elements::{self, Kind};
use crate::data::keyspace::{Times, ValueType};
use crate::data::list_block::{self, Elements};
use crate::data::packed::{Encoding, Strings};
use crate::data::tree_head::TreeHead;

/// Most rows of a leaf that has writes of the same transaction which are read at once.
const ROWS_MAX: usize = 256;
/// Up to this place, a walk to matches near the end of the list begins at its head: it may find
/// that little is left.
const NEAR: usize = 512;

/// A search that has ended.
pub(crate) struct Places(Arc<ListWalk>);

impl Places {
    fn search(&self) -> &Search {
        match &self.0.work {
            Work::Search(search) => search,
            _ => unreachable!("it is a search"),
        }
    }

    /// Returns the places, in the order in which they were found.
    pub(crate) fn all(&self) -> &[usize] {
        self.search().places()
    }

    /// Returns where the last one is.
    pub(crate) fn last(&self) -> Option<&Spot> {
        self.search().last()
    }
}

/// A removal of which nothing is written yet.
pub(crate) struct Removed(Arc<ListWalk>);

impl Removed {
    fn removal(&self) -> &Removal {
        match &self.0.work {
            Work::Removal(removal) => removal,
            _ => unreachable!("it is a removal"),
        }
    }

    /// Returns the number of elements that go.
    pub(crate) fn count(&self) -> usize {
        self.removal().removed()
    }

    /// Returns all that is left of the list, if it is little.
    pub(crate) fn rest(&self) -> Option<&Strings> {
        self.removal().rest()
    }
}

impl Context<'_> {
    /// Searches the list with this head, which was read last.
    pub(crate) fn search_list(
        &mut self,
        head: TreeHead,
        sought: &Sought<'_>,
    ) -> Result<Places, Interrupted> {
        let task = Task::Search {
            is_backwards: sought.is_backwards,
            skipped: sought.skipped,
            most: sought.most,
            compared: sought.compared,
        };
        let goal = self.walk_goal(head, sought.element, task);
        let search = Search::new(sought, head.len());
        let begin = |goal| ListWalk::new(goal, None, Work::Search(search));
        let walk = self.walked(goal, sought.element, begin);
        self.confirmed(head, walk).map(Places)
    }

    /// Finds the elements equal to `element` in the list with this head, which was read last: up to
    /// `most` from the first one on, or from the last one on. What is left may be told if it has
    /// no more than about `rest_bytes_max` bytes.
    pub(crate) fn find_equal(
        &mut self,
        head: TreeHead,
        element: &[u8],
        (most, is_backwards): (usize, bool),
        rest_bytes_max: usize,
    ) -> Result<Removed, Interrupted> {
        let (mut from, mut position) = (0, None);
        let mut most = most;
        if is_backwards {
            let sought = Sought {
                is_backwards,
                skipped: most - 1,
                ..Sought::first(element)
            };
            let places = self.search_list(head, &sought)?;
            if let Some(spot) = places.last() {
                from = spot.place;
                position = (spot.first > NEAR).then(|| (spot.first, spot.position.clone()));
            }
            // If there are fewer, all of them go, and if there are none, nothing is looked for.
            most = places.search().seen().min(most);
        }
        let goal = self.walk_goal(head, element, Task::Removal { from, most });
        let passed = position.as_ref().map_or(0, |(first, _)| *first);
        let removal = Removal::new(head, passed, (from, most), rest_bytes_max);
        let begin = |goal| {
            let position = position.as_ref().map(|(_, position)| &position[..]);
            ListWalk::new(goal, position, Work::Removal(removal))
        };
        self.walked(goal, element, begin).map(Removed)
    }

    /// Writes what was found to be removed from the list at `key`, of which something is left.
    pub(crate) fn put_removal(
        &mut self,
        key: &[u8],
        (found, encoding): (&Found, Encoding),
        removed: &Removed,
    ) -> Run {
        let removal = removed.removal();
        let mut head = removed.0.goal.head;
        removal.lower(&mut head)?;
        self.put_edits(key, (found, encoding), head, removal.edits())
    }

    /// Removes so many elements at an end of the list at `key`, which has this head and was read
    /// last. Something is left of it.
    pub(crate) fn trim_list(
        &mut self,
        key: &[u8],
        (found, encoding): (&Found, Encoding),
        mut head: TreeHead,
        (end, count): (ListEnd, usize),
    ) -> Run {
        let goal = self.walk_goal(head, b"", Task::Trim { end, count });
        let begin = |goal| ListWalk::new(goal, None, Work::Trim(Trim::new(end, count)));
        let walk = self.walked(goal, b"", begin)?;
        let Work::Trim(trim) = &walk.work else {
            unreachable!("it trims");
        };
        let was_dense = head.is_dense();
        head.count = less(head.count, count as u64)?;
        trim.gone().narrow(end, &mut head, was_dense);
        self.put_edits(key, (found, encoding), head, trim.edits())
    }

    /// Writes rows of the list at `key`, and its head, which has the edition of before.
    fn put_edits(
        &mut self,
        key: &[u8],
        (found, encoding): (&Found, Encoding),
        mut head: TreeHead,
        edits: &Strings,
    ) -> Run {
        let mut changes = self.changes(&head)?;
        for place in (0..edits.len()).step_by(2) {
            let (position, row) = (edits.at(place), edits.at(place + 1));
            if row.is_empty() {
                changes.delete_element(head.id, position);
                continue;
            }
            elements::position_key(head.id, position, &mut changes.key);
            changes.row.clear();
            changes.row.extend_from_slice(row);
            changes.put_at_position()?;
        }
        let buffers = changes.finish(&mut head);
        self.give_back(buffers);
        let times = Times {
            deadline: found.deadline(),
            fields: None,
        };
        let what = ((ValueType::List, encoding), &head);
        self.put_tree_head(key, what, times, found.former.but_tree())
    }

    /// Returns the goal of a walk for `element` over the list with this head, which was read last.
    pub(super) fn walk_goal(&self, head: TreeHead, element: &[u8], task: Task) -> WalkGoal {
        WalkGoal {
            exec_index: self.exec_index,
            database: self.session.database,
            last_swap: self.last_swap(),
            head,
            element: (element.len(), self.engine().element_keys.hash(element)),
            task,
        }
    }

    /// Walks to the end. `begin` makes the walk, if no run before this one has begun it.
    pub(super) fn walked(
        &mut self,
        goal: WalkGoal,
        element: &[u8],
        begin: impl FnOnce(WalkGoal) -> ListWalk,
    ) -> Result<Arc<ListWalk>, Interrupted> {
        if let Some(ended) = self.progress.list_walks.ended(&goal) {
            return Ok(ended);
        }
        let members = self.members()?;
        let mut walk = match self.progress.list_walks.take(&goal) {
            Ok(walk) => walk,
            Err(restarts) => {
                self.progress.restarts += restarts;
                begin(goal)
            }
        };
        let (before, most) = (self.loaded_bytes(), self.engine().reply_bytes_max);
        let mut result = Ok(false);
        while walk.leaves < self.leaves_of_turn() {
            result = self.walk_leaf(members, &mut walk, element);
            if before + walk.bytes() > most {
                return Err(replies::TOO_LONG_TO_LOAD.into());
            }
            if !matches!(result, Ok(false)) {
                break;
            }
        }
        let interrupted = match result {
            Ok(true) => {
                let walk = Arc::new(walk);
                self.progress.list_walks.ended.push(walk.clone());
                return Ok(walk);
            }
            Ok(false) => {
                walk.leaves = 0;
                self.progress.turns += 1;
                Interrupted::Yield
            }
            Err(interrupted) => interrupted,
        };
        if matches!(interrupted, Interrupted::Pending(_) | Interrupted::Yield) {
            self.progress.list_walks.open.push(walk);
        }
        Err(interrupted)
    }

    /// Reads one leaf. Returns true if the walk has ended.
    fn walk_leaf(
        &mut self,
        members: &Table,
        walk: &mut ListWalk,
        element: &[u8],
    ) -> Result<bool, Interrupted> {
        let head = walk.goal.head;
        let prefix = elements::start(head.id, Kind::Position);
        let end = elements::behind(head.id, Kind::Position);
        let until = match walk.is_backwards {
            false => Bound::Excluded(&end[..]),
            true => Bound::Included(&prefix[..]),
        };
        let Data { batch, scratch, .. } = self.data();
        let mut source = Source::new(batch.as_deref_mut());
        let (page, buffer) = (&mut scratch.page, &mut scratch.element_row);
        let range = (
            (walk.from.as_ref().map(Vec::as_slice), until),
            walk.is_backwards,
        );
        if let Polled::Pending(pending) = source.scan(members, range, ROWS_MAX, page)? {
            return Err(Interrupted::Pending(pending));
        }
        walk.leaves += 1;
        let mut ended = None;
        for index in 0..page.len() {
            let (key, value) = page.entry(index);
            if !key.starts_with(&prefix) {
                ended = Some(true);
                break;
            }
            let row = match row_of(members, walk, &mut source, (key, value, &mut *buffer)) {
                Ok(row) => row,
                Err(interrupted) => {
                    // The next run goes on with this row.
                    walk.from = Bound::Included(key.to_vec());
                    return Err(interrupted);
                }
            };
            if walk.pass(key, &row, element)? {
                ended = Some(false);
                break;
            }
        }
        let shown_from = source.shown_from;
        match page.next.take() {
            _ if ended.is_some() => {}
            None => ended = Some(true),
            Some(next) if walk.is_backwards => walk.from = Bound::Excluded(next),
            Some(next) => walk.from = Bound::Included(next),
        }
        self.progress.show_from(shown_from);
        if let Some(is_at_end) = ended {
            walk.end(is_at_end)?;
        }
        Ok(ended.is_some())
    }
}

/// Returns a row, of which a part may lie beside its leaf.
fn row_of<'r>(
    members: &Table,
    walk: &ListWalk,
    source: &mut Source<'_>,
    (key, value, buffer): (&[u8], Option<&'r [u8]>, &'r mut Vec<u8>),
) -> Result<RowOf<'r>, Interrupted> {
    let is_blocks = walk.goal.head.is_blocks;
    let decode = |row: &'r [u8]| match is_blocks {
        true => Elements::of(row),
        false => Elements::of_one(row),
    };
    if let Some(row) = value {
        return Ok(RowOf::Read(row, decode(row)?));
    }
    if matches!(walk.work, Work::Trim(_)) {
        return Ok(RowOf::Unread);
    }
    let length = match source.length(members, key, buffer)? {
        Polled::Pending(pending) => return Err(Interrupted::Pending(pending)),
        Polled::Ready(length) => length.ok_or(Interrupted::Torn)?,
    };
    if !walk.wants(list_block::long_bytes(length)) {
        return Ok(RowOf::Unread);
    }
    match source.get(members, key, buffer)? {
        Polled::Pending(pending) => Err(Interrupted::Pending(pending)),
        Polled::Ready(false) => Err(Interrupted::Torn),
        Polled::Ready(true) => Ok(RowOf::Read(buffer, decode(buffer)?)),
    }
}
