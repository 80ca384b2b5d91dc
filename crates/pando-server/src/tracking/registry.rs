//! All clients that track keys, over all loops, and how they are told.
//!
//! **No change is lost.** What a client has seen of a key, and what was then changed, is told to it
//! behind the reply that shows it:
//!
//! - A client that reads goes into the entry of the key and reads then. A writer commits, and looks
//!   at the entry then, under the same lock. Who comes first under the lock is seen by the
//!   other: the writer finds the client, or the client reads what was committed.
//! - A transaction puts its keys in before each try of its commit, which finds that nothing it has
//!   read has changed meanwhile. What is read at a snapshot is of an earlier moment than its entry
//!   would be: the client is told to forget it, behind its reply
//!   ([`crate::connection`], `tracking.rs`).
//! - The writer who takes a client out of an entry puts a message into its mailbox. From the moment
//!   at which a command has put its keys in until its end, its connection takes nothing out of that
//!   mailbox. So whatever was taken out of an entry since then is told behind the reply.
//! - A writer asks first whether anybody tracks keys. The client counts itself, has a fence, and
//!   reads; the writer commits, has a fence, and reads the count. Both fences are sequentially
//!   consistent: of the two reads behind them at least one sees the write before the other fence.
//!   The client needs no fence for each key: it has had one since it counted itself.
//! - A writer notes the keys while its command runs, if the count says that somebody tracks. If it
//!   did not, and says so after the commit, everybody forgets everything.
//!
//! Who flushes empties the table first, and then tells everybody: whoever is taken out of an entry
//! is told after that.
//!
//! No lock is held while a message is put into a mailbox.

use std::collections::{BTreeMap, HashMap};

use pando_sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use pando_sync::{Arc, Mutex, Rank, RwLock};

use super::prefixes::Prefixes;
use super::table::Table;
use super::tracker::Tracker;
use crate::pubsub::message::{Message, Name};
use crate::pubsub::registry::Channels;

/// Keys of one message to clients of a prefix, at most.
const KEYS_PER_MESSAGE: usize = 1024;
/// Keys that are compared with the prefixes under one lock.
const KEYS_PER_LOCK: usize = 256;
/// Keys besides those that came that a command takes out of a table that has too many.
const EVICTED_MORE: usize = 16;
/// Most keys in the table, unless CONFIG says otherwise.
const KEYS_MAX: u64 = 1_000_000;

/// Who has written: a client that may not want to hear of it, and what it has read with it.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'w> {
    pub(crate) tracker: &'w Arc<Tracker>,
    /// Whether the command that has written a key has read it, too.
    pub(crate) has_read: &'w dyn Fn(&[u8]) -> bool,
}

/// Keys with one prefix, and its clients.
type OfPrefix<'k> = (Vec<&'k [u8]>, Vec<Arc<Tracker>>);

/// All clients that track keys.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// Number of clients in `trackers`. See the top of this file.
    count: AtomicUsize,
    /// Those that track, by id. Held for a change or a copy.
    trackers: Mutex<BTreeMap<u64, Arc<Tracker>>>,
    table: Table,
    prefixes: RwLock<Prefixes>,
    /// Most keys in the table; 0: any number. Relaxed.
    keys_max: AtomicU64,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            trackers: Mutex::new(Rank::Leaf, BTreeMap::new()),
            table: Table::default(),
            prefixes: RwLock::new(Rank::Leaf, Prefixes::default()),
            keys_max: AtomicU64::new(KEYS_MAX),
        }
    }
}

