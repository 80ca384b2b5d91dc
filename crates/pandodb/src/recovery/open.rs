//! Opening a store: creation or recovery (decision 055).
//!
//! Recovery loads the checkpoint and replays whole batches. Its steps: the newest superblock, the
//! mapping, the bitmap of blocks; the catalogue; a first pass over the log, for the extents that it
//! names; replay; a checkpoint whose generation is the new incarnation of the log; a new segment.
//! Recovery may be killed and repeated at any point: until its checkpoint is durable, it only
//! writes to blocks that neither the old checkpoint nor a record after it names.

use std::collections::BTreeSet;
use std::hash::Hasher;
use std::ops::Bound;

use pando_device::{AnyDevice, AnyFile, Create, Device, File, OpenOptions, OverlayDevice};
use pando_format::cast::{u32_of, u32_of_len};
use pando_format::catalogue::{FIRST_USER_TREE, TreeRow};
use pando_format::log::{SEGMENT_BYTES_MIN, SIGNATURE_BITS};
use pando_format::superblock::{SLOT_BYTES, StoredCompression, Superblock};
use pando_format::{Compression, Epoch, Lsn, PageSize, VERSION_BASE};
use pando_stats::Statistics;
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_sync::time;
use pando_tree::{Direction, LeafCopy, ScanValue, Tree};
use pando_wal::{FlushMethod, Log, LogOptions, ReplayOptions};
use siphasher::sip::SipHasher24;

use crate::engine::{Engine, Recovered, Settings};
use crate::error::{Error, Result};
use crate::files::mapping::{Mapping, MappingFiles, remove_stray};
use crate::files::names::{CREATING, DATA, HALF_DUMP, LOADING, base_name, journal_name};
use crate::files::superblock::{SUPERBLOCK, read_superblock, write_superblock};
use crate::files::whose::{
    BENCH_FILE, check_no_remains, check_not_loading, is_ours, may_lie_beside, no_store,
    open_superblock,
};
use crate::options::{Budget, Builder};
use crate::pages::codec_sample::{compression_of, known_compression};
use crate::pages::layout::{Layout, create_data, open_data, pool_of, space_keeper};
use crate::pages::store::Store;
use crate::recovery::replay::{Replay, Replayed};
use crate::recovery_progress::Meter;
use crate::space::keeper::SpaceKeeper;
use crate::state::checkpoint::{CheckpointState, Files};
use crate::state::old_versions::OldVersions;
use crate::tables::counts::entries_of;
use crate::tables::state::{CATALOGUE, GARBAGE};

/// Initial size of the data file: the reserve of deletes, what is kept ready, and a step of growth
/// for the first pages.
const DATA_BYTES_FIRST: u64 = 2 << 20;
/// Size of the smallest files of the log: an idle store has two of them. Those of a small log are a
/// fraction of its segments.
const LOG_FILE_BYTES: u32 = 1 << 20;
const LOG_FILE_SHARE: u32 = 4;
const FIRST_MAPPING: u64 = 1;

impl From<pando_wal::Error> for Error {
    fn from(error: pando_wal::Error) -> Self {
        match error {
            pando_wal::Error::Corrupt { position, what } => {
                Self::corrupt(format!("log at {position}"), what)
            }
            pando_wal::Error::Device(source) => Self::io("using the log")(source),
            pando_wal::Error::Options { what } => Self::InvalidOption {
                option: "log_bytes",
                what,
            },
            other => Self::Poisoned {
                cause: other.to_string(),
            },
        }
    }
}

/// Opens or creates the store on `device`. If it is only read, `device` is, too: recovery is the
/// same, and what it writes stays in memory (decision 147).
pub(crate) fn open(device: AnyDevice, options: Builder) -> Result<Engine> {
    options.check()?;
    let statistics = Statistics::try_new().map_err(|error| Error::unmapped("statistics", error))?;
    let timed = device.clone().timed(Arc::new(statistics));
    if !options.read_only {
        return open_timed(timed, &device, options);
    }
    let overlay = OverlayDevice::new(timed, options.overlay_bytes());
    let opened = open_timed(overlay.clone().into(), &device, options);
    opened.map_err(|error| match overlay.ran_out() {
        true => too_little_memory(overlay.limit()),
        false => error,
    })
}

