//! What is reported of a workload: a JSON object for machines, a line of a table for people.
//!
//! One kind of record for all layers. Every name carries its unit but those that other tools give;
//! what means nothing for a benchmark is absent.

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
            /// Threads that ran operations.
            pub threads: usize,
            /// Operations a second over all threads: keys, commands, requests to the device.
            pub ops_per_s: f64,
            /// Median of the time of a call (a batch is one), in microseconds.
            pub p50_us: f64,
            /// Time that 99 % of the calls did not exceed.
            pub p99_us: f64,
            /// Time that 99.9 % of the calls did not exceed.
            pub p999_us: f64,
            /// Mean time of a call.
            pub mean_us: f64,
            /// Longest time of a call.
            pub max_us: f64,
            /// Operations that were counted.
            pub ops: u64,
            /// Length of the run, without warm-up, in seconds.
            pub elapsed_s: f64,
            /// Of all choices.
            pub seed: u64,
            $(
                $(#[$about])*
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$kind>,
            )*
            /// Times of calls in microseconds by the share that did not exceed them, in order.
            #[serde(skip)]
            pub percentiles: Vec<(f64, f64)>,
            /// Counters of the engine over the run, for people who ask.
            #[serde(skip)]
            pub tickers: Vec<(&'static str, &'static str, u64)>,
        }
    };
}

record! {
    /// The ablation that the variant belongs to; figures are of its round of median speed.
    ablation: &'static str;
    /// What the variant does, in words.
    variant_about: &'static str;
    /// It is what the product does.
    is_ours: bool;
    /// Rounds in which each variant had its turn.
    rounds: usize;
    /// Operations a second in the slowest round.
    ops_per_s_min: f64;
    /// Operations a second in the fastest round.
    ops_per_s_max: f64;
    /// Operations a second in relation to what the product does, the median of all rounds.
    speed_to_ours: f64;
    /// Operations a second in relation to those of one thread, of the same variant.
    speed_to_one_thread: f64;
    /// Share of the blocks that are allocated, in percent.
    fill_percent: u64;
    /// What is free lies in many pieces.
    fragmented: bool;
    /// Median of batches of 64 allocations, divided by 64.
    p50_ns: f64;
    /// Time that 99.9 % of single allocations did not exceed, the clock's own cost taken off.
    p999_ns: f64;
    /// As `p50_ns`, of frees.
    free_p50_ns: f64;
    /// Searches that ended because they had looked at enough words of the bitmap.
    searches_bounded: u64;
    /// Processor time of an addition, of counters.
    ns_per_op: f64;
    /// The same of a plain increment of words of the thread's own, which nobody else can read.
    plain_ns_per_op: f64;
    /// The same with a lock prefix.
    lock_add_ns_per_op: f64;
    /// Shortest time of a query.
    wall_min_us: f64;
    /// Mean time of a query.
    wall_mean_us: f64;
    /// Time that 95 % of the queries did not exceed.
    wall_p95_us: f64;
    /// Longest time of a query.
    wall_max_us: f64;
    /// Mean processor time of work in registers alone, in turn with queries, that takes as long as
    /// the fastest query.
    spin_mean_us: f64;
    /// Median of it.
    spin_p50_us: f64;
    /// The longest.
    spin_max_us: f64;
    /// Objects that the variant built for each operation.
    constructions_per_op: f64;
    /// Allocations that the variant made for each operation.
    allocations_per_op: f64;
    /// Descriptors of the file that were open.
    handles: usize;
    /// Median of the time of a call that read, of a workload that mixes reads and writes.
    read_p50_us: f64;
    /// Time that 99 % of these did not exceed.
    read_p99_us: f64;
    /// Time that 99.9 % of these did not exceed.
    read_p999_us: f64;
    /// Median of the time of a call that wrote, of such a workload.
    write_p50_us: f64;
    /// Time that 99 % of these did not exceed.
    write_p99_us: f64;
    /// Time that 99.9 % of these did not exceed.
    write_p999_us: f64;
    /// Longest time between two checkpoints that was asked for; fields of the next names are there
    /// with it alone.
    checkpoint_interval_s: f64;
    /// Checkpoints that ran or began during the run.
    checkpoints: u64;
    /// Calls beside which no checkpoint ran.
    quiet_calls: u64;
    /// Median of their times.
    quiet_p50_us: f64;
    /// Time that 99 % of them did not exceed.
    quiet_p99_us: f64;
    /// Time that 99.9 % of them did not exceed.
    quiet_p999_us: f64;
    /// The longest of them.
    quiet_max_us: f64;
    /// The same of those that read, of a workload that mixes.
    quiet_read_p999_us: f64;
    /// The same of those that wrote, of a workload that mixes.
    quiet_write_p999_us: f64;
    /// Calls that were under way when a checkpoint began: one a thread each time at most.
    caught_calls: u64;
    /// The longest of them.
    caught_max_us: f64;
    /// Calls that were due while a checkpoint ran.
    checkpoint_calls: u64;
    /// Median of their times.
    checkpoint_p50_us: f64;
    /// Time that 99 % of them did not exceed.
    checkpoint_p99_us: f64;
    /// Time that 99.9 % of them did not exceed.
    checkpoint_p999_us: f64;
    /// The longest of them.
    checkpoint_max_us: f64;
    /// Time that 99.9 % of those that read did not exceed, of a workload that mixes.
    checkpoint_read_p999_us: f64;
    /// The same of those that wrote.
    checkpoint_write_p999_us: f64;
    /// Processor time of the whole process for each operation.
    cpu_us_per_op: f64;
    /// Instructions of the threads that ran operations, the kernel's not included.
    instructions_per_op: f64;
    /// Cycles of the same.
    cycles_per_op: f64;
    /// References to memory that no cache had.
    cache_misses_per_op: f64;
    /// Branches that were predicted wrongly.
    branch_misses_per_op: f64;
    /// Reads that the first cache of data did not have.
    l1_misses_per_op: f64;
    /// Instructions of a cycle.
    instructions_per_cycle: f64;
    /// Processor time of a server that runs elsewhere for each operation, as it says itself.
    server_cpu_us_per_op: f64;
    /// The way to the disk.
    io_backend: String;
    /// Requests past the page cache.
    direct_io: bool;
    /// Most requests in flight: of a thread of `device` and `pool`, of an event loop.
    queue_depth: usize;
    /// Bytes of a page.
    page_size: usize;
    /// Bytes of a block.
    block_size: usize;
    /// How pages are compressed.
    compression: String;
    /// Memory budget, in bytes.
    max_memory: u64;
    /// Pages read from the device for each operation.
    page_reads_per_op: f64;
    /// Pages written to the device for each operation.
    page_writes_per_op: f64;
    /// Share of operations that found all they needed in memory.
    hits_per_op: f64;
    /// Pages read from the device for each operation that did not.
    page_reads_per_miss: f64;
    /// Share of looks at a page of the pool that found it in a frame; the others are operations.
    hits_per_look: f64;
    /// Operations that found what they asked for.
    found: u64;
    /// Operations a second of the thread beside those that are counted.
    beside_ops_per_s: f64;
    /// Keys in the store.
    num: u64;
    /// Bytes of a key.
    key_size_bytes: usize;
    /// Bytes of a value, where all have as many.
    value_size_bytes: usize;
    /// Bytes of the shortest value.
    value_size_bytes_min: usize;
    /// Bytes of the longest value.
    value_size_bytes_max: usize;
    /// How often each size between these comes.
    value_sizes: &'static str;
    /// What keys look like.
    key_kind: &'static str;
    /// Keys of a call, where a call has several.
    batch: u64;
    /// What a write waits for.
    durability: &'static str;
    /// Which keys were chosen, where they were.
    distribution: String;
    /// Entries that waited in a queue.
    queue_length: u64;
    /// A reader stood in the store all through the run.
    old_reader: bool;
    /// Mean time of a pop in each tenth of the run.
    part_pop_mean_us: Vec<f64>;
    /// The same in the last fifth in relation to the first one.
    pop_last_to_first: f64;
    /// Most bytes of the data file in each tenth.
    part_data_bytes_max: Vec<u64>;
    /// Most bytes of it that were not free.
    part_data_used_bytes_max: Vec<u64>;
    /// Most bytes of all files, the log included, as the file system sees them.
    part_disk_bytes_max: Vec<u64>;
    /// Connections.
    clients: usize;
    /// Commands that a connection has on their way.
    pipeline: usize;
    /// The server's name and version.
    server: String;
    /// Bytes of a request to the device.
    block_size_bytes: usize;
    /// Bytes of log behind the checkpoint that were replayed.
    log_bytes: u64;
    /// Megabytes (1e6 bytes) of log that recovery replayed in a second, from the opening of the
    /// first file to the end of its checkpoint.
    replayed_mb_per_s: f64;
    /// From the call that opens the store to the answer of the first read, in milliseconds.
    first_read_ms: f64;
    /// Bytes of the file, or of all pages.
    size_bytes: u64;
    /// Frames of the pool.
    frames: usize;
    /// Operations a second that were asked for, of an open loop.
    rate_ops_per_s: f64;
    /// Length of a step of the series.
    interval_s: f64;
    /// Operations a second, step by step.
    interval_ops_per_s: Vec<f64>;
}

