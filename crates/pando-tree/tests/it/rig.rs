//! A pool with one tree, operations that are retried until they succeed, and a check of the whole
//! tree.

use std::collections::HashSet;
use std::iter;

use fastrand::Rng;
use pando_format::page::PageKind;
use pando_format::{Lsn, PageId, PageSize, TreeId};
use pando_pool::{ApplyToken, Attempt, CheckImages, Content, Marks, Pool, PoolOptions, Restart};
use pando_stats::Statistics;
use pando_sync::gate::GateGuard;
use pando_sync::{Arc, thread};
use pando_tree::{
    Direction, LeafCopy, LeafFill, LeafFiller, Place, ScanBound, ScanValue, Scratch, Tree,
    ValueReader, check_page, prepare_image,
};

const PAGE_IDS: usize = 1 << 16;
/// Marks of changes that are in no log.
pub(crate) const NO_MARKS: Marks = Marks {
    lsn: Lsn(0),
    multi_lsn: Lsn(0),
};

/// Returns `len` random bytes.
pub(crate) fn random_bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    iter::repeat_with(|| random.u8(..)).take(len).collect()
}

/// Enters the gate of `pool`.
pub(crate) fn enter(pool: &Pool) -> GateGuard<'_> {
    loop {
        if let Some(guard) = pool.gate().try_enter() {
            return guard;
        }
        thread::yield_now();
    }
}

pub(crate) struct Rig {
    pub(crate) pool: Pool,
    pub(crate) tree: Tree,
}

/// The buffers of one thread.
#[derive(Default)]
pub(crate) struct Session {
    pub(crate) scratch: Scratch,
    pub(crate) reader: ValueReader,
    pub(crate) out: Vec<u8>,
    pub(crate) lsn: u64,
}

/// Retries until `attempt` succeeds. Everything is in memory, so only conflicts are expected.
pub(crate) fn retry<T>(mut attempt: impl FnMut() -> Attempt<T>) -> T {
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(Restart::Conflict) => thread::yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    }
}

impl Rig {
    pub(crate) fn new(page_bytes: usize, frames: usize) -> Self {
        Self::checking(page_bytes, frames, check_page, CheckImages::All)
    }

    /// Makes a rig whose tree is counted.
    pub(crate) fn counted(page_bytes: usize, frames: usize) -> Self {
        let id = TreeId(7).counted();
        Self::of_tree(id, (page_bytes, frames), check_page, CheckImages::All)
    }

    /// Makes a rig whose tree is weighted.
    pub(crate) fn weighted(page_bytes: usize, frames: usize) -> Self {
        let id = TreeId(7).weighted();
        Self::of_tree(id, (page_bytes, frames), check_page, CheckImages::All)
    }

    /// Makes a rig of each kind of tree.
    pub(crate) fn of_each_kind(page_bytes: usize, frames: usize) -> [Self; 3] {
        [Self::new, Self::counted, Self::weighted].map(|rig| rig(page_bytes, frames))
    }

    /// Returns what an entry counts for in the tree.
    pub(crate) fn weight(&self, key: &[u8], value: &[u8]) -> u64 {
        let filler = LeafFiller::new(self.pool.page_size());
        let has_weight = self.tree.id.is_weighted() && filler.takes(key.len(), value.len());
        match value.first() {
            Some(first @ 128..) if has_weight => u64::from(first - 128),
            _ => 1,
        }
    }

    pub(crate) fn checking(
        page_bytes: usize,
        frames: usize,
        check_page: fn(&[u8]) -> Result<(), &'static str>,
        check_images: CheckImages,
    ) -> Self {
        Self::of_tree(TreeId(7), (page_bytes, frames), check_page, check_images)
    }

