//! State that all loops share. A GET touches only the statistics of it, and these are core-local.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::task::Waker;

use pando_sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use pando_sync::time::{Instant, now, unix_ms};
use pando_sync::{Arc, Mutex, Rank};

use crate::client::contended_keys::ContendedKeys;
use crate::client::pause::Pause;
use crate::client::record::{ClientRecord, NO_EVICT, Registry};
use crate::client::waiters::Waiters;
use crate::client::watches::WatchBytes;
use crate::data::compaction::Compaction;
use crate::data::cursor::Cursors;
use crate::data::engine::{Engine, bytes};
use crate::data::scratch::Scratch;
use crate::data::store_dump::StoreDump;
use crate::figures::latency_monitor::LatencyMonitor;
use crate::figures::slow_log::SlowLog;
use crate::figures::statistics::ServerStatistics;
use crate::log::Events;
use crate::loop_handle::{Arrival, LoopHandle, Message, Underway};
use crate::notifications::release::Notifications;
use crate::options::{Durability, ServerOptions};
use crate::pubsub::registry::Channels;
use crate::row_readers::RowReaders;
use crate::settings::Settings;
use crate::tracking::registry::Tracking;

/// Stage of the server's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The engine is recovering: commands that need it are answered with -LOADING.
    Loading,
    /// Commands are executed.
    Serving,
    /// Running commands finish, and nothing new begins.
    Stopping,
}

/// State that the acceptor, the loops and the handles share.
pub(crate) struct Shared {
    /// As the server was started; they never change.
    pub(crate) options: ServerOptions,
    /// What CONFIG SET can change.
    pub(crate) settings: Settings,
    /// Values that the parameters of CONFIG had before the options named any; the lock is held for
    /// a copy.
    pub(crate) first_parameters: Mutex<Vec<(&'static str, String)>>,
    /// Addresses that the server listens on, with their actual ports.
    pub(crate) addresses: Vec<SocketAddr>,
    /// All open connections.
    pub(crate) clients: Registry,
    /// Places of iterations; the lock is held for one look-up or insertion.
    pub(crate) cursors: Mutex<Cursors>,
    /// The pause that CLIENT PAUSE has begun.
    pub(crate) pause: Pause,
    /// The keys that several loops write at the same time.
    pub(crate) contended: ContendedKeys,
    /// The scripts that are known by name.
    #[cfg(feature = "scripts")]
    pub(crate) scripts: crate::script_cache::ScriptCache,
    /// The functions that run.
    #[cfg(feature = "scripts")]
    pub(crate) functions: crate::function_runs::FunctionRuns,
    /// The clients that wait for elements of a key.
    pub(crate) waiters: Arc<Waiters>,
    /// Where what is sorted for replies has room on disk.
    pub(crate) scratch: Arc<Scratch>,
    /// The same for what is stored, so that clients who do not read their replies leave it alone.
    pub(crate) scratch_of_rows: Arc<Scratch>,
    /// Threads that read large collections for replies.
    pub(crate) row_readers: Arc<RowReaders>,
    /// Who has subscribed to which channels.
    pub(crate) channels: Arc<Channels>,
    /// What happens to keys, for those who want to know.
    pub(crate) notifications: Arc<Notifications>,
    /// The clients that are told to forget keys.
    pub(crate) tracking: Arc<Tracking>,
    /// Memory that the watched keys of all connections take.
    pub(crate) watch_bytes: Arc<WatchBytes>,
    /// One handle per event loop.
    pub(crate) loops: Vec<Arc<LoopHandle>>,
    /// The [`Stage`] as a number; it only grows.
    stage: AtomicU8,
    /// Number of loops that serve.
    ready: AtomicUsize,
    /// Set once, when recovery is done; taken by the closing thread at the end.
    engine: Mutex<Option<Arc<Engine>>>,
    /// Error with which the engine failed to open.
    failure: Mutex<Option<pandodb::Error>>,
    acceptor: mio::Waker,
    /// Time of the start, for durations.
    pub(crate) started: Instant,
    /// Unix time of the start, in milliseconds.
    pub(crate) started_ms: u64,
    /// Random name of this run, for INFO.
    pub(crate) run_id: String,
    /// True while CONFIG REWRITE writes the configuration file.
    pub(crate) is_rewriting: Arc<AtomicBool>,
    /// True while a SAVE runs.
    pub(crate) saving: Arc<AtomicBool>,
    /// True if the last SAVE that finished has failed.
    pub(crate) save_failed: Arc<AtomicBool>,
    /// The compaction that a command has started, if there is one.
    pub(crate) compaction: Arc<Compaction>,
    /// The dump that a command has started, if there is one.
    pub(crate) store_dump: Arc<StoreDump>,
    /// Counters that all loops add to.
    pub(crate) statistics: ServerStatistics,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency_monitor: LatencyMonitor,
    /// Limits how often each kind of event is logged.
    pub(crate) events: Events,
}

impl Shared {
    /// Returns the state of a server that is loading.
    pub(crate) fn new(
        options: ServerOptions,
        settings: Settings,
        addresses: Vec<SocketAddr>,
        loops: Vec<Arc<LoopHandle>>,
        statistics: ServerStatistics,
        acceptor: mio::Waker,
    ) -> Self {
        let scratch = Scratch::new(&options.dir);
        let started_ms = unix_ms();
        let channels = Arc::default();
        // Unpredictable enough for the name of a run: the system seeds the hashers.
        let random = || {
            use std::hash::BuildHasher as _;
            std::hash::RandomState::new().hash_one(started_ms)
        };
        Self {
            settings,
            first_parameters: Mutex::new(Rank::Leaf, Vec::new()),
            addresses,
            clients: Registry::default(),
            cursors: Mutex::new(Rank::Leaf, Cursors::new()),
            pause: Pause::new(now()),
            contended: ContendedKeys::new(loops.len()),
            #[cfg(feature = "scripts")]
            scripts: crate::script_cache::ScriptCache::default(),
            #[cfg(feature = "scripts")]
            functions: crate::function_runs::FunctionRuns::new(loops.len()),
            waiters: Arc::default(),
            scratch_of_rows: scratch.beside(),
            scratch,
            row_readers: RowReaders::new(loops.len()),
            notifications: Notifications::new(&channels),
            channels,
            tracking: Arc::default(),
            watch_bytes: Arc::default(),
            loops,
            stage: AtomicU8::new(0),
            ready: AtomicUsize::new(0),
            engine: Mutex::new(Rank::ServedEngine, None),
            failure: Mutex::new(Rank::Leaf, None),
            acceptor,
            started: now(),
            started_ms,
            run_id: format!("{:016x}{:016x}{:08x}", random(), random(), random() >> 32),
            is_rewriting: Arc::new(AtomicBool::new(false)),
            saving: Arc::new(AtomicBool::new(false)),
            save_failed: Arc::new(AtomicBool::new(false)),
            compaction: Arc::default(),
            store_dump: Arc::default(),
            statistics,
            slow_log: SlowLog::default(),
            latency_monitor: LatencyMonitor::default(),
            events: Events::default(),
            options,
        }
    }