/// The error of an opening for reading that had to keep more than `limit` bytes.
fn too_little_memory(limit: u64) -> Error {
    Error::InvalidOption {
        option: "max_memory",
        what: format!(
            "the store was not closed, and what its log changes takes more than {limit} bytes, a \
             quarter of the memory; choose more, or open the store for writing once"
        ),
    }
}

fn open_timed(device: AnyDevice, plain: &AnyDevice, options: Builder) -> Result<Engine> {
    let names = device.list().map_err(Error::io("listing the directory"))?;
    let has = |name: &str| names.iter().any(|known| known == name);
    if !options.is_loading {
        check_not_loading(&names)?;
    }
    if has(HALF_DUMP) {
        remove_half_dump(&device);
    }
    if has(SUPERBLOCK) && !has(CREATING) {
        return recover(device, options);
    }
    let (ours, foreign): (Vec<String>, Vec<String>) = names.into_iter().partition(|n| is_ours(n));
    if let Some(foreign) = foreign.iter().find(|name| !may_lie_beside(name)) {
        plain.give_up();
        return Err(Error::InvalidOption {
            option: "dir",
            what: format!("holds '{foreign}', which is no store's; choose an empty directory"),
        });
    }
    check_no_remains(&ours)?;
    if options.must_exist {
        plain.give_up();
        return Err(no_store());
    }
    create(device, options, &ours)
}

/// Removes the dump that a process has not finished; before anything else, since what it takes may
/// be the room that recovery needs.
fn remove_half_dump(device: &AnyDevice) {
    match device.remove(HALF_DUMP) {
        Ok(()) => tracing::info!(file = HALF_DUMP, "a dump that was not finished is removed"),
        Err(error) => tracing::warn!(%error, "a dump that was not finished stays"),
    }
}

fn create_file(device: &AnyDevice, name: &str) -> Result<AnyFile> {
    device
        .open(name, OpenOptions::create(Create::New))
        .map_err(Error::io("creating a file of the store"))
}

/// Marks the directory as unfinished, and removes what an earlier attempt has left.
fn begin_creation(device: &AnyDevice, leftovers: &[String]) -> Result<()> {
    if !leftovers.iter().any(|name| name == CREATING) {
        create_file(device, CREATING)?;
    }
    // Even if the mark exists: an earlier attempt may have ended before its name was durable.
    device
        .sync_directory()
        .map_err(Error::io("creating the store"))?;
    let stays = [CREATING, LOADING, BENCH_FILE];
    for name in leftovers
        .iter()
        .filter(|name| !stays.contains(&name.as_str()))
    {
        device
            .remove(name)
            .map_err(Error::io("removing an unfinished store"))?;
    }
    Ok(())
}

fn create(device: AnyDevice, options: Builder, leftovers: &[String]) -> Result<Engine> {
    let began = time::now();
    begin_creation(&device, leftovers)?;
    let mut options = options;
    let (data, layout) = create_data(&device, &mut options)?;
    let Layout {
        page_size,
        block_bytes,
    } = layout;
    limit_log(&device, &mut options)?;
    let budget = Budget::new(&options, page_size);
    data.allocate(0, DATA_BYTES_FIRST)
        .map_err(Error::io("allocating the data file"))?;
    let blocks = DATA_BYTES_FIRST / block_bytes;
    let space = space_keeper(&data, blocks, layout, device.statistics());
    let compression = options.compression.unwrap_or_default();
    options.compression = Some(compression);
    let pool = pool_of(&budget, layout, compression, &device)?;
    let store = Store::new(
        device.clone(),
        data,
        pool,
        space,
        (VERSION_BASE, FIRST_USER_TREE.0),
        budget.tables_bytes,
    );
    create_system_trees(&store)?;
    let (mapping, superblock_file) = create_files(&device)?;
    store.mapping_reserve.begin(FIRST_MAPPING)?;
    let superblock = Superblock {
        version: VERSION_BASE,
        generation: Epoch(0),
        incarnation: 0,
        checkpoint_lsn: Lsn(0),
        page_bytes: u32_of_len(page_size.bytes()),
        block_bytes: u32_of(block_bytes),
        segment_bytes: u32_of(budget.segment_bytes),
        next_tree: FIRST_USER_TREE.0,
        mapping: FIRST_MAPPING,
        base_pages: 0,
        journal_bytes: 0,
        data_blocks: store.space.blocks(),
        identity: identity(),
        hash_key: options.hash_key.unwrap_or_else(hash_key),
        compression: StoredCompression::of(compression),
    };
    let files = Files {
        superblock_file,
        superblock,
        mapping,
    };
    let engine = finish(
        store,
        files,
        options,
        budget,
        Lsn(0),
        Replayed::default(),
        began,
    )?;
    device
        .remove(CREATING)
        .map_err(Error::io("creating the store"))?;
    device
        .sync_directory()
        .map_err(Error::io("creating the store"))?;
    Ok(engine)
}

