//! Writing what has changed in the loaded part of a list in blocks (`data/list_block.rs`).
//!
//! A part consists of whole blocks. Each keeps what is left of its elements, and gets those that
//! were added behind them; before them only if it is the first one that was loaded. Blocks in which
//! nothing has changed are not written. One that becomes small is joined to a neighbour that was
//! loaded; one that becomes too long is cut, and the new blocks get positions behind its own: the
//! next numbers if it is the last one of the list, else byte strings between its own and the next
//! one. What is put before the head of a list gets the numbers below the first one.

use std::ops::Range;

use super::block_cut::{Cut, Overflow, are_small, block_row, short_ones};
use super::changes::{Changes, less};
use super::list_end::ListEnd;
use super::part::Loaded;
use super::position::{Gap, Opening, Places};
use crate::context::Run;
use crate::data::elements;
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

/// Blocks that follow each other, and the elements that they are to have together.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Section {
    /// Numbers of the blocks, among those that were loaded.
    blocks: Range<usize>,
    /// Places among the new elements.
    elements: Range<usize>,
    has_changed: bool,
}

/// Returns the blocks with their new elements: `counts` says how many each has had.
fn sections(counts: &[usize], gaps: &[Gap], new_len: usize) -> Vec<Section> {
    let mut sections = Vec::with_capacity(counts.len());
    let mut gaps = gaps.iter().peekable();
    let (mut old_start, mut new_start) = (0, 0);
    for (block, count) in counts.iter().enumerate() {
        let old_end = old_start + count;
        let (mut new_end, mut has_changed) = (new_start + count, false);
        // What the last gap has removed beyond the end of its block.
        while let Some(gap) = gaps.peek() {
            let begins_here = gap.deleted.start < old_end
                || (gap.deleted.start == old_end && gap.deleted.is_empty());
            if !begins_here {
                break;
            }
            has_changed = true;
            let from = gap.deleted.start.max(old_start);
            let to = gap.deleted.end.min(old_end);
            new_end -= to.saturating_sub(from);
            if gap.deleted.start >= old_start {
                new_end += gap.added.len();
            }
            if gap.deleted.end > old_end {
                break;
            }
            gaps.next();
        }
        sections.push(Section {
            blocks: block..block + 1,
            elements: new_start..new_end,
            has_changed,
        });
        (old_start, new_start) = (old_end, new_end);
    }
    debug_assert!(
        counts.is_empty() || new_start == new_len,
        "elements belong to blocks"
    );
    sections
}

/// Joins neighbours of which one has changed and one has become small.
fn join_small(sections: Vec<Section>, new: &Strings) -> Vec<Section> {
    let mut joined: Vec<Section> = Vec::with_capacity(sections.len());
    for section in sections {
        if let Some(last) = joined.last_mut()
            && (last.has_changed || section.has_changed)
            && are_small(
                short_ones(new, last.elements.clone().rev()),
                short_ones(new, section.elements.clone()),
            )
        {
            last.blocks.end = section.blocks.end;
            last.elements.end = section.elements.end;
            last.has_changed = true;
            continue;
        }
        joined.push(section);
    }
    joined
}

/// What becomes of the blocks that were loaded.
pub(super) struct Plan {
    /// Those of which something changes.
    changed: Vec<Recut>,
    /// How many blocks at the beginning of the part go, and at its end.
    gone: (usize, usize),
}

/// A section, and the elements of each block that it is to have.
struct Recut {
    section: Section,
    blocks: Vec<Range<usize>>,
    overflow: Overflow,
}

impl Plan {
    pub(super) fn new(loaded: &Loaded, gaps: &[Gap], new: &Strings) -> Self {
        let counts = &loaded.load.counts;
        let is_put_before = loaded.first == 0
            && gaps
                .first()
                .is_some_and(|gap| gap.deleted.start == 0 && !gap.added.is_empty());
        let sections = join_small(sections(counts, gaps, new.len()), new);
        let is_gone = |of: &&Section| of.elements.is_empty();
        let first = sections.iter().take_while(is_gone).last();
        let last = sections.iter().rev().take_while(is_gone).last();
        let gone = (
            first.map_or(0, |of| of.blocks.end),
            last.map_or(0, |of| counts.len() - of.blocks.start),
        );
        let recut = |section: Section| {
            let overflow = match (section.blocks.start, section.blocks.end) {
                (0, _) if is_put_before => Overflow::Before,
                (_, end) if end == counts.len() && loaded.reaches_end() => Overflow::Behind,
                _ => Overflow::Between,
            };
            let elements = section.elements.clone();
            let blocks = Cut::of(overflow, new, elements.clone()).blocks(new, elements);
            Recut {
                section,
                blocks,
                overflow,
            }
        };
        let changed = sections.into_iter().filter(|of| of.has_changed).map(recut);
        Self {
            changed: changed.collect(),
            gone,
        }
    }

