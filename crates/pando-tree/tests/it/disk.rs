//! Trees that are larger than their pool, over a device that is a map, with checkpoints in between.

use std::collections::BTreeMap;
use std::ops::Bound;

use fastrand::Rng;
use pando_format::{
    Extent, FrameIndex, Lsn, PageDecoder, PageEncoder, PageId, PageSize, StoredPage, TreeId,
};
use pando_pool::{
    Attempt, CheckImages, Content, LoadStart, Marks, Pool, PoolOptions, Resource, Restart,
};
use pando_stats::{Statistics, Ticker};
use pando_sync::{Arc, Mutex, Rank, thread};
use pando_tree::{
    Direction, Filling, LeafCopy, LeafFill, LeafFiller, Ranked, ScanValue, Tree, check_page,
    overflow, prepare_image,
};

use crate::rig::{Session, enter, random_bytes};

#[derive(Default)]
struct Disk {
    blocks: BTreeMap<u32, Vec<u8>>,
    next: u32,
    /// Pages that were written without the pool, and their places.
    outside: Vec<StoredPage>,
}

struct DiskRig {
    pool: Pool,
    tree: Tree,
    disk: Mutex<Disk>,
}

impl DiskRig {
    fn new(frames: usize) -> Self {
        Self::of_tree(frames, TreeId(7))
    }

    fn of_tree(frames: usize, id: TreeId) -> Self {
        let pool = Pool::new(PoolOptions {
            page_size: PageSize::new(4096).unwrap(),
            frames,
            page_ids_max: 1 << 16,
            images: 4,
            block_bytes: 4096,
            compression: pando_format::Compression::None,
            prepare_image,
            check_page,
            check_images: CheckImages::All,
            content: Content::Checked,
            statistics: Arc::new(Statistics::new()),
        })
        .unwrap();
        let tree = Tree::create(&pool, &pool.apply_token(&enter(&pool)), id).unwrap();
        Self {
            pool,
            tree,
            disk: Mutex::new(Rank::Leaf, Disk::default()),
        }
    }

    fn write(&self, frames: &[FrameIndex]) {
        let mut images = Vec::new();
        self.pool.take_started_images(&mut images, usize::MAX);
        for frame in frames {
            images.extend(self.pool.image_of(*frame, None));
        }
        for mut image in images {
            self.pool
                .seal_image(&mut image, &mut PageEncoder::default())
                .unwrap();
            let block = {
                let mut disk = self.disk.lock();
                disk.next += 1;
                let block = disk.next;
                disk.blocks.insert(block, image.bytes().to_vec());
                block
            };
            let extent = Extent { block, blocks: 1 };
            while let Err(back) = self.pool.complete_image(image, extent) {
                image = back;
                thread::yield_now();
            }
        }
        self.pool.epochs().take_free_now();
    }

    /// Returns all keys, and the number of leaves that hold them.
    fn keys_and_leaves(&self) -> (Vec<Vec<u8>>, usize) {
        let mut found = Vec::new();
        let mut bound: Option<Bound<Vec<u8>>> = Some(Bound::Unbounded);
        let (mut copy, mut scanned) = (LeafCopy::new(), 0);
        while let Some(from) = bound {
            let from = from.as_ref().map(Vec::as_slice);
            self.drive(|| {
                (self.tree).try_scan_leaf(&self.pool, from, Direction::Forward, &mut copy)
            });
            found.extend((0..copy.len()).map(|index| copy.entry(index).0.to_vec()));
            scanned += 1;
            bound = copy.next_bound().map(|next| next.map(<[u8]>::to_vec));
        }
        (found, scanned)
    }