    fn of_tree(
        id: TreeId,
        (page_bytes, frames): (usize, usize),
        check_page: fn(&[u8]) -> Result<(), &'static str>,
        check_images: CheckImages,
    ) -> Self {
        let pool = Pool::new(PoolOptions {
            page_size: PageSize::new(page_bytes).unwrap(),
            frames,
            page_ids_max: PAGE_IDS,
            images: 4,
            block_bytes: 4096,
            compression: pando_format::Compression::None,
            prepare_image,
            check_page,
            check_images,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .unwrap();
        let tree = Tree::create(&pool, &pool.apply_token(&enter(&pool)), id).unwrap();
        Self { pool, tree }
    }

    /// Retries a change of pages until it succeeds.
    pub(crate) fn change<T>(&self, mut attempt: impl FnMut(&ApplyToken<'_>) -> Attempt<T>) -> T {
        retry(|| attempt(&self.pool.apply_token(&enter(&self.pool))))
    }

    /// Returns how full leaves with these facts are on average, in percent.
    pub(crate) fn fill_percent(&self, facts: &Facts) -> usize {
        100 * facts.leaf_bytes / (facts.leaves * self.pool.page_size().bytes())
    }

    pub(crate) fn pages_used(&self) -> usize {
        PAGE_IDS - self.pool.page_ids().available() as usize
    }

    pub(crate) fn insert(&self, session: &mut Session, key: &[u8], value: &[u8]) -> bool {
        self.insert_at(session, (key, &Place::default()), value)
    }

    pub(crate) fn insert_at(
        &self,
        session: &mut Session,
        at: (&[u8], &Place),
        value: &[u8],
    ) -> bool {
        session.lsn += 1;
        let marks = Marks {
            lsn: Lsn(session.lsn),
            multi_lsn: Lsn(session.lsn / 10 * 10),
        };
        let scratch = &mut session.scratch;
        let done = self.change(|token| {
            self.tree
                .try_insert_at(&self.pool, token, marks, at, value, scratch)
        });
        self.change(|token| session.scratch.try_finish(&self.pool, token));
        done.replaced
    }

    /// Puts entries in ascending order of keys, in runs as far as possible. Returns how many were
    /// put in runs, and how many keys are new.
    pub(crate) fn insert_all(
        &self,
        session: &mut Session,
        entries: &[(&[u8], &[u8])],
    ) -> (usize, usize) {
        let (mut at, mut in_runs, mut new) = (0, 0, 0);
        while at < entries.len() {
            let marks = Marks {
                lsn: Lsn(session.lsn + 1),
                multi_lsn: Lsn(0),
            };
            let rest = entries[at + 1..].iter().copied();
            let scratch = &mut session.scratch;
            let run = (self.tree).put_run(
                &self.pool,
                &self.pool.apply_token(&enter(&self.pool)),
                marks,
                (&self.place_of(entries[at].0, at), entries[at], rest),
                scratch,
            );
            if run.records == 0 {
                let (key, value) = entries[at];
                new += usize::from(!self.insert(session, key, value));
            }
            at += run.records.max(1);
            in_runs += run.records;
            new += run.new;
        }
        (in_runs, new)
    }

    /// Removes keys in ascending order from a counted tree, in runs as far as possible. Returns how
    /// many were removed in runs of several, and how many in all.
    pub(crate) fn remove_all(&self, session: &mut Session, keys: &[&[u8]]) -> (usize, usize) {
        let (mut at, mut in_runs, mut removed) = (0, 0, 0);
        while at < keys.len() {
            let place = self.place_of(keys[at], at);
            session.lsn += 1;
            let marks = Marks {
                lsn: Lsn(session.lsn),
                multi_lsn: Lsn(0),
            };
            let run = {
                let guard = enter(&self.pool);
                let (token, rest) = (
                    self.pool.apply_token(&guard),
                    keys[at + 1..].iter().copied(),
                );
                let run = (&place, keys[at], rest);
                self.tree.remove_run(&self.pool, &token, marks, run)
            };
            let gone = &keys[at..at + run.records];
            assert_eq!(run.bytes, gone.iter().map(|key| key.len()).sum::<usize>());
            if let (true, Some(key)) = (run.leaf_fill != LeafFill::Enough, gone.first()) {
                self.tidy_up(session, marks, key);
            }
            if run.records > 1 {
                in_runs += run.records;
            }
            removed += run.records;
            if run.records == 0 {
                removed += usize::from(self.remove_at(session, (keys[at], &place)));
            }
            at += run.records.max(1);
        }
        (in_runs, removed)
    }

    /// Returns the place of `key`, or, for two of three numbers, one that is not known.
    fn place_of(&self, key: &[u8], number: usize) -> Place {
        match number % 3 {
            0 => retry(|| self.tree.try_find_place(&self.pool, key)),
            _ => Place::NONE,
        }
    }

    /// Does what a removal of `key` asks for whose leaf is not full enough.
    fn tidy_up(&self, session: &mut Session, marks: Marks, key: &[u8]) {
        self.change(|token| self.tree.try_remove_empty(&self.pool, token, marks, key));
        let scratch = &mut session.scratch;
        self.change(|token| self.tree.try_merge(&self.pool, token, marks, key, scratch));
    }

    pub(crate) fn remove(&self, session: &mut Session, key: &[u8]) -> bool {
        self.remove_at(session, (key, &Place::default()))
    }

    pub(crate) fn remove_at(&self, session: &mut Session, at: (&[u8], &Place)) -> bool {
        let (key, _) = at;
        session.lsn += 1;
        let marks = Marks {
            lsn: Lsn(session.lsn),
            multi_lsn: Lsn(0),
        };
        let scratch = &mut session.scratch;
        let removed = self.change(|token| {
            self.tree
                .try_remove_at(&self.pool, token, marks, at, scratch)
        });
        self.change(|token| session.scratch.try_finish(&self.pool, token));
        if removed.leaf_fill != LeafFill::Enough {
            self.tidy_up(session, marks, key);
        }
        removed.existed
    }

    pub(crate) fn get<'a>(&self, session: &'a mut Session, key: &[u8]) -> Option<&'a [u8]> {
        let Session { reader, out, .. } = session;
        let lookup = retry(|| self.tree.try_get(&self.pool, key, reader, out));
        lookup.found.then_some(&session.out)
    }

    /// Returns the records after `bound` in `direction`, read leaf by leaf, at most `limit`.
    pub(crate) fn scan(
        &self,
        bound: ScanBound<'_>,
        direction: Direction,
        limit: usize,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut session = Session::default();
        let mut page = LeafCopy::new();
        let mut records = Vec::new();
        let mut bound = bound.map(<[u8]>::to_vec);
        loop {
            retry(|| {
                let bound = bound.as_ref().map(Vec::as_slice);
                self.tree
                    .try_scan_leaf(&self.pool, bound, direction, &mut page)
            });
            for index in 0..page.len() {
                let (key, value) = page.entry(index);
                let value = match value {
                    ScanValue::Inline(value) => value.to_vec(),
                    ScanValue::Long => self.get(&mut session, key).unwrap().to_vec(),
                };
                records.push((key.to_vec(), value));
            }
            match page.next_bound() {
                Some(next) if records.len() < limit => bound = next.map(<[u8]>::to_vec),
                _ => break,
            }
        }
        records.truncate(limit);
        records
    }
}

/// Counts of a tree check.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) leaves: usize,
    pub(crate) empty_leaves: usize,
    pub(crate) inner: usize,
    pub(crate) overflow: usize,
    pub(crate) leaf_bytes: usize,
    pub(crate) records: usize,
    /// What they count for.
    pub(crate) weight: u64,
    pub(crate) lsn_max: u64,
    seen: HashSet<PageId>,
}