/// Creates empty files for mapping and superblock, and makes their names durable.
fn create_files(device: &AnyDevice) -> Result<(MappingFiles, AnyFile)> {
    let mapping = MappingFiles::create(device, FIRST_MAPPING)?;
    let superblock = create_file(device, SUPERBLOCK)?;
    superblock
        .allocate(0, 2 * SLOT_BYTES as u64)
        .map_err(Error::io("allocating the superblock"))?;
    device
        .sync_directory()
        .map_err(Error::io("creating the store"))?;
    Ok((mapping, superblock))
}

fn create_system_trees(store: &Store) -> Result<()> {
    let closed = store.pool.gate().close();
    let token = store.pool.apply_token(&closed);
    for tree in [CATALOGUE, GARBAGE] {
        let made = store.drive(|| Tree::create(&store.pool, &token, tree.id))?;
        assert_eq!(
            made.root, tree.root,
            "the first pages are the roots of the system trees"
        );
    }
    Ok(())
}

/// Limits the default size of the log to a tenth of the space that is free at creation.
fn limit_log(device: &AnyDevice, options: &mut Builder) -> Result<()> {
    let free = device
        .free_bytes()
        .map_err(Error::io("looking for free space"))?;
    let page_size = options.check()?;
    let budget = Budget::new(options, page_size);
    let wanted = budget.segment_bytes * u64::from(budget.segments);
    if options.log_bytes.is_none() && wanted > free / 10 {
        options.log_bytes = Some((free / 10).max(1 << 20));
    }
    Ok(())
}

/// Returns 128 random bits, from two hashers that the standard library keys at random.
fn hash_key() -> [u64; 2] {
    use std::hash::{BuildHasher, RandomState};
    [
        RandomState::new().hash_one(1),
        RandomState::new().hash_one(2),
    ]
}

fn identity() -> [u8; 16] {
    let mut identity = [0; 16];
    let [first, second] = hash_key();
    identity[..8].copy_from_slice(&first.to_le_bytes());
    identity[8..].copy_from_slice(&second.to_le_bytes());
    identity
}

/// The last steps of creation and recovery: writes a checkpoint at `start`, then starts the log of
/// the new life there.
fn finish(
    store: Store,
    mut files: Files,
    options: Builder,
    budget: Budget,
    start: Lsn,
    replayed: Replayed,
    began: time::Instant,
) -> Result<Engine> {
    store.tables.check_memory(options.max_memory)?;
    let closed = store.pool.gate().close();
    let cut = store.close_epoch(&closed, start, files.mapping.is_empty());
    drop(closed);
    let incarnation = cut.epoch.0;
    assert!(
        incarnation > files.superblock.incarnation,
        "records of another life would be taken for those of this one"
    );
    store.finish_checkpoint(&mut files, cut, Some(incarnation), |_| Ok(()))?;
    let superblock = files.superblock;
    let log = LogOptions {
        segment_bytes: superblock.segment_bytes,
        segments: budget.segments,
        file_bytes: log_file_bytes(superblock.segment_bytes),
        buffer_bytes: budget.log_buffer_bytes,
        identity: superblock.identity,
        incarnation,
        signature: log_signature(superblock.hash_key, incarnation),
        start,
        flush_method: FlushMethod::Auto,
    };
    let log = Log::open(store.device.clone(), log, store.statistics.clone())?;
    assert_eq!(
        log.reserved_end(),
        start,
        "the log continues where the last life ended"
    );
    assert_eq!(log.applied(), start, "what was replayed is applied");
    let settings = Settings {
        options,
        budget,
        hash_key: superblock.hash_key,
    };
    let recovered = Recovered {
        took: began.elapsed(),
        batches: replayed.records,
        bytes: replayed.log_bytes,
    };
    let old_versions = OldVersions::new(
        store.pool.page_size(),
        settings.budget.versions_bytes,
        store.statistics.clone(),
    )?;
    let checkpoint = CheckpointState::new(files);
    let engine = Engine::new(store, log, old_versions, checkpoint, settings, recovered);
    if engine.options.read_only {
        return Ok(engine);
    }
    for (tree, key, fill) in replayed.underfull {
        // The maintenance thread does not exist yet; it checks the queue before it sleeps.
        let _wake = engine.underfull_leaves.push(tree, &key, fill);
    }
    engine.garbage_wanted();
    Ok(engine)
}