    /// Writes a page that the pool does not know, and appends its id to `ids`.
    fn write_outside(
        &self,
        ids: &mut Vec<PageId>,
        bytes: &mut Vec<u8>,
        lay_out: impl FnOnce(&mut [[u8; 8]], PageId),
    ) -> PageId {
        self.pool.reserve_ids(1, ids);
        let page = *ids.last().unwrap();
        lay_out(bytes.as_chunks_mut().0, page);
        let epoch = self.pool.epochs().current();
        let mut encoder = PageEncoder::default();
        let sealed = self.pool.seal_outside(bytes, page, epoch, &mut encoder);
        let mut stored = sealed.unwrap();
        let mut disk = self.disk.lock();
        disk.next += 1;
        stored.extent.block = disk.next;
        let block = disk.next;
        disk.blocks.insert(block, std::mem::take(bytes));
        disk.outside.push(stored);
        page
    }

    fn load(&self, page: PageId) {
        if let Ok(LoadStart::Claimed(ticket)) = self.pool.begin_load(page) {
            let bytes = self.disk.lock().blocks[&ticket.stored().extent.block].clone();
            self.pool
                .finish_load(ticket, &bytes, &mut PageDecoder::default())
                .unwrap();
        }
    }

    fn make_room(&self) {
        let mut dirty = Vec::new();
        self.pool.sweep(self.pool.frames() * 2, 8, &mut dirty);
        dirty.truncate(8);
        self.write(&dirty);
    }

    fn serve(&self, restart: Restart) {
        match restart {
            Restart::Conflict => thread::yield_now(),
            Restart::Fault(page) => {
                if self.pool.free_count() < 8 {
                    self.make_room();
                }
                self.load(page);
            }
            Restart::Wait(Resource::Frames | Resource::Images) => self.make_room(),
            other => panic!("{other:?}"),
        }
    }

    fn drive<T>(&self, mut step: impl FnMut() -> Attempt<T>) -> T {
        loop {
            match step() {
                Ok(value) => return value,
                Err(restart) => self.serve(restart),
            }
        }
    }

    fn insert(&self, session: &mut Session, key: &[u8], value: &[u8]) -> bool {
        let inside = enter(&self.pool);
        let (token, marks) = (self.pool.apply_token(&inside), marks(session));
        let scratch = &mut session.scratch;
        let done = self.drive(|| {
            self.tree
                .try_insert(&self.pool, &token, marks, key, value, scratch)
        });
        self.drive(|| session.scratch.try_finish(&self.pool, &token));
        assert!(session.scratch.is_finished());
        done.replaced
    }

    fn remove(&self, session: &mut Session, key: &[u8]) -> bool {
        let inside = enter(&self.pool);
        let (token, marks) = (self.pool.apply_token(&inside), marks(session));
        let scratch = &mut session.scratch;
        let done = self.drive(|| {
            self.tree
                .try_remove(&self.pool, &token, marks, key, scratch)
        });
        self.drive(|| session.scratch.try_finish(&self.pool, &token));
        if done.leaf_fill != LeafFill::Enough {
            self.drive(|| self.tree.try_remove_empty(&self.pool, &token, marks, key));
            let scratch = &mut session.scratch;
            self.drive(|| self.tree.try_merge(&self.pool, &token, marks, key, scratch));
        }
        done.existed
    }

    fn get<'a>(&self, session: &'a mut Session, key: &[u8]) -> Option<&'a [u8]> {
        let Session { reader, out, .. } = session;
        loop {
            match self.tree.try_get(&self.pool, key, reader, out) {
                Ok(lookup) => return lookup.found.then_some(&session.out),
                Err(restart) => {
                    self.serve(restart);
                    // Loads a batch of pages without pins. Some of them may be evicted before they
                    // are used.
                    for page in reader.wanted.iter().skip(1).take(8) {
                        self.load(*page);
                    }
                }
            }
        }
    }

    fn scan(&self, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut session, mut page) = (Session::default(), LeafCopy::new());
        let mut records = Vec::new();
        let mut bound: Bound<Vec<u8>> = Bound::Unbounded;
        loop {
            self.drive(|| {
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
                Some(next) => bound = next.map(<[u8]>::to_vec),
                None => return records,
            }
        }
    }

    /// Closes the epoch, runs `between` before the pages of the epoch are written, and then writes
    /// them.
    fn checkpoint(&self, session: &Session, between: impl FnOnce()) {
        let closing = self.pool.epochs().current();
        self.pool
            .epochs()
            .advance(&self.pool.gate().close(), Lsn(session.lsn));
        between();
        let frames: Vec<_> = (0..self.pool.frames() as u32).map(FrameIndex).collect();
        while self.pool.epochs().dirty(closing) > 0 || self.pool.epochs().images(closing) > 0 {
            for group in frames.chunks(4) {
                self.write(group);
            }
        }
        self.pool.epochs().take_pairs(closing);
        self.pool.epochs().take_retired(closing);
    }
}