impl Tracking {
    /// Adds a client; it hears of what is committed from now on.
    pub(super) fn join(&self, tracker: &Arc<Tracker>) {
        let before = (self.trackers.lock()).insert(tracker.id, Arc::clone(tracker));
        if before.is_none() {
            // Relaxed: the fence orders it.
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        // See the top of this file.
        fence(Ordering::SeqCst);
    }

    /// Removes a client; its entries are skipped from now on.
    pub(super) fn leave(&self, id: u64) {
        let before = self.trackers.lock().remove(&id);
        if before.is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn add_prefix(&self, prefix: &Name, tracker: &Arc<Tracker>) {
        self.prefixes.write().add(prefix, tracker);
    }

    pub(super) fn remove_prefix(&self, prefix: &[u8], id: u64) {
        self.prefixes.write().remove(prefix, id);
    }

    /// Returns true if somebody tracked keys a moment ago: who writes notes its keys.
    #[inline]
    pub(crate) fn is_watching(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns true if somebody may track keys. To be asked after a commit.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        // See the top of this file. Relaxed: the fence orders it.
        fence(Ordering::SeqCst);
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Notes that a client is about to read keys, or to commit what it has read of them.
    pub(super) fn add_reads<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        tracker: &Arc<Tracker>,
        channels: &Channels,
    ) {
        let mut count = 0;
        for key in keys {
            self.table.add(key, tracker);
            count += 1;
        }
        self.evict(count * 2 + EVICTED_MORE, channels);
    }

    /// Returns true if the table has more keys, or takes more memory, than it may.
    fn has_too_many(&self, channels: &Channels) -> bool {
        let keys_max = self.keys_max.load(Ordering::Relaxed);
        keys_max > 0 && self.table.keys() as u64 > keys_max
            || self.table.bytes() > channels.limits.bytes_max()
    }

    /// Takes keys out of a table that has too many, `most` at most.
    fn evict(&self, most: usize, channels: &Channels) {
        for _ in 0..most {
            if !self.has_too_many(channels) {
                return;
            }
            let Some((key, readers)) = self.table.take_any() else {
                return;
            };
            tell_readers(&key, readers.iter(), channels);
        }
    }

    /// Looks at `count` entries of the table: whether their clients still track, and whether there
    /// are too many.
    pub(crate) fn tidy(&self, count: usize, channels: &Channels) {
        self.table.sweep(count);
        self.evict(count, channels);
    }

    /// Tells all who have read one of these keys, or want to hear of all like it, that they have
    /// changed. To be called after their commit.
    pub(crate) fn changed<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
        writer: Option<Writer<'_>>,
        channels: &Channels,
    ) {
        let silent = writer.filter(|writer| writer.tracker.is_no_loop());
        let keys: Vec<&[u8]> = keys.collect();
        let own = silent.map(|writer| writer.tracker.id);
        for key in &keys {
            let kept = own.filter(|_| silent.is_some_and(|writer| (writer.has_read)(key)));
            if let Some((key, readers)) = self.table.take(key, kept) {
                let readers = readers.iter().filter(|of| Some(of.id) != own);
                tell_readers(&key, readers, channels);
            }
        }
        self.tell_prefixes(&keys, silent, channels);
    }

    /// Tells the clients of prefixes which of `keys` begin with them.
    fn tell_prefixes(&self, keys: &[&[u8]], silent: Option<Writer<'_>>, channels: &Channels) {
        let mut by_prefix: HashMap<&[u8], OfPrefix<'_>> = HashMap::new();
        for some in keys.chunks(KEYS_PER_LOCK) {
            let prefixes = self.prefixes.read();
            if prefixes.is_empty() {
                break;
            }
            for key in some {
                for prefix in prefixes.of(key) {
                    let of_prefix = by_prefix.entry(prefix);
                    let members = || (Vec::new(), prefixes.members(prefix));
                    of_prefix.or_insert_with(members).0.push(key);
                }
            }
        }
        for (mut keys, members) in by_prefix.into_values() {
            keys.sort_unstable();
            keys.dedup();
            let own = silent.map(|writer| writer.tracker.id);
            let members = members.into_iter().filter(|of| Some(of.id) != own);
            tell_all(&members.collect::<Vec<_>>(), &keys, channels);
        }
    }

    /// Tells everybody to forget everything. To be called after the commit.
    pub(crate) fn changed_all(&self, channels: &Channels) {
        // In this order: see the top of this file.
        self.table.clear();
        let trackers: Vec<_> = self.trackers.lock().values().cloned().collect();
        let message = Arc::new(Message::of_all(channels.message_bytes()));
        for tracker in trackers {
            tracker.tell(channels, &message);
        }
    }

    /// Returns the number of clients that track, keys, pairs of a key and a client, and prefixes.
    pub(crate) fn counts(&self) -> [usize; 4] {
        [
            self.count.load(Ordering::Relaxed),
            self.table.keys(),
            self.table.items(),
            self.prefixes.read().len(),
        ]
    }

    /// Returns the memory of the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Returns how many keys there may be; 0: any number.
    pub(crate) fn keys_max(&self) -> u64 {
        self.keys_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_keys_max(&self, most: u64) {
        self.keys_max.store(most, Ordering::Relaxed);
    }
}

/// Tells those of `readers` who still track that a key has changed: one message for each key, as
/// Redis does it. Clients do not expect several.
fn tell_readers<'r>(
    key: &[u8],
    readers: impl Iterator<Item = &'r Arc<Tracker>>,
    channels: &Channels,
) {
    let mut readers = readers.filter(|reader| reader.listens()).peekable();
    if readers.peek().is_none() {
        return;
    }
    let message = message(&[key], channels);
    readers.for_each(|reader| reader.tell(channels, &message));
}

/// Tells each client the same keys, by as few messages as may be.
fn tell_all(trackers: &[Arc<Tracker>], keys: &[&[u8]], channels: &Channels) {
    for some in keys.chunks(KEYS_PER_MESSAGE) {
        let message = message(some, channels);
        trackers.iter().for_each(|of| of.tell(channels, &message));
    }
}

/// Returns the message that tells a client to forget keys.
pub(super) fn message(keys: &[&[u8]], channels: &Channels) -> Arc<Message> {
    let keys = keys.iter().copied();
    Arc::new(Message::of_changed(keys, channels.message_bytes()))
}
