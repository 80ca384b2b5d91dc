//! Summaries of nodes, for `verify` and `stat`.

use pando_format::page::PageKind;
use pando_format::{Lsn, PageId, TreeId};
use pando_pool::{Attempt, Pool};

use crate::node::check::check_node;
use crate::node::view::Node;
use crate::overflow::{OverflowHeader, collect_ids};
use crate::tree::{Tree, counted, damaged};

/// A copy of the content of a leaf or inner node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSummary {
    /// The page.
    pub page: PageId,
    /// Leaf or inner node.
    pub kind: PageKind,
    /// 0 for a leaf.
    pub level: u8,
    /// The tree it belongs to.
    pub tree: TreeId,
    /// Number of entries.
    pub records: usize,
    /// In a leaf: their number; in a weighted tree, the sum of their weights.
    pub weight: u64,
    /// The whole keys of the entries. The first key of an inner node is empty and stands for
    /// everything smaller.
    pub keys: Vec<Vec<u8>>,
    /// Children of an inner node, one for each key.
    pub children: Vec<PageId>,
    /// Values and blob references in overflow pages.
    pub overflow: Vec<OverflowRef>,
    /// Indexes of the entries whose values lie in chunks: [`Tree::try_get`] copies their blob
    /// references.
    pub chunked: Vec<usize>,
    /// Bytes used by header, slots, prefix and records.
    pub used_bytes: usize,
    /// Bytes of keys that the common prefix saves.
    pub prefix_saved_bytes: usize,
    /// LSN of the newest batch that changed the page.
    pub lsn_max: Lsn,
    /// In an inner node of a counted tree: the number of records below each child, or the sum of
    /// their weights; else empty.
    pub counts: Vec<u64>,
    /// LSN of the newest batch of two or more writes that changed it.
    pub multi_lsn: Lsn,
}

/// A value in overflow pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverflowRef {
    header: OverflowHeader,
}

impl OverflowRef {
    /// Returns the length of the value in bytes.
    pub fn value_bytes(&self) -> usize {
        self.header.value_bytes
    }

    /// Returns the index pages, if the value has any.
    pub fn index_pages(&self) -> &[PageId] {
        if self.header.is_indexed() {
            self.header.ids()
        } else {
            &[]
        }
    }
}

impl Tree {
    /// Copies the content of the node in `page`, and checks its structure.
    ///
    /// # Errors
    /// [`pando_pool::Restart`]; `Damaged` when it is not a valid node of this tree.
    pub fn try_summary(&self, pool: &Pool, page: PageId) -> Attempt<NodeSummary> {
        counted(pool, self.summary(pool, page))
    }

    fn summary(&self, pool: &Pool, page: PageId) -> Attempt<NodeSummary> {
        let seen = pool.optimistic(page, 0)?;
        let node = Node::open(seen.words().slice());
        let kind = match node.kind() {
            Some(kind @ (PageKind::Leaf | PageKind::Inner)) if node.tree() == self.id => kind,
            _ => return damaged(&seen, "is no node of its tree"),
        };
        if let Err(what) = check_node(&node, pool.page_size()) {
            return damaged(&seen, what);
        }
        let inner = node.is_inner();
        let mut summary = NodeSummary {
            page,
            kind,
            level: node.level(),
            tree: node.tree(),
            records: node.count(),
            weight: if inner { 0 } else { node.records() },
            keys: Vec::new(),
            children: Vec::new(),
            overflow: Vec::new(),
            chunked: Vec::new(),
            used_bytes: node.used_bytes(),
            prefix_saved_bytes: {
                let keys = node.count().saturating_sub(node.first_key());
                node.prefix_bytes() * keys.saturating_sub(1)
            },
            lsn_max: node.lsn_max(),
            counts: Vec::new(),
            multi_lsn: node.multi_lsn(),
        };
        for index in 0..node.count() {
            let mut key = Vec::new();
            node.copy_key(index, &mut key);
            summary.keys.push(key);
            if !inner && node.slot(index).is_chunked() {
                summary.chunked.push(index);
            }
            if inner && node.is_counted() {
                summary.counts.push(node.records_below(index));
            }
            if inner {
                summary.children.push(node.child(index).page());
            } else if let Some(header) = Some(node.slot(index))
                .filter(|slot| slot.is_overflow())
                .and_then(|slot| OverflowHeader::read(&node, slot))
            {
                summary.overflow.push(OverflowRef { header });
            }
        }
        seen.validate()?;
        Ok(summary)
    }

    /// Returns the ids of all pages of a value, including index pages. Does not validate the leaf:
    /// the caller prevents changes of the tree, or reads the summary again afterwards.
    ///
    /// # Errors
    /// [`pando_pool::Restart`].
    pub fn try_overflow_ids(&self, pool: &Pool, value: &OverflowRef) -> Attempt<Vec<PageId>> {
        let mut ids = Vec::new();
        counted(pool, collect_ids(pool, self.id, &value.header, &mut ids))?;
        Ok(ids)
    }
}