fn marks(session: &mut Session) -> Marks {
    session.lsn += 1;
    Marks {
        lsn: Lsn(session.lsn),
        multi_lsn: Lsn(0),
    }
}

fn change(
    rig: &DiskRig,
    session: &mut Session,
    random: &mut Rng,
    model: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) {
    let key = format!("user:{:06}", random.usize(..800)).into_bytes();
    if random.usize(..5) < 2 {
        let existed = rig.remove(session, &key);
        assert_eq!(existed, model.remove(&key).is_some());
    } else {
        let len = [10, 200, 900, 20_000, 60_000][random.usize(..5)];
        let value = random_bytes(random, len);
        let replaced = rig.insert(session, &key, &value);
        assert_eq!(replaced, model.insert(key, value).is_some());
    }
}

#[test]
fn a_tree_larger_than_its_pool_holds_what_a_map_holds() {
    let rig = DiskRig::new(128);
    let (mut session, mut random) = (Session::default(), Rng::with_seed(4));
    let mut model = BTreeMap::new();
    for round in 0..12 {
        for _ in 0..80 {
            change(&rig, &mut session, &mut random, &mut model);
        }
        let mut later = Session {
            lsn: session.lsn,
            ..Session::default()
        };
        rig.checkpoint(&session, || {
            for _ in 0..10 {
                change(&rig, &mut later, &mut random, &mut model);
            }
        });
        session.lsn = later.lsn;
        for key in model.keys().step_by(5) {
            assert_eq!(
                rig.get(&mut session, key),
                model.get(key).map(Vec::as_slice)
            );
        }
        let direction = [Direction::Forward, Direction::Backward][round % 2];
        let mut found = rig.scan(direction);
        if direction == Direction::Backward {
            found.reverse();
        }
        assert!(found.iter().map(|(k, v)| (k, v)).eq(&model));
    }
    assert!(rig.pool.statistics().get(Ticker::PageReads) > 1000);
    while !rig
        .drive(|| {
            let scratch = &mut session.scratch;
            rig.tree
                .try_free_leftmost(&rig.pool, &rig.pool.apply_token(&enter(&rig.pool)), scratch)
        })
        .done
    {
        rig.drive(|| {
            session
                .scratch
                .try_finish(&rig.pool, &rig.pool.apply_token(&enter(&rig.pool)))
        });
    }
    rig.drive(|| {
        session
            .scratch
            .try_finish(&rig.pool, &rig.pool.apply_token(&enter(&rig.pool)))
    });
    rig.make_room();
    assert_eq!(rig.pool.page_ids().available(), 1 << 16);
}