/// Checks every node. Each node has only keys of its range, levels decrease by one, and no page is
/// used twice or leaked.
pub(crate) fn check_tree(rig: &Rig) -> Facts {
    let mut facts = Facts::default();
    let root = rig.tree.try_summary(&rig.pool, rig.tree.root).unwrap();
    check_node(rig, rig.tree.root, root.level, &[], None, &mut facts);
    assert_eq!(facts.seen.len(), rig.pages_used(), "pages leaked or shared");
    facts
}

fn check_node(
    rig: &Rig,
    page: PageId,
    level: u8,
    low: &[u8],
    high: Option<&[u8]>,
    facts: &mut Facts,
) {
    let node = rig.tree.try_summary(&rig.pool, page).unwrap();
    assert!(facts.seen.insert(page), "{page} twice");
    assert_eq!(node.level, level);
    assert!(node.keys.is_sorted_by(|a, b| a < b));
    let first = usize::from(node.kind == PageKind::Inner);
    for key in &node.keys[first.min(node.keys.len())..] {
        assert!(&key[..] >= low && high.is_none_or(|high| &key[..] < high));
    }
    if node.kind == PageKind::Leaf {
        facts.leaves += 1;
        facts.empty_leaves += usize::from(node.records == 0);
        facts.leaf_bytes += node.used_bytes;
        facts.records += node.records;
        facts.weight += node.weight;
        facts.lsn_max = facts.lsn_max.max(node.lsn_max.0);
        assert!(node.multi_lsn <= node.lsn_max);
        for value in &node.overflow {
            for page in rig.tree.try_overflow_ids(&rig.pool, value).unwrap() {
                assert!(facts.seen.insert(page), "{page} twice");
                facts.overflow += 1;
            }
        }
        return;
    }
    facts.inner += 1;
    for (index, child) in node.children.iter().enumerate() {
        let low = if index == 0 { low } else { &node.keys[index] };
        let high = node.keys.get(index + 1).map(Vec::as_slice).or(high);
        let before = facts.weight;
        check_node(rig, *child, level - 1, low, high, facts);
        if rig.tree.id.is_counted() {
            let below = facts.weight - before;
            assert_eq!(node.counts[index], below, "below {child}, level {level}");
        }
    }
}
