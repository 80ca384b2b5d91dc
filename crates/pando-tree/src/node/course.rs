//! Whether insertions into a leaf keep going to one place, read from where its records
//! lie (decision 023).
//!
//! A record is put in front of all others in the heap, so of two records the one at the lower
//! offset is the newer; building a node anew lays its records as an ascending load would have.
//! Insertions that went to one place, each just behind or just in front of the one before, show as
//! neighbours of that place that are newer the nearer they are, and newer than what lies on its
//! other side. So every leaf knows its own, whoever inserts and wherever else, for no word of
//! state. What is told is a guess: it decides where a full leaf is cut, and nothing else.

use super::view::Node;
use crate::word::Word;

/// Most neighbours that are looked at. Insertions at random look like a run about once in a
/// hundred times.
const RUN_MAX: usize = 8;
/// Fewest: of a leaf with few records, as many as half of it.
const RUN_MIN: usize = 4;

/// Where insertions at one place go on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// To greater keys.
    Up,
    /// To smaller keys.
    Down,
}

/// The course of the run of insertions that an entry put at `index` goes on with.
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