#[test]
fn an_empty_leaf_that_a_checkpoint_has_still_to_write_is_taken_out() {
    let rig = DiskRig::new(128);
    let mut session = Session::default();
    let key = |number: u32| number.to_be_bytes();
    for number in 0..200 {
        rig.insert(&mut session, &key(number), &[1; 100]);
    }
    let removed = (0..200_u32).find(|number| {
        let inside = enter(&rig.pool);
        let (token, marks) = (rig.pool.apply_token(&inside), marks(&mut session));
        let key = key(*number);
        let scratch = &mut session.scratch;
        let done = rig.drive(|| (rig.tree).try_remove(&rig.pool, &token, marks, &key, scratch));
        done.leaf_fill == LeafFill::Empty
    });
    let last = removed.expect("a leaf is empty before all are");
    let used = || (1 << 16) - rig.pool.page_ids().available();
    let before = used();
    rig.checkpoint(&session, || {
        let inside = enter(&rig.pool);
        let (token, marks) = (
            rig.pool.apply_token(&inside),
            marks(&mut Session::default()),
        );
        let key = key(last);
        let done = rig.drive(|| rig.tree.try_remove_empty(&rig.pool, &token, marks, &key));
        assert!(done, "it is empty");
    });
    assert_eq!(used(), before - 1);
    let keys: Vec<_> = (last + 1..200).map(|number| key(number).to_vec()).collect();
    assert_eq!(rig.keys_and_leaves().0, keys);
}

#[test]
fn threads_share_a_tree_larger_than_its_pool() {
    let rig = DiskRig::new(256);
    thread::scope(|scope| {
        for worker in 0..4u64 {
            let rig = &rig;
            scope.spawn(move || {
                let (mut session, mut random) = (Session::default(), Rng::with_seed(worker));
                let mut model = BTreeMap::new();
                for _ in 0..250 {
                    let key = (random.usize(..300) as u64 * 4 + worker).to_be_bytes();
                    if random.usize(..3) == 0 {
                        let existed = rig.remove(&mut session, &key);
                        assert_eq!(existed, model.remove(&key).is_some());
                    } else {
                        let len = [10, 800, 1500, 15_000][random.usize(..4)];
                        let value = random_bytes(&mut random, len);
                        let replaced = rig.insert(&mut session, &key, &value);
                        assert_eq!(replaced, model.insert(key, value).is_some());
                    }
                    let key = (random.usize(..300) as u64 * 4 + worker).to_be_bytes();
                    let expected = model.get(&key).map(Vec::as_slice);
                    assert_eq!(rig.get(&mut session, &key), expected);
                }
            });
        }
    });
}

/// A read of a long value that continues after a fault notices that the value was replaced.
#[test]
fn progress_on_a_value_that_was_replaced_is_not_used() {
    let rig = DiskRig::new(128);
    let mut session = Session::default();
    for byte in 1..3 {
        rig.insert(&mut session, b"key", &[byte; 40_000]);
    }
    let (mut writer, mut reader) = (Session::default(), Session::default());
    rig.checkpoint(&session, || {});
    while rig.pool.sweep(rig.pool.frames(), 128, &mut Vec::new()) > 0 {}
    // Some pages are copied before the next one is missing.
    for _ in 0..6 {
        let Session { reader, out, .. } = &mut reader;
        let result = rig.tree.try_get(&rig.pool, b"key", reader, out);
        let Err(Restart::Fault(page)) = result else {
            panic!("{result:?}, not a fault");
        };
        assert!(reader.wanted.first().is_none_or(|first| *first == page));
        rig.load(page);
    }
    // The value is replaced twice by one of the same length, so that the same pages are used again.
    writer.lsn = session.lsn;
    for byte in 3..5 {
        rig.insert(&mut writer, b"key", &[byte; 40_000]);
    }
    assert_eq!(rig.get(&mut reader, b"key"), Some(&[4; 40_000][..]));
}

#[test]
fn a_fault_in_a_long_value_lists_the_pages_that_are_missing() {
    let rig = DiskRig::new(256);
    let mut session = Session::default();
    rig.insert(&mut session, b"key", &[1; 400_000]);
    rig.checkpoint(&session, || {});
    while rig.pool.sweep(rig.pool.frames(), 256, &mut Vec::new()) > 0 {}
    let mut rounds = 0;
    loop {
        let Session { reader, out, .. } = &mut session;
        match rig.tree.try_get(&rig.pool, b"key", reader, out) {
            Ok(lookup) => break assert!(lookup.found),
            Err(Restart::Fault(page)) => {
                rig.load(page);
                for page in &reader.wanted {
                    rig.load(*page);
                }
            }
            Err(other) => panic!("{other:?}"),
        }
        rounds += 1;
    }
    // One fault is for the leaf, one for the index page, and two for 100 pages, of which a fault
    // lists 64 at most.
    assert_eq!(rounds, 4);
    assert_eq!(session.out, [1; 400_000]);
}