    /// Returns the unsent reply bytes at which a connection stops executing.
    #[inline]
    pub(crate) fn output_bytes_max(&self) -> usize {
        let most = self.settings.output_bytes_max();
        self.clients.memory.output_bytes_max(most)
    }

    /// Returns the stage, after which only later ones follow.
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        // Acquire: pairs with the Release in loop_is_ready and in stop.
        match self.stage.load(Ordering::Acquire) {
            0 => Stage::Loading,
            1 => Stage::Serving,
            _ => Stage::Stopping,
        }
    }

    /// Counts one more loop that serves. When all do, the server serves.
    pub(crate) fn loop_is_ready(&self) {
        // AcqRel: the loop that arrives last sees what all others did before they arrived.
        if self.ready.fetch_add(1, Ordering::AcqRel) + 1 == self.loops.len() {
            // AcqRel: pairs with the Acquire in stage. If a stop came first, the exchange fails.
            let serves = self
                .stage
                .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
            if serves.is_ok() {
                // Programs that start a server wait for these words of Redis.
                tracing::info!(loops = self.loops.len(), "Ready to accept connections");
                if let Some(on_ready) = self.options.on_ready {
                    on_ready();
                }
                // Clients may be waiting for that.
                let _ = self.acceptor.wake();
            }
        }
    }

    /// Has the loop with number `of` have a round, which finds the turn that it was handed.
    pub(crate) fn tell_turn(&self, of: usize) {
        self.loops[of].send(Message::Turn);
    }

    /// Has the loop of a client close it, and forgets it: nobody sees it any more, and it begins no
    /// command once the message has arrived, which is counted among those `underway`.
    pub(crate) fn end_client(&self, client: &ClientRecord, underway: &Arc<Underway>) {
        // Release: pairs with the Acquire in is_killed.
        client.killed.store(true, Ordering::Release);
        self.clients.remove(client.id);
        let arrival = Arrival(Arc::clone(underway));
        self.loops[client.loop_index].send(Message::Kill(client.token, arrival));
    }