/// Returns the size of the smallest files of a log with segments of `segment_bytes`.
fn log_file_bytes(segment_bytes: u32) -> u32 {
    let share = segment_bytes / LOG_FILE_SHARE;
    share.clamp(SEGMENT_BYTES_MIN, LOG_FILE_BYTES)
}

/// A store as of its newest checkpoint, before any replay.
pub(crate) struct Loaded {
    /// Without the batches of the log after the checkpoint.
    pub(crate) store: Store,
    /// As of the newest valid slot.
    pub(crate) superblock: Superblock,
    /// How new images are stored.
    pub(crate) compression: Compression,
    /// Opened for writing only if the store will be written.
    pub(crate) superblock_file: AnyFile,
}

/// What a store is loaded for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing is written.
    Read,
    /// Pages are written with this compression; None: with that of the store.
    Write(Option<Compression>),
}

/// Loads the newest checkpoint. Writes nothing.
pub(crate) fn load(
    device: &AnyDevice,
    budget_of: impl FnOnce(PageSize) -> Budget,
    access: Access,
) -> Result<Loaded> {
    let how = match access {
        Access::Write(_) => OpenOptions::write(),
        Access::Read => OpenOptions::read(),
    };
    let superblock_file = open_superblock(device, how)?;
    let superblock = read_superblock(&superblock_file)?;
    check_superblock(&superblock)?;
    let layout = Layout::of_superblock(&superblock)?;
    let Layout {
        page_size,
        block_bytes,
    } = layout;
    let data = open_data(device, how, block_bytes)?;
    let blocks = data.len().map_err(Error::io("opening the data file"))? / block_bytes;
    if blocks < superblock.data_blocks {
        return Err(Error::corrupt(
            DATA,
            format!(
                "{blocks} blocks long; the checkpoint has {}",
                superblock.data_blocks
            ),
        ));
    }
    let mapping = Mapping::read(device, &superblock)?;
    let budget = budget_of(page_size);
    if mapping.words.len() > budget.page_ids_max {
        return Err(Error::InvalidOption {
            option: "max_memory",
            what: format!(
                "the store has {} pages, and the page table holds {}; at least {} bytes are needed",
                mapping.words.len(),
                budget.page_ids_max,
                mapping.words.len() as u64 * 64
            ),
        });
    }
    let space = space_keeper(&data, blocks, layout, device.statistics());
    mark_allocated(&space, &mapping)?;
    let compression = match access {
        Access::Read => Compression::None,
        Access::Write(Some(chosen)) => chosen,
        Access::Write(None) => compression_of(&superblock, &data, layout, mapping.pages())?,
    };
    let pool = pool_of(&budget, layout, compression, device)?;
    let next = Epoch(superblock.generation.0 + 1);
    pool.restore(mapping.pages(), next, superblock.checkpoint_lsn);
    let store = Store::new(
        device.clone(),
        data,
        pool,
        space,
        (superblock.version, superblock.next_tree),
        budget.tables_bytes,
    );
    load_tables(&store, &mapping)?;
    Ok(Loaded {
        store,
        superblock,
        compression,
        superblock_file,
    })
}

