//! Writing what has changed in a list: in its blocks (`blocks.rs`), or in rows of single elements.

use super::blocks::Plan;
use super::changes::{Changes, less};
use super::part::Loaded;
use super::position::{Gap, Places, gaps};
use crate::context::{Context, Run};
use crate::data::packed::Strings;
use crate::data::tree_head::TreeHead;

impl Context<'_> {
    /// Writes what was changed of the rows of a list, but its head.
    pub(super) fn put_list(&mut self, head: &mut TreeHead, loaded: &Loaded, new: &Strings) -> Run {
        let gaps = gaps(&loaded.load.strings, new);
        let added = gaps.iter().flat_map(|gap| gap.added.clone());
        let added = added.map(|place| new.at(place).len()).sum();
        if head.is_blocks {
            let plan = Plan::new(loaded, &gaps, new);
            let places = self.places(head, loaded, (&plan.openings(), added))?;
            let mut changes = self.changes(head)?;
            changes.blocks(head, (loaded, &plan), places, (&gaps, new))?;
            let buffers = changes.finish(head);
            self.give_back(buffers);
            return Ok(());
        }
        let openings: Vec<_> = gaps.iter().filter_map(|gap| gap.opening(loaded)).collect();
        let places = self.places(head, loaded, (&openings, added))?;
        let mut changes = self.changes(head)?;
        changes.list(head, (loaded, &gaps), places, new)?;
        let buffers = changes.finish(head);
        self.give_back(buffers);
        Ok(())
    }
}

impl Changes<'_> {
    /// Writes the elements of a list that were added, and deletes those that are not there any
    /// more.
    fn list(
        &mut self,
        head: &mut TreeHead,
        (loaded, gaps): (&Loaded, &[Gap]),
        mut places: Places<'_>,
        new: &Strings,
    ) -> Run {
        for gap in gaps {
            let Gap { deleted, added, .. } = gap;
            let positions = gap.positions(head, loaded, &mut places);
            gap.shorten(head, loaded);
            for place in deleted.clone().skip(added.len()) {
                self.delete_element(head.id, places.loaded.at(place));
            }
            for (place, position) in added.clone().zip(positions.iter()) {
                self.put_element(head.id, position, new.at(place))?;
            }
            head.count += added.len() as u64;
            head.count = less(head.count, deleted.len() as u64)?;
        }
        Ok(())
    }
}