impl Record {
    /// A record without figures.
    pub fn new(workload: &'static str, variant: &'static str, threads: usize, seed: u64) -> Self {
        Self {
            workload,
            variant,
            threads,
            seed,
            ..Self::default()
        }
    }

    /// Rates and times.
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

    /// Times by whether a checkpoint ran.
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

    /// What the line says of calls beside checkpoints.
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

    /// How long values are.
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

    /// What the engine was set to.
    pub(crate) fn set_engine(&mut self, report: &pandodb::Report) {
        self.io_backend = Some(report.io_backend.to_owned());
        self.direct_io = Some(report.direct_io);
        self.queue_depth = Some(report.queue_depth);
        self.page_size = Some(report.page_size);
        self.block_size = Some(report.block_size);
        self.compression = Some(report.compression.to_string());
        self.max_memory = Some(report.max_memory);
    }

    /// Head of the table.
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

    /// Line of the table.
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

    /// What the line says of a queue.
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

    /// What the line says of allocations.
    fn allocation(&self, fill_percent: u64) -> String {
        let pieces = match self.fragmented {
            Some(true) => "fragmented",
            _ => "fresh",
        };
        let times = match (self.p50_ns, self.p999_ns, self.free_p50_ns) {
            (Some(p50), Some(p999), Some(free)) => {
                format!(": p50 {p50:.1} ns, p99.9 {p999:.0} ns, free {free:.1} ns")
            }
            // Under a store nobody looks at single ones.
            _ => String::new(),
        };
        format!("  {fill_percent} % full, {pieces}{times}")
    }

    /// One line of JSON, without its end.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("a record has no maps and no foreign types")
    }
}