    /// Returns where blocks are put between others.
    pub(super) fn openings(&self) -> Vec<Opening> {
        let between = self.changed.iter().filter(|of| {
            of.overflow == Overflow::Between && of.blocks.len() > of.section.blocks.len()
        });
        let opening = |of: &Recut| Opening {
            below: of.section.blocks.end - 1,
            missing: of.blocks.len() - of.section.blocks.len(),
        };
        between.map(opening).collect()
    }
}

impl Changes<'_> {
    /// Writes the blocks of a list that have changed.
    pub(super) fn blocks(
        &mut self,
        head: &mut TreeHead,
        (loaded, plan): (&Loaded, &Plan),
        mut places: Places<'_>,
        (gaps, new): (&[Gap], &Strings),
    ) -> Run {
        for gap in gaps {
            head.count += gap.added.len() as u64;
            head.count = less(head.count, gap.deleted.len() as u64)?;
        }
        if loaded.load.counts.is_empty() {
            for of in Cut::FULL.blocks(new, 0..new.len()) {
                head.high += 1;
                self.put_block(head.id, &head.high.to_be_bytes(), (new, of))?;
            }
            return Ok(());
        }
        for recut in &plan.changed {
            self.section(head, recut, &mut places, new)?;
        }
        // The ends of the positions follow blocks that are gone.
        let positions = &places.loaded;
        if let (first @ 1.., true) = (plan.gone.0, loaded.first == 0) {
            head.narrow(ListEnd::Head, positions.at(first - 1));
        }
        if let (last @ 1.., true) = (plan.gone.1, loaded.reaches_end()) {
            head.narrow(ListEnd::Tail, positions.at(positions.len() - last));
        }
        Ok(())
    }

    /// Writes the blocks of a section.
    fn section(
        &mut self,
        head: &mut TreeHead,
        recut: &Recut,
        of_list: &mut Places<'_>,
        new: &Strings,
    ) -> Run {
        let (old, blocks) = (recut.section.blocks.clone(), &recut.blocks);
        let missing = blocks.len().saturating_sub(old.len());
        let mut places: Vec<Vec<u8>> = Vec::with_capacity(blocks.len());
        if recut.overflow == Overflow::Before {
            head.low -= missing as u64;
            let numbers = head.low..head.low + missing as u64;
            places.extend(numbers.map(|number| number.to_be_bytes().to_vec()));
        }
        let kept = old.clone().take(blocks.len());
        places.extend(kept.map(|block| of_list.loaded.at(block).to_vec()));
        while places.len() < blocks.len() {
            if recut.overflow == Overflow::Between {
                places.push(of_list.next_between());
                continue;
            }
            head.high += 1;
            places.push(head.high.to_be_bytes().to_vec());
        }
        for block in old.skip(blocks.len()) {
            self.delete_element(head.id, of_list.loaded.at(block));
        }
        for (position, block) in places.iter().zip(blocks) {
            self.put_block(head.id, position, (new, block.clone()))?;
        }
        Ok(())
    }

    /// Writes the elements at these places, which fit, as a block.
    fn put_block(&mut self, id: u64, position: &[u8], of: (&Strings, Range<usize>)) -> Run {
        block_row(of, &mut self.row);
        elements::position_key(id, position, &mut self.key);
        self.put_at_position()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns which blocks share a section: the second one has changed, and they have
    /// so many elements of so many bytes.
    fn joined(blocks: &[(usize, usize)]) -> Vec<(usize, usize)> {
        let (mut strings, mut sections) = (Strings::default(), Vec::new());
        for (number, (elements, bytes)) in blocks.iter().enumerate() {
            let start = strings.len();
            (0..*elements).for_each(|_| strings.push(&vec![7; *bytes]));
            sections.push(Section {
                blocks: number..number + 1,
                elements: start..strings.len(),
                has_changed: number == 1,
            });
        }
        let joined = join_small(sections, &strings);
        joined
            .into_iter()
            .map(|of| (of.blocks.start, of.blocks.end))
            .collect()
    }

    #[test]
    fn blocks_are_joined_if_one_is_small_and_both_have_room_together() {
        assert_eq!(joined(&[(9, 50), (2, 50), (9, 50)]), [(0, 2), (2, 3)]);
        assert_eq!(
            joined(&[(9, 50), (9, 50), (9, 50)]),
            [(0, 1), (1, 2), (2, 3)]
        );
        assert_eq!(joined(&[(3, 50), (3, 50), (3, 50)]), [(0, 3)]);
        // Many elements take few bytes.
        assert_eq!(
            joined(&[(127, 1), (127, 1), (127, 1)]),
            [(0, 1), (1, 2), (2, 3)]
        );
        assert_eq!(joined(&[(80, 1), (5, 1), (127, 1)]), [(0, 2), (2, 3)]);
        // A long one has none to share.
        assert_eq!(
            joined(&[(1, 300), (1, 3), (1, 300)]),
            [(0, 1), (1, 2), (2, 3)]
        );
        assert_eq!(
            joined(&[(1, 3), (1, 300), (1, 3)]),
            [(0, 1), (1, 2), (2, 3)]
        );
        assert_eq!(joined(&[(1, 3), (0, 0), (1, 3)]), [(0, 1), (1, 2), (2, 3)]);
    }
}
