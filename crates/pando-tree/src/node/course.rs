//! Finds out whether insertions into a leaf keep going to one place, from the positions of its
//! records (decision 023).
//!
//! Each new record is put before all others in the heap, so of two records the one at the lower
//! offset is the newer one. Rebuilding a node lays out its records as an ascending load would have.
//! Insertions that went to one place, each just after or just before the previous one, leave
//! records next to that place that are newer the nearer they are to it, and newer than the record
//! on its other side. So every leaf knows its own course, whoever inserts, and without a word of
//! state. The result is a guess: it decides where a full leaf is cut, and nothing else.

use super::view::Node;
use crate::word::Word;

/// Maximum number of neighbours that are compared. Random insertions look like a run about once in
/// a hundred times.
const RUN_MAX: usize = 8;
/// Minimum number of neighbours. For a leaf with few records, half of them are compared.
const RUN_MIN: usize = 4;

/// The direction in which insertions at one place continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Towards greater keys.
    Up,
    /// Towards smaller keys.
    Down,
}

/// Returns the course of the run of insertions that an entry put at `index` continues, None if
/// there is no such run.
pub fn course_at<W: Word>(node: &Node<'_, W>, index: usize) -> Option<Course> {
    let count = node.count();
    let behind = count.checked_sub(index)?;
    let length = (count / 2).clamp(RUN_MIN, RUN_MAX);
    let newer = |one: usize, other: usize| node.slot(one).offset() < node.slot(other).offset();
    let goes_up = || {
        (behind == 0 || newer(index - 1, index))
            && (1..length).all(|step| newer(index - step, index - step - 1))
    };
    let goes_down = || {
        (index == 0 || newer(index, index - 1))
            && (1..length).all(|step| newer(index + step - 1, index + step))
    };
    if index >= length && goes_up() {
        Some(Course::Up)
    } else if behind >= length && goes_down() {
        Some(Course::Down)
    } else {
        None
    }
}
