//! The report of a workload: a JSON object for machines, and a line of a table for people.
//!
//! All layers share one kind of record. Every name includes its unit, except names that other tools
//! have given; figures that mean nothing for a benchmark are absent.

use pando_stats::Histogram;
use serde::Serialize;

use crate::curve::points;
use crate::measured::Measured;
use crate::value_sizes::ValueSizes;

macro_rules! record {
    ($($(#[$about:meta])* $name:ident: $kind:ty;)*) => {
        /// One workload that was run.
        #[derive(Debug, Clone, Default, Serialize)]
        pub struct Record {
            /// Name of the workload.
            pub workload: &'static str,
            /// What was measured: `ours` is the product as it is.
            pub variant: &'static str,
            /// Number of threads that ran operations.
            pub threads: usize,
            /// Operations per second over all threads: keys, commands, requests to the device.
            pub ops_per_s: f64,
            /// Median time of a call (a batch is one call), in microseconds.
            pub p50_us: f64,
            /// Time that 99 % of the calls did not exceed.
            pub p99_us: f64,
            /// Time that 99.9 % of the calls did not exceed.
            pub p999_us: f64,
            /// Mean time of a call.
            pub mean_us: f64,
            /// Longest time of a call.
            pub max_us: f64,
            /// Number of operations that were counted.
            pub ops: u64,
            /// Length of the run without warm-up, in seconds.
            pub elapsed_s: f64,
            /// Seed of all random choices.
            pub seed: u64,
            $(
                $(#[$about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$kind>,
            )*
            /// Times of calls in microseconds, by the share of calls that did not exceed them, in
            /// order.
            #[serde(skip)]
            pub percentiles: Vec<(f64, f64)>,
            /// Counters of the engine over the run, printed on request.
            #[serde(skip)]
            pub tickers: Vec<(&'static str, &'static str, u64)>,
        }
    };
}

record! {
    /// The ablation that the variant belongs to; the figures are from its round of median speed.
    ablation: &'static str;
    /// What the variant does, in words.
    variant_about: &'static str;
    /// The variant is what the product does.
    is_ours: bool;
    /// Number of rounds in which each variant had its turn.
    rounds: usize;
    /// Operations per second in the slowest round.
    ops_per_s_min: f64;
    /// Operations per second in the fastest round.
    ops_per_s_max: f64;
    /// Operations per second relative to those of the product, the median of all rounds.
    speed_to_ours: f64;
    /// Operations per second relative to those of one thread, for the same variant.
    speed_to_one_thread: f64;
    /// Operations per second relative to those at the first level, for the same transactions.
    speed_to_first_level: f64;
    /// Operations per second relative to those with the first of the kinds of snapshots, or without
    /// the report.
    speed_to_first_variant: f64;
    /// Number of young snapshots that took the place of another one.
    snapshot_renewals: u64;
    /// Most bytes of memory with what commits had saved for snapshots.
    old_version_bytes_max: u64;
    /// Most settled snapshots that were open at a time.
    settled_snapshots_max: u64;
    /// Most bytes of the data file that only settled snapshots used.
    held_bytes_max: u64;
    /// Entries per second of a scan over the whole store.
    scan_entries_per_s: f64;
    /// Number of entries of all passes, ended or not.
    scan_entries: u64;
    /// Number of passes that ended.
    scan_passes: u64;
    /// Time from the beginning of the scan until its snapshot went on on disk.
    settled_after_s: f64;
    /// Largest resident memory of the process.
    resident_bytes_max: u64;
    /// Number of keys of a transaction.
    ops_per_transaction: u64;
    /// Share of them that are put, in percent.
    writes_percent: u64;
    /// Commits that were refused since others had changed what was read, for each that was not.
    conflicts_per_commit: f64;
    /// Share of the blocks that are allocated, in percent.
    fill_percent: u64;
    /// The free blocks are in many pieces.
    fragmented: bool;
    /// Median of batches of 64 allocations, divided by 64.
    p50_ns: f64;
    /// Time that 99.9 % of single allocations did not exceed, without the cost of the clock.
    p999_ns: f64;
    /// Like `p50_ns`, for frees.
    free_p50_ns: f64;
    /// Number of searches that ended since they had read enough words of the bitmap.
    searches_bounded: u64;
    /// Processor time of an addition to a counter.
    ns_per_op: f64;
    /// The same for a plain increment of words that only this thread can access.
    plain_ns_per_op: f64;
    /// The same for an increment with a lock prefix.
    lock_add_ns_per_op: f64;
    /// Shortest time of a query.
    wall_min_us: f64;
    /// Mean time of a query.
    wall_mean_us: f64;
    /// Time that 95 % of the queries did not exceed.
    wall_p95_us: f64;
    /// Longest time of a query.
    wall_max_us: f64;
    /// Mean processor time of work in registers only that takes as long as the fastest query, in
    /// alternation with queries.
    spin_mean_us: f64;
    /// Median of the same.
    spin_p50_us: f64;
    /// Maximum of the same.
    spin_max_us: f64;
    /// Number of objects that the variant built per operation.
    constructions_per_op: f64;
    /// Number of allocations that the variant made per operation.
    allocations_per_op: f64;
    /// Number of open descriptors of the file.
    handles: usize;
    /// Median time of a call that read, in a mixed workload.
    read_p50_us: f64;
    /// Time that 99 % of these did not exceed.
    read_p99_us: f64;
    /// Time that 99.9 % of these did not exceed.
    read_p999_us: f64;
    /// Median time of a call that wrote, in a mixed workload.
    write_p50_us: f64;
    /// Time that 99 % of these did not exceed.
    write_p99_us: f64;
    /// Time that 99.9 % of these did not exceed.
    write_p999_us: f64;
    /// Requested maximum time between two checkpoints; the fields about checkpoints below are
    /// present only with it.
    checkpoint_interval_s: f64;
    /// Number of checkpoints that ran or began during the run.
    checkpoints: u64;
    /// Number of calls that no checkpoint overlapped.
    quiet_calls: u64;
    /// Median of their times.
    quiet_p50_us: f64;
    /// Time that 99 % of them did not exceed.
    quiet_p99_us: f64;
    /// Time that 99.9 % of them did not exceed.
    quiet_p999_us: f64;
    /// Maximum of their times.
    quiet_max_us: f64;
    /// Like `quiet_p999_us`, for those that read in a mixed workload.
    quiet_read_p999_us: f64;
    /// Like `quiet_p999_us`, for those that wrote in a mixed workload.
    quiet_write_p999_us: f64;
    /// Number of calls that were in progress when a checkpoint began: at most one per thread each
    /// time.
    caught_calls: u64;
    /// Maximum of their times.
    caught_max_us: f64;
    /// Number of calls that were due while a checkpoint ran.
    checkpoint_calls: u64;
    /// Median of their times.
    checkpoint_p50_us: f64;
    /// Time that 99 % of them did not exceed.
    checkpoint_p99_us: f64;
    /// Time that 99.9 % of them did not exceed.
    checkpoint_p999_us: f64;
    /// Maximum of their times.
    checkpoint_max_us: f64;
    /// Time that 99.9 % of those that read did not exceed, in a mixed workload.
    checkpoint_read_p999_us: f64;
    /// The same for those that wrote.
    checkpoint_write_p999_us: f64;
    /// Processor time of the whole process per operation.
    cpu_us_per_op: f64;
    /// Instructions per operation of the threads that ran operations, without the kernel's.
    instructions_per_op: f64;
    /// Cycles of the same threads per operation.
    cycles_per_op: f64;
    /// Memory references per operation that missed all caches.
    cache_misses_per_op: f64;
    /// Mispredicted branches per operation.
    branch_misses_per_op: f64;
    /// Reads per operation that missed the first-level data cache.
    l1_misses_per_op: f64;
    /// Instructions per cycle.
    instructions_per_cycle: f64;
    /// Processor time of a separate server per operation, as the server reports it.
    server_cpu_us_per_op: f64;
    /// The I/O back end.
    io_backend: String;
    /// Requests bypass the page cache.
    direct_io: bool;
    /// Maximum number of requests in flight: per thread for `device` and `pool`, per event loop for
    /// others.
    queue_depth: usize;
    /// Bytes of a page.
    page_size: usize;
    /// Bytes of a block.
    block_size: usize;
    /// Compression of pages.
    compression: String;
    /// Memory budget, in bytes.
    max_memory: u64;
    /// Pages read from the device per operation.
    page_reads_per_op: f64;
    /// Pages written to the device per operation.
    page_writes_per_op: f64;
    /// Share of the operations that found all they needed in memory.
    hits_per_op: f64;
    /// Pages read from the device per operation that did not.
    page_reads_per_miss: f64;
    /// Share of the page look-ups in the pool that were hits; the others are the operations.
    hits_per_look: f64;
    /// Number of operations that found what they asked for.
    found: u64;
    /// Operations per second of the companion thread, which are not counted in `ops`.
    beside_ops_per_s: f64;
    /// Number of keys in the store.
    num: u64;
    /// Bytes of a key.
    key_size_bytes: usize;
    /// Bytes of a value, if all have the same length.
    value_size_bytes: usize;
    /// Bytes of the shortest value.
    value_size_bytes_min: usize;
    /// Bytes of the longest value.
    value_size_bytes_max: usize;
    /// Distribution of the lengths between these.
    value_sizes: &'static str;
    /// Form of the keys.
    key_kind: &'static str;
    /// Number of keys of a call, if a call has several.
    batch: u64;
    /// What a write waits for.
    durability: &'static str;
    /// Distribution of the chosen keys, if keys were chosen.
    distribution: String;
    /// Number of entries that the queue kept.
    queue_length: u64;
    /// A reader was open during the whole run.
    old_reader: bool;
    /// Mean time of a pop in each tenth of the run.
    part_pop_mean_us: Vec<f64>;
    /// The same in the last fifth of the run, relative to the first fifth.
    pop_last_to_first: f64;
    /// Maximum size of the data file in each tenth of the run.
    part_data_bytes_max: Vec<u64>;
    /// Maximum number of its bytes that were not free.
    part_data_used_bytes_max: Vec<u64>;
    /// Maximum size of all files, including the log, as the file system reports it.
    part_disk_bytes_max: Vec<u64>;
    /// Number of connections.
    clients: usize;
    /// Number of commands that a connection keeps in flight.
    pipeline: usize;
    /// The server's name and version.
    server: String;
    /// Bytes of a request to the device.
    block_size_bytes: usize;
    /// Bytes of the log after the checkpoint that were replayed.
    log_bytes: u64;
    /// Megabytes (1e6 bytes) of log that recovery replayed per second, from the opening of the
    /// first file to the end of its checkpoint.
    replayed_mb_per_s: f64;
    /// Time from the call that opens the store to the answer of the first read, in milliseconds.
    first_read_ms: f64;
    /// Bytes of the file, or of all pages.
    size_bytes: u64;
    /// Number of frames of the pool.
    frames: usize;
    /// Requested operations per second of an open loop.
    rate_ops_per_s: f64;
    /// Length of a step of the series, in seconds.
    interval_s: f64;
    /// Operations per second, step by step.
    interval_ops_per_s: Vec<f64>;
}

impl Record {
    /// Creates a record without figures.
    pub fn new(workload: &'static str, variant: &'static str, threads: usize, seed: u64) -> Self {
        Self {
            workload,
            variant,
            threads,
            seed,
            ..Self::default()
        }
    }

    /// Sets rates and times.
    pub fn set_measured(&mut self, measured: &Measured) {
        let us = |share| measured.calls.percentile(share) as f64 / 1e3;
        self.elapsed_s = measured.elapsed.as_secs_f64();
        self.ops = measured.ops;
        self.ops_per_s = measured.ops as f64 / self.elapsed_s.max(1e-9);
        self.p50_us = us(0.5);
        self.p99_us = us(0.99);
        self.p999_us = us(0.999);
        self.mean_us = measured.calls.mean() / 1e3;
        self.max_us = measured.calls.max() as f64 / 1e3;
        let times_of = |kind: &Histogram| {
            let us = |share| (kind.count() > 0).then(|| kind.percentile(share) as f64 / 1e3);
            [us(0.5), us(0.99), us(0.999)]
        };
        [self.read_p50_us, self.read_p99_us, self.read_p999_us] = times_of(&measured.reads);
        [self.write_p50_us, self.write_p99_us, self.write_p999_us] = times_of(&measured.writes);
        self.set_split(measured);
        let points = points(&measured.calls);
        self.percentiles = points.map(|(share, ns)| (share, ns as f64 / 1e3)).collect();
        self.cpu_us_per_op = measured
            .cpu
            .map(|cpu| cpu.as_secs_f64() * 1e6 / measured.ops.max(1) as f64);
        if let Some(counts) = &measured.counts {
            let per_op = |count: Option<f64>| Some(count? / measured.ops.max(1) as f64);
            self.instructions_per_op = per_op(counts.instructions);
            self.cycles_per_op = per_op(counts.cycles);
            self.cache_misses_per_op = per_op(counts.cache_misses);
            self.branch_misses_per_op = per_op(counts.branch_misses);
            self.l1_misses_per_op = per_op(counts.l1_misses);
            let cycles = counts.cycles.filter(|cycles| *cycles > 0.0);
            self.instructions_per_cycle = counts.instructions.zip(cycles).map(|(i, c)| i / c);
        }
        self.interval_ops_per_s = (!measured.series.is_empty()).then(|| measured.series.clone());
    }

    /// Sets the times of calls with and without a running checkpoint.
    fn set_split(&mut self, measured: &Measured) {
        let Some(split) = &measured.split else {
            return;
        };
        let us = |times: &Histogram, share| {
            (times.count() > 0).then(|| times.percentile(share) as f64 / 1e3)
        };
        let (quiet, busy) = (&split.quiet, &split.busy);
        self.checkpoints = Some(split.times);
        self.quiet_calls = Some(quiet.calls.count());
        [self.quiet_p50_us, self.quiet_p99_us, self.quiet_p999_us] =
            [0.5, 0.99, 0.999].map(|share| us(&quiet.calls, share));
        self.quiet_max_us = us(&quiet.calls, 1.0);
        self.quiet_read_p999_us = us(&quiet.reads, 0.999);
        self.quiet_write_p999_us = us(&quiet.writes, 0.999);
        self.caught_calls = Some(split.caught.calls.count());
        self.caught_max_us = us(&split.caught.calls, 1.0);
        self.checkpoint_calls = Some(busy.calls.count());
        [
            self.checkpoint_p50_us,
            self.checkpoint_p99_us,
            self.checkpoint_p999_us,
        ] = [0.5, 0.99, 0.999].map(|share| us(&busy.calls, share));
        self.checkpoint_max_us = us(&busy.calls, 1.0);
        self.checkpoint_read_p999_us = us(&busy.reads, 0.999);
        self.checkpoint_write_p999_us = us(&busy.writes, 0.999);
    }

    /// Returns what the line says about calls that overlapped with checkpoints.
    fn beside_checkpoints(&self) -> String {
        let Some(checkpoints) = self.checkpoints else {
            return String::new();
        };
        let us = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
        format!(
            "  {checkpoints} checkpoints: p99.9 us {} beside them, {} without",
            us(self.checkpoint_p999_us),
            us(self.quiet_p999_us)
        )
    }

    /// Sets the lengths of values.
    pub(crate) fn set_value_sizes(&mut self, sizes: ValueSizes) {
        let (min, max) = sizes.bounds();
        match sizes.name() {
            None => self.value_size_bytes = Some(max),
            Some(name) => {
                self.value_size_bytes_min = Some(min);
                self.value_size_bytes_max = Some(max);
                self.value_sizes = Some(name);
            }
        }
    }

    /// Sets the engine's settings.
    pub(crate) fn set_engine(&mut self, report: &pandodb::Report) {
        self.io_backend = Some(report.io_backend.to_owned());
        self.direct_io = Some(report.direct_io);
        self.queue_depth = Some(report.queue_depth);
        self.page_size = Some(report.page_size);
        self.block_size = Some(report.block_size);
        self.compression = Some(report.compression.to_string());
        self.max_memory = Some(report.max_memory);
    }

    /// Returns the head of the table.
    pub fn head() -> String {
        format!(
            "{:<26} {:>7} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>8}",
            "workload",
            "threads",
            "ops/s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "cpu us/op",
            "reads/op",
            "hits %",
            "found %"
        )
    }

    /// Returns what the line says of transactions.
    fn transaction_parts(&self) -> String {
        let (Some(ops), Some(writes)) = (self.ops_per_transaction, self.writes_percent) else {
            return String::new();
        };
        let share = self.speed_to_first_level.map_or(String::new(), |share| {
            format!("  {share:.2} of the first level")
        });
        let conflicts = self.conflicts_per_commit.unwrap_or(0.0);
        format!("{share}  {ops} keys, {writes} % put, {conflicts:.3} conflicts a commit")
    }

    /// Returns what the line says of snapshots.
    fn snapshot_parts(&self) -> String {
        let (Some(saved), Some(held)) = (self.old_version_bytes_max, self.held_bytes_max) else {
            return self.report_parts();
        };
        let share = self.speed_to_first_variant.map_or(String::new(), |share| {
            format!("  {share:.2} of the first variant")
        });
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let (saved, held) = (mib(saved), mib(held));
        format!("{share}  at most {saved:.1} MiB of old versions, {held:.1} MiB held on disk")
    }

    /// Returns what the line says of a report.
    fn report_parts(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let share = self.speed_to_first_variant.map_or(String::new(), |share| {
            format!("  {share:.2} of those alone")
        });
        let scan = self.scan_entries_per_s.map_or(String::new(), |rate| {
            let passes = self.scan_passes.unwrap_or(0);
            format!("  {rate:.0} entries/s scanned, {passes} passes")
        });
        let settled = self.settled_after_s.map_or(String::new(), |after| {
            format!(", on disk after {after:.1} s")
        });
        let memory =
            self.resident_bytes_max
                .zip(self.max_memory)
                .map_or(String::new(), |(most, budget)| {
                    let (most, budget) = (mib(most), mib(budget));
                    format!("  at most {most:.0} MiB resident, of {budget:.0}")
                });
        share + &scan + &settled + &memory
    }

    /// Returns the line of the table.
    pub fn line(&self) -> String {
        let number = |value: Option<f64>, digits: usize| match value {
            Some(value) => format!("{value:.digits$}"),
            None => "-".to_owned(),
        };
        let found = self
            .found
            .filter(|_| self.ops > 0)
            .map(|found| 100.0 * found as f64 / self.ops as f64);
        let name = match self.ablation.is_some() || self.variant != "ours" {
            true => format!("{} {}", self.workload, self.variant),
            false => self.workload.to_owned(),
        };
        let beside = match (self.speed_to_ours, self.speed_to_one_thread) {
            (Some(share), _) => format!("  {share:.2} of ours"),
            (_, Some(times)) => format!("  {times:.2} of one thread"),
            _ => String::new(),
        };
        let beside = beside + &self.transaction_parts() + &self.snapshot_parts();
        let nanoseconds = match (self.ns_per_op, self.fill_percent) {
            (Some(ns), _) => format!("  {ns:.2} ns"),
            (_, Some(fill)) => self.allocation(fill),
            _ => String::new(),
        };
        format!(
            "{name:<26} {:>7} {:>12.0} {:>10.2} {:>10.2} {:>10.2} {:>10} {:>8} {:>8} {:>8}{beside}\
             {nanoseconds}{}",
            self.threads,
            self.ops_per_s,
            self.p50_us,
            self.p99_us,
            self.p999_us,
            number(self.cpu_us_per_op, 2),
            number(self.page_reads_per_op, 3),
            number(self.hits_per_op.map(|hits| 100.0 * hits), 1),
            number(found, 1),
            self.beside_checkpoints() + &self.queue_parts(),
        )
    }

    /// Returns what the line says about a queue.
    fn queue_parts(&self) -> String {
        let (Some(ratio), Some(bytes)) = (self.pop_last_to_first, &self.part_data_bytes_max) else {
            return String::new();
        };
        let mib = |at: Option<&u64>| at.map_or(0.0, |bytes| *bytes as f64 / f64::from(1 << 20));
        format!(
            "  pops of the last fifth {ratio:.2} of the first; data {:.0} MiB, at first {:.0}",
            mib(bytes.last()),
            mib(bytes.first())
        )
    }

    /// Returns what the line says about allocations.
    fn allocation(&self, fill_percent: u64) -> String {
        let pieces = match self.fragmented {
            Some(true) => "fragmented",
            _ => "fresh",
        };
        let times = match (self.p50_ns, self.p999_ns, self.free_p50_ns) {
            (Some(p50), Some(p999), Some(free)) => {
                format!(": p50 {p50:.1} ns, p99.9 {p999:.0} ns, free {free:.1} ns")
            }
            // Over a store, single allocations are of no interest.
            _ => String::new(),
        };
        format!("  {fill_percent} % full, {pieces}{times}")
    }

    /// Returns one line of JSON, without its line end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps and no foreign types")
    }
}