/// Checks that an earlier life can have left this superblock.
fn check_superblock(superblock: &Superblock) -> Result<()> {
    let Superblock {
        generation,
        incarnation,
        checkpoint_lsn,
        segment_bytes,
        next_tree,
        mapping,
        ..
    } = superblock;
    let wrong = |what| Err(Error::corrupt(SUPERBLOCK, what));
    if *incarnation > generation.0 || *next_tree < FIRST_USER_TREE.0 {
        return wrong(format!(
            "{generation} of life {incarnation}, next tree {next_tree}"
        ));
    }
    if *generation >= Epoch::LIMIT || *checkpoint_lsn >= Lsn::LIMIT || *mapping >= Epoch::LIMIT.0 {
        return wrong(format!("{generation}, {checkpoint_lsn}, mapping {mapping}"));
    }
    if !segment_bytes.is_power_of_two() || *segment_bytes < SEGMENT_BYTES_MIN {
        return wrong(format!("segments of {segment_bytes} bytes"));
    }
    known_compression(superblock).map(drop)
}

/// Marks everything that the mapping names as allocated.
fn mark_allocated(space: &SpaceKeeper, mapping: &Mapping) -> Result<()> {
    for (page, stored) in mapping.pages() {
        let marked = space.space().mark_allocated(stored.extent);
        marked.map_err(|overlap| {
            let place = format!("{page} at {:?}: {overlap}", stored.extent);
            Error::corrupt("mapping", place)
        })?;
    }
    Ok(())
}

/// Fills the tables from the catalogue.
fn load_tables(store: &Store, mapping: &Mapping) -> Result<()> {
    let mut leaf = LeafCopy::new();
    let next_tree = store.next_tree.load(Ordering::Relaxed);
    let mut trees = BTreeSet::new();
    let mut from: Option<Vec<u8>> = Some(Vec::new());
    while let Some(key) = from {
        store.drive(|| {
            let bound = Bound::Included(&key[..]);
            CATALOGUE.try_scan_leaf(&store.pool, bound, Direction::Forward, &mut leaf)
        })?;
        for index in 0..leaf.len() {
            let (name, value) = leaf.entry(index);
            let damaged = |what: String| Error::corrupt("catalogue", what);
            let ScanValue::Inline(value) = value else {
                return Err(damaged("a row that is too long".into()));
            };
            let row = TreeRow::decode(value).map_err(|damage| damaged(damage.what))?;
            let numbers = u64::from(FIRST_USER_TREE.0)..next_tree;
            let number = row.tree.number();
            let version = row.tree.version();
            let is_known = version.is_some_and(|version| store.format.has(version));
            if !is_known || !numbers.contains(&number.into()) || !trees.insert(number) {
                let name = name.escape_ascii();
                return Err(damaged(format!("{} of '{name}' is not its own", row.tree)));
            }
            let name =
                str::from_utf8(name).map_err(|_| damaged("a name that is not UTF-8".into()))?;
            // Readers of this table will get the error of a root that cannot be read; the others
            // need not.
            let _ = store.wire_root(Tree {
                id: row.tree,
                root: row.root,
            });
            let count = mapping.counts.get(&row.tree).copied().unwrap_or(0);
            if store.tables.get(name).is_some() {
                return Err(damaged("two tables of one name".into()));
            }
            let count = entries_of(count)
                .ok_or_else(|| damaged(format!("'{name}' has {count} entries")))?;
            store.tables.load(name, row, count);
        }
        from = leaf.next_key().map(<[u8]>::to_vec);
    }
    Ok(())
}

/// Returns the options for a replay of the log after the checkpoint of `superblock`.
pub(crate) fn log_behind(superblock: &Superblock) -> ReplayOptions {
    ReplayOptions {
        segment_bytes: superblock.segment_bytes,
        identity: superblock.identity,
        incarnation: superblock.incarnation,
        signature: log_signature(superblock.hash_key, superblock.incarnation),
        from: superblock.checkpoint_lsn,
        expects_files: true,
    }
}

/// Returns the signature of all records of one life of the log. It depends on the key of the store,
/// which no client ever learns.
fn log_signature(hash_key: [u64; 2], incarnation: u64) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(hash_key[0], hash_key[1]);
    hasher.write(b"signature of the log");
    hasher.write_u64(incarnation.to_le());
    hasher.finish() >> (u64::BITS - SIGNATURE_BITS)
}

