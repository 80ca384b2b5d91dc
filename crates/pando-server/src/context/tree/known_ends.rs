//! Where the blocks at the ends of lists are whose positions are not all numbers.
//!
//! The head of such a list tells no more than a number below all of them, and one above. Behind
//! that there may be many blocks that were removed: in an EXEC they lie in its pages until it ends,
//! and each pop would pass over all of those before it. So the connection remembers where a command
//! has found the end. A head is that of one state of its list, since it is another one after each
//! change: whoever finds the same one finds the same block.

use super::list_end::{EndBlock, ListEnd};
use crate::data::tree_head::TreeHead;

/// Most ends that are remembered.
const ENDS_MAX: usize = 16;

/// An end of a list.
#[derive(Debug)]
struct KnownEnd {
    database: usize,
    head: TreeHead,
    end: ListEnd,
    /// That of the block there, or of one that is gone, beyond which there is none.
    position: Vec<u8>,
}

/// Ends of lists, those that were found last behind the others.
#[derive(Debug, Default)]
pub(crate) struct KnownEnds(Vec<KnownEnd>);

impl KnownEnds {
    /// Returns a position beyond which there is none at this end of the list with this head.
    pub(super) fn of(&self, database: usize, head: &TreeHead, end: ListEnd) -> Option<&[u8]> {
        let is_it = |of: &&KnownEnd| of.database == database && of.head == *head && of.end == end;
        self.0.iter().find(is_it).map(|of| &of.position[..])
    }

    /// Notes that a command has given a list the head `after`, and that `last` is or was the block
    /// at this end. The other end is where it was.
    pub(super) fn note(
        &mut self,
        database: usize,
        (before, after): (&TreeHead, &TreeHead),
        (end, last): (ListEnd, &EndBlock),
    ) {
        if after.is_numbered {
            return;
        }
        let is_of_list = |of: &&mut KnownEnd| of.database == database && of.head == *before;
        for other in self.0.iter_mut().filter(is_of_list) {
            other.head = *after;
        }
        let is_it = |of: &KnownEnd| of.database == database && of.head == *after && of.end == end;
        let place = self.0.iter().position(is_it);
        let mut known = match place {
            Some(place) => self.0.remove(place),
            None if self.0.len() == ENDS_MAX => self.0.remove(0),
            None => KnownEnd {
                database,
                head: *after,
                end,
                position: Vec::new(),
            },
        };
        // A run that is repeated comes to a state in which another one has been: what it has noted
        // before is of an earlier state then.
        self.0.retain(|of| !is_it(of));
        (known.database, known.head, known.end) = (database, *after, end);
        known.position.clear();
        known.position.extend_from_slice(&last.position);
        self.0.push(known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_those_of_one_state() {
        let mut ends = KnownEnds::default();
        let head = |id, edition| TreeHead {
            edition,
            is_numbered: false,
            ..TreeHead::new_blocks(id)
        };
        let block = |position: &[u8]| EndBlock {
            position: position.to_vec(),
            ..EndBlock::default()
        };
        let (first, last) = (ListEnd::Head, ListEnd::Tail);
        let (one, two, three) = (head(1, 1), head(1, 2), head(1, 3));
        ends.note(0, (&one, &two), (first, &block(b"a")));
        assert_eq!(ends.of(0, &two, first), Some(&b"a"[..]));
        for (database, head, end) in [(0, &one, first), (1, &two, first), (0, &two, last)] {
            assert_eq!(ends.of(database, head, end), None);
        }
        ends.note(0, (&two, &three), (last, &block(b"z")));
        assert_eq!(ends.of(0, &two, first), None);
        assert_eq!(ends.of(0, &three, first), Some(&b"a"[..]));
        assert_eq!(ends.of(0, &three, last), Some(&b"z"[..]));
        // Others take the places of those that were not used for the longest time.
        for id in 2..16 {
            ends.note(0, (&head(id, 1), &head(id, 2)), (first, &block(b"b")));
        }
        assert_eq!(ends.of(0, &three, first), Some(&b"a"[..]));
        ends.note(0, (&three, &head(1, 4)), (last, &block(b"y")));
        ends.note(0, (&head(16, 1), &head(16, 2)), (first, &block(b"b")));
        assert_eq!(ends.of(0, &head(1, 4), first), None);
        assert_eq!(ends.of(0, &head(1, 4), last), Some(&b"y"[..]));
        assert_eq!(ends.of(0, &head(16, 2), first), Some(&b"b"[..]));
        // Runs that are repeated leave one that is known.
        let mut ends = KnownEnds::default();
        for _ in 0..3 {
            ends.note(0, (&one, &two), (first, &block(b"n")));
            ends.note(0, (&two, &three), (first, &block(b"m")));
            assert_eq!(ends.of(0, &three, first), Some(&b"m"[..]));
        }
        // The head tells where those are that have numbers.
        ends.note(
            0,
            (&head(17, 1), &TreeHead::new_blocks(17)),
            (first, &block(b"b")),
        );
        assert_eq!(ends.of(0, &TreeHead::new_blocks(17), first), None);
    }
}
