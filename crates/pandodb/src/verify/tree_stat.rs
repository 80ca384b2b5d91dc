//! How full the nodes of a tree are, level by level; counted by the walk of `verify`.

use pando_tree::NodeSummary;

/// Steps of the histogram of fill; each is a tenth of a page.
pub const FILL_STEPS: usize = 10;

/// Figures of the nodes of one level of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelStat {
    /// Number of nodes.
    pub pages: u64,
    /// Bytes in use in these nodes, including headers.
    pub used_bytes: u64,
    /// Number of entries: records of leaves, children of inner nodes.
    pub keys: u64,
    /// Entries of the node that has the fewest.
    pub keys_min: u64,
    /// Entries of the node that has the most.
    pub keys_max: u64,
    /// Bytes of keys that are not stored because all keys of their node have them in common.
    pub prefix_saved_bytes: u64,
    /// Number of nodes by fill: at least 0 %, 10 %, .. 90 % of the page.
    pub fill: [u64; FILL_STEPS],
}

impl LevelStat {
    /// Percentage of the pages' bytes that is in use.
    pub fn fill_percent(&self, page_size: u32) -> f64 {
        let room = self.pages * u64::from(page_size);
        100.0 * self.used_bytes as f64 / room.max(1) as f64
    }

    /// Average number of entries of a node.
    pub fn keys_per_page(&self) -> f64 {
        self.keys as f64 / self.pages.max(1) as f64
    }

    /// Adds a node to its level; `levels` grows as needed, leaves first.
    pub(crate) fn count(levels: &mut Vec<Self>, node: &NodeSummary, page_bytes: usize) {
        let level = usize::from(node.level);
        if levels.len() <= level {
            levels.resize(level + 1, Self::default());
        }
        let stat = &mut levels[level];
        let keys = node.records as u64;
        stat.keys_min = if stat.pages == 0 {
            keys
        } else {
            stat.keys_min.min(keys)
        };
        stat.keys_max = stat.keys_max.max(keys);
        stat.pages += 1;
        stat.used_bytes += node.used_bytes as u64;
        stat.keys += keys;
        stat.prefix_saved_bytes += node.prefix_saved_bytes as u64;
        let step = node.used_bytes * FILL_STEPS / page_bytes;
        stat.fill[step.min(FILL_STEPS - 1)] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::LevelStat;
    use pando_format::page::PageKind;
    use pando_format::{Lsn, PageId, TreeId};
    use pando_tree::NodeSummary;

    fn leaf(records: usize, used_bytes: usize) -> NodeSummary {
        NodeSummary {
            page: PageId(7),
            kind: PageKind::Leaf,
            level: 0,
            tree: TreeId(3),
            records,
            weight: 0,
            keys: Vec::new(),
            children: Vec::new(),
            overflow: Vec::new(),
            chunked: Vec::new(),
            used_bytes,
            prefix_saved_bytes: 5,
            lsn_max: Lsn(0),
            counts: Vec::new(),
            multi_lsn: Lsn(0),
        }
    }

    #[test]
    fn nodes_are_counted_by_level_and_by_tenths_of_a_page() {
        let mut levels = Vec::new();
        for (records, used_bytes) in [(9, 64), (3, 409), (30, 410), (50, 4096)] {
            LevelStat::count(&mut levels, &leaf(records, used_bytes), 4096);
        }
        let inner = NodeSummary {
            level: 2,
            ..leaf(4, 2048)
        };
        LevelStat::count(&mut levels, &inner, 4096);
        assert_eq!(levels.len(), 3);
        let leaves = levels[0];
        assert_eq!(leaves.fill, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!((leaves.keys_min, leaves.keys_max, leaves.keys), (3, 50, 92));
        assert_eq!(leaves.prefix_saved_bytes, 20);
        assert_eq!(leaves.keys_per_page(), 23.0);
        assert_eq!(levels[1], LevelStat::default());
        assert_eq!((levels[2].pages, levels[2].fill_percent(4096)), (1, 50.0));
    }
}