    /// Closes clients, those first that hold most, until the others hold no more than they may. Any
    /// thread may do so whose connection has grown.
    #[cold]
    pub(crate) fn evict(&self) {
        let memory = &self.clients.memory;
        let mut clients: Vec<_> = self
            .clients
            .all()
            .into_iter()
            // Relaxed: what it has asked for is not about anything else.
            .filter(|client| client.asked.load(Ordering::Relaxed) & NO_EVICT == 0)
            .map(|client| (client.held.counted(), client))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        clients.sort_by_key(|(bytes, _)| *bytes);
        // Looked at before each: another thread may do the same.
        while memory.excess() > 0
            && let Some((bytes, client)) = clients.pop()
        {
            if client.is_killed() {
                continue;
            }
            self.end_client(&client, &Underway::new(1, Waker::noop().clone()));
            memory.count_evicted();
            self.events.client_evicted(&client.address, bytes);
        }
    }

    /// Returns the number of a loop.
    #[cfg(feature = "scripts")]
    pub(crate) fn number_of(&self, local: &Arc<LoopHandle>) -> usize {
        let mut loops = self.loops.iter();
        loops.position(|of| Arc::ptr_eq(of, local)).unwrap_or(0)
    }

    /// Returns the engine once it is open.
    pub(crate) fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.lock().clone()
    }

    /// Takes the engine out, so that it can be closed after all loops have ended.
    pub(crate) fn take_engine(&self) -> Option<Arc<Engine>> {
        self.engine.lock().take()
    }

    /// Publishes the recovered engine and tells the loops to serve.
    pub(crate) fn set_engine(&self, engine: Engine) {
        let budget = bytes(engine.db.report().max_memory);
        self.clients.memory.set_budget(budget);
        {
            let mut slot = self.engine.lock();
            // Done under the lock, so that every durability that is set from here on reaches the
            // engine.
            engine
                .db
                .set_durability(self.settings.durability().of_engine());
            self.channels.limits.set_bytes_max(engine.watch_bytes_max);
            for scratch in [&self.scratch, &self.scratch_of_rows] {
                scratch.set_sort_bytes(engine.sort_bytes);
            }
            *slot = Some(Arc::new(engine));
        }
        for handle in &self.loops {
            handle.send(Message::EngineReady);
        }
    }

    /// Changes what replies promise from now on.
    pub(crate) fn set_durability(&self, durability: Durability) {
        // Held over both: else two changes at once could leave different levels.
        let slot = self.engine.lock();
        self.settings.set_durability(durability);
        if let Some(engine) = slot.as_deref() {
            engine.db.set_durability(durability.of_engine());
        }
    }

    /// Records that the engine cannot be used and stops the server, which reports `error` at its
    /// end.
    pub(crate) fn fail(&self, error: pandodb::Error) {
        tracing::error!(%error, "the store cannot be used");
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Takes the error that made the engine unusable.
    pub(crate) fn take_failure(&self) -> Option<pandodb::Error> {
        self.failure.lock().take()
    }

    /// Begins the shutdown: wakes the acceptor, which tells the loops.
    pub(crate) fn stop(&self) {
        // Release: pairs with the Acquire in stage.
        if self.stage.swap(2, Ordering::Release) != 2 {
            tracing::info!("the server stops");
        }
        let _ = self.acceptor.wake();
    }

    /// Reports `event`, which took `ns` nanoseconds, to the latency monitor if it is above its
    /// threshold.
    pub(crate) fn observe(&self, event: &'static str, ns: u64, now_ms: u64) {
        let ms = ns / 1_000_000;
        let threshold = self.settings.monitor_ms();
        if threshold > 0 && ms >= threshold {
            self.latency_monitor.add(event, now_ms / 1000, ms);
        }
    }

    /// Returns the number of errors by code, summed over all loops.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for handle in &self.loops {
            handle.errors.add_to(&mut sums);
        }
        sums
    }

    /// Resets all statistics to zero, including those of the engine.
    pub(crate) fn reset_statistics(&self) {
        self.statistics.reset();
        self.loops.iter().for_each(|handle| handle.errors.reset());
        if let Some(engine) = self.engine() {
            engine.db.reset_statistics();
        }
    }
}