/// Sets the length of a file to its current length, so that its next sync makes the length durable.
/// A sync of the previous process may have failed; then the length is visible, but not on disk.
fn state_length(file: &AnyFile) -> pando_device::Result<()> {
    file.set_len(file.len()?)
}

fn recover(device: AnyDevice, options: Builder) -> Result<Engine> {
    let began = time::now();
    let mut options = options;
    let frames_of = |page_size| Budget::new(&options, page_size);
    let Loaded {
        store,
        mut superblock,
        compression,
        superblock_file,
    } = load(&device, frames_of, Access::Write(options.compression))?;
    options.compression = Some(compression);
    let page_size = store.pool.page_size();
    options.page_size = Some(page_size.bytes());
    options.block_size = Some(superblock.block_bytes as usize);
    let mut budget = Budget::new(&options, page_size);
    let allowed_bytes = budget.segment_bytes * u64::from(budget.segments);
    budget.segment_bytes = u64::from(superblock.segment_bytes);
    let segments = (allowed_bytes / budget.segment_bytes).max(2);
    budget.segments = u32::try_from(segments).unwrap_or(u32::MAX);
    // The superblock may so far be in the page cache only, and from here on extents of the previous
    // checkpoint are free. A sync alone is not enough: if an earlier sync has failed, the cached
    // pages are clean.
    write_superblock(&superblock_file, &superblock)?;
    state_length(store.space.file()).map_err(Error::io("opening the data file"))?;
    // The previous life may have ended before its last changes of names were durable: the mark of
    // creation must not come back.
    device
        .sync_directory()
        .map_err(Error::io("syncing the directory"))?;
    let mut replayed = Replayed::default();
    let how = log_behind(&superblock);
    let mut replay = Replay::new(&store, how.from, &mut replayed);
    // Mark the extents that records name before anything is allocated: replay writes images.
    let marked = pando_wal::replay(&device, &how, |lsn, payload| {
        store.mark_extents(lsn, payload)
    })?;
    let log_bytes = marked.end.0.saturating_sub(how.from.0) - marked.skipped;
    tracing::info!(checkpoint_lsn = how.from.0, log_bytes, "recovery begins");
    let mut meter = Meter::new(options.on_recovery.take(), marked.end, log_bytes);
    let end = pando_wal::replay(&device, &how, |lsn, payload| {
        if lsn > marked.end {
            // The extents of this batch have not been marked.
            return Err(Error::corrupt(
                format!("log at {lsn}"),
                "was not there before",
            ));
        }
        replay.batch(lsn, payload)?;
        meter.replayed(lsn, payload.len(), replay.records());
        Ok::<(), Error>(())
    })?;
    if (end.end, end.records) != (marked.end, marked.records) {
        // Extents that only one of the passes has named may have been allocated meanwhile.
        let what = format!(
            "{} batches, then {}, were read",
            marked.records, end.records
        );
        return Err(Error::corrupt("log", what));
    }
    assert_eq!(replayed.records, end.records, "each batch is replayed once");
    replayed.log_bytes = log_bytes;
    let mapping = MappingFiles::reopen(&device, &superblock)?;
    store.mapping_reserve.begin(superblock.mapping)?;
    // The checkpoint that ends the recovery records it.
    superblock.compression = StoredCompression::of(compression);
    let files = Files {
        superblock_file,
        superblock,
        mapping,
    };
    let engine = finish(store, files, options, budget, end.restart, replayed, began)?;
    remove_strays(&device, engine.checkpoint.lock_files().superblock.mapping);
    Ok(engine)
}

/// Removes mapping files except those of mapping `number`, which the superblock names, and those
/// that are kept for the next one. A file that cannot be removed is left to the next opening.
fn remove_strays(device: &AnyDevice, number: u64) {
    let kept = [number, number + 1].map(|number| [base_name(number), journal_name(number)]);
    let kept = kept.concat();
    let names = device.list().unwrap_or_default();
    let mapping = |name: &&String| name.starts_with("map.") || name.starts_with("journal.");
    let strays = names.iter().filter(mapping);
    let mut told = false;
    for name in strays.filter(|name| !kept.contains(name)) {
        remove_stray(device, name, &mut told);
    }
}