#[test]
fn the_beginning_of_a_long_value_takes_one_page() {
    let rig = DiskRig::new(256);
    let mut session = Session::default();
    rig.insert(&mut session, b"key", &[1; 400_000]);
    rig.checkpoint(&session, || {});
    while rig.pool.sweep(rig.pool.frames(), 256, &mut Vec::new()) > 0 {}
    let Session { reader, out, .. } = &mut session;
    let mut loaded = 0;
    let (lookup, bytes, _) = loop {
        match rig.tree.try_get_head(&rig.pool, b"key", 24, reader, out) {
            Ok(found) => break found,
            Err(Restart::Fault(page)) => {
                rig.load(page);
                assert!(
                    reader.wanted.len() <= 1,
                    "{:?} are not needed",
                    reader.wanted
                );
                loaded += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    };
    assert!(lookup.found);
    // The leaf, the index page, and one page of the value.
    assert_eq!((loaded, bytes, &out[..]), (3, 400_000, &[1; 24][..]));
}

/// Fills a tree with `entries` without the pool, checks it, and removes everything again.
fn fill(entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
    for id in [TreeId(7), TreeId(7).counted(), TreeId(7).weighted()] {
        fill_tree(&DiskRig::of_tree(64, id), entries);
    }
}

fn check_ranks(rig: &DiskRig, entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
    if !rig.tree.id.is_counted() {
        return;
    }
    let mut below = 0;
    let filler = LeafFiller::new(rig.pool.page_size());
    for (number, (key, value)) in entries.iter().enumerate() {
        if number % 97 == 0 {
            let rank = rig.drive(|| rig.tree.try_rank(&rig.pool, Ranked::Below(key)));
            assert_eq!(rank, below);
        }
        let has_weight = rig.tree.id.is_weighted() && filler.takes(key.len(), value.len());
        below += match value.first() {
            Some(first @ 128..) if has_weight => u64::from(first - 128),
            _ => 1,
        };
    }
    let all = rig.drive(|| rig.tree.try_rank(&rig.pool, Ranked::All));
    assert_eq!(all, below);
}

fn fill_tree(rig: &DiskRig, entries: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let mut filler = LeafFiller::new(rig.pool.page_size());
    let mut session = Session::default();
    let mut ids = Vec::new();
    let mut leaves = 0;
    let mut end_leaf = |filler: &mut LeafFiller, session: &mut Session, ids: &mut Vec<PageId>| {
        let mut bytes = vec![0; 4096];
        let mut separator = Vec::new();
        let mut records = 0;
        let page = rig.write_outside(ids, &mut bytes, |bytes, page| {
            records = filler.finish(bytes, page, rig.tree.id, &mut separator);
        });
        let scratch = &mut session.scratch;
        let inside = enter(&rig.pool);
        let token = rig.pool.apply_token(&inside);
        let leaf = (page, records);
        rig.drive(|| (rig.tree).try_append_leaf(&rig.pool, &token, &separator, leaf, scratch));
        let written = std::mem::take(&mut rig.disk.lock().outside);
        for (page, stored) in ids.drain(..).zip(written) {
            rig.pool.adopt(&token, page, stored);
        }
        assert!(session.scratch.is_finished());
        leaves += 1;
    };
    for (key, value) in entries {
        let mut header = Vec::new();
        let filling = if filler.takes(key.len(), value.len()) {
            if !filler.has_room(key, value.len()) {
                end_leaf(&mut filler, &mut session, &mut ids);
            }
            Filling::Value(value)
        } else {
            let page_size = rig.pool.page_size();
            if !filler.has_room(key, overflow::overflow_header_bytes(page_size, value.len())) {
                end_leaf(&mut filler, &mut session, &mut ids);
            }
            overflow::lay_out(page_size, value, &mut header, |kind, payload| {
                let lay_out = |bytes: &mut [[u8; 8]], page| {
                    overflow::fill_page(bytes, page, rig.tree.id, kind, payload);
                };
                Ok::<_, ()>(rig.write_outside(&mut ids, &mut vec![0; 4096], lay_out))
            })
            .unwrap();
            assert_eq!(
                header.len(),
                overflow::overflow_header_bytes(page_size, value.len())
            );
            Filling::Overflow(&header)
        };
        assert!(filler.try_push(key, filling));
    }
    end_leaf(&mut filler, &mut session, &mut ids);
    for (key, value) in entries.iter().step_by(7) {
        assert_eq!(rig.get(&mut session, key).unwrap(), value);
    }
    let (found, scanned) = rig.keys_and_leaves();
    assert!(found.iter().eq(entries.keys()), "{} keys", found.len());
    assert_eq!(scanned, leaves);
    check_ranks(rig, entries);
    let inside = enter(&rig.pool);
    let token = rig.pool.apply_token(&inside);
    loop {
        let scratch = &mut session.scratch;
        let step = rig.drive(|| rig.tree.try_free_leftmost(&rig.pool, &token, scratch));
        rig.drive(|| session.scratch.try_finish(&rig.pool, &token));
        if step.done {
            break;
        }
    }
    assert_eq!(rig.pool.page_ids().available(), 1 << 16, "pages leaked");
}

/// A tree whose pages were written without the pool can be read, scanned and freed.
#[test]
fn a_tree_that_was_filled_outside_is_one_like_any_other() {
    let mut random = Rng::with_seed(5);
    let numbers = (0..40_000_u32).map(|number| (number.to_be_bytes().to_vec(), vec![7; 3]));
    fill(&numbers.collect());
    // Keys and values are long, with and without a common prefix.
    for prefix in [0, 900] {
        let mut entries = BTreeMap::new();
        for number in 0..3000 {
            let mut key = vec![b'p'; random.usize(..prefix + 1)];
            let len = random.usize(..120) + 1;
            key.extend(random_bytes(&mut random, len));
            let bytes = match number % 300 {
                1 => 60_000,
                2 => random.usize(..6000),
                3 => 1936 + random.usize(..30),
                _ => random.usize(..200),
            };
            entries.insert(key, random_bytes(&mut random, bytes));
        }
        entries.insert(Vec::new(), Vec::new());
        fill(&entries);
    }
    fill(&BTreeMap::from([(vec![b'k'; 1024], vec![b'v'; 900])]));
    fill(&BTreeMap::from([(Vec::new(), Vec::new())]));
}

/// A leaf that was found for a put, and is not pinned, outlasts one round of the clock hand, also
/// if it was read from disk a moment ago, and when its place is asked for again.
#[test]
fn a_leaf_that_was_found_outlasts_a_round_of_the_clock_hand() {
    let rig = DiskRig::new(128);
    let mut session = Session::default();
    for number in 0..1000_u32 {
        rig.insert(&mut session, &number.to_be_bytes(), &[1; 100]);
    }
    rig.checkpoint(&session, || {});
    let round = || rig.pool.sweep(rig.pool.frames(), 128, &mut Vec::new());
    // Warm, cold, gone.
    let evict = || {
        for _ in 0..4 {
            round();
        }
    };
    evict();
    let key = 500_u32.to_be_bytes();
    let place = rig.drive(|| rig.tree.try_find_place(&rig.pool, &key));
    for number in 0..4 {
        round();
        assert!(place.is_current(rig.tree, &rig.pool), "round {number}");
    }
    // Without a use it goes.
    evict();
    assert!(!place.is_current(rig.tree, &rig.pool));
}
