//! The table of tickers: everything that is counted, with unit and help.
//!
//! The documentation page, INFO and all other places that show counts use it. Each ticker has a
//! test, in the crate of its layer, which checks that it moves by the right amount.

/// The part of the product that counts something, and has the test for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// Operations and threads of the engine.
    Engine,
    /// The B+tree.
    Tree,
    /// Pages in memory.
    Pool,
    /// The log.
    Log,
    /// Files and requests in flight.
    Device,
    /// Connections and commands.
    Server,
}

impl Layer {
    /// All layers.
    pub const ALL: [Self; 6] = [
        Self::Engine,
        Self::Tree,
        Self::Pool,
        Self::Log,
        Self::Device,
        Self::Server,
    ];

    /// Returns the name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Tree => "tree",
            Self::Pool => "pool",
            Self::Log => "log",
            Self::Device => "device",
            Self::Server => "server",
        }
    }
}

macro_rules! tickers {
    ($($layer:ident { $($variant:ident $name:literal $unit:literal $help:literal;)* })*) => {
        /// A quantity that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Ticker {
            $($(#[doc = $help] $variant,)*)*
        }

        impl Ticker {
            /// All tickers, in the order of their declaration.
            pub const ALL: &'static [Ticker] = &[$($(Ticker::$variant,)*)*];

            /// Returns the name, in snake case, without the unit.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)*)* }
            }

            /// Returns the unit.
            pub fn unit(self) -> &'static str {
                match self { $($(Self::$variant => $unit,)*)* }
            }

            /// Returns one line of help.
            pub fn help(self) -> &'static str {
                match self { $($(Self::$variant => $help,)*)* }
            }

            /// Returns the layer that counts it.
            pub fn layer(self) -> Layer {
                match self { $($(Self::$variant => Layer::$layer,)*)* }
            }
        }
    };
}

tickers! {
    Engine {
        Gets "gets" "operations" "Point reads.";
        GetsMissed "gets_missed" "operations" "Point reads that had to wait for a page from the device; each counts once.";
        Puts "puts" "operations" "Records written.";
        Deletes "deletes" "operations" "Records deleted.";
        WriteBytes "write_bytes" "bytes" "Keys and values of records written, keys of records deleted.";
        Scans "scans" "operations" "Scans begun.";
        ScanLeaves "scan_leaves" "leaves" "Leaves copied by scans.";
        Commits "commits" "batches" "Batches committed.";
        CommitConflicts "commit_conflicts" "batches" "Commits refused since something read had changed.";
        Deadlocks "deadlocks" "transactions" "Transactions and commits ended since they waited for locks in a circle.";
        LockTimeouts "lock_timeouts" "operations" "Operations ended since another transaction had locked a key for too long.";
        SnapshotsEnded "snapshots_ended" "times" "Times that snapshots were ended since memory or disk had no room for what they read.";
        RestartsConflict "restarts_conflict" "steps" "Steps begun again since a page was latched or changed.";
        RestartsFrames "restarts_frames" "steps" "Steps begun again that had to wait for a free frame.";
        RestartsImages "restarts_images" "steps" "Steps begun again that had to wait for an image buffer.";
        RestartsGate "restarts_gate" "steps" "Steps begun again that found the apply gate closed.";
        RestartsStripe "restarts_stripe" "steps" "Steps begun again that found a stripe of keys locked.";
        RestartsLog "restarts_log" "steps" "Steps begun again that had to wait for room in the log.";
        RestartsBlocks "restarts_blocks" "steps" "Steps begun again that had to wait for blocks on disk.";
        RestartsPageIds "restarts_page_ids" "steps" "Steps begun again that had to wait for page ids that others had reserved.";
        RestartsDirty "restarts_dirty" "steps" "Steps begun again that had to wait for fewer dirty frames.";
        RestartsPins "restarts_pins" "steps" "Steps begun again that had to wait for a pin share.";
        RestartsApplied "restarts_applied" "steps" "Steps begun again that had to wait for a batch to be applied.";
        RestartsVersions "restarts_versions" "steps" "Steps begun again that had to wait for room for values that snapshots still read.";
        RestartsLock "restarts_lock" "steps" "Steps begun again that had to wait for a lock of a transaction.";
        RestartsJob "restarts_job" "steps" "Steps that waited for a job of an engine thread.";
        ReadContextsMade "read_contexts_made" "contexts" "Read contexts made: one for each thread that reads.";
        PinShares "pin_shares" "operations" "Operations that took a pin share to make progress.";
        WritebackBatches "writeback_batches" "batches" "Vectored writes of page images.";
        GateCloses "gate_closes" "closings" "Times the apply gate was closed.";
        GateClosedNs "gate_closed_ns" "nanoseconds" "Time the apply gate was closed.";
        Checkpoints "checkpoints" "checkpoints" "Checkpoints completed.";
        CheckpointPages "checkpoint_pages" "pages" "Pages written by checkpoints.";
        WritesAside "writes_aside" "writes" "Writes that are in the log and were put aside, since the page of their key cannot be read.";
        Leaks "leaks" "times" "Something to free was given up, since what it has cannot be read.";
        GarbagePages "garbage_pages" "pages" "Pages and chunks freed of dropped tables and of large values that are gone.";
        CompactPages "compact_pages" "pages" "Pages that compaction made be written again, further to the front of the data file.";
        CompactChunks "compact_chunks" "chunks" "Chunks of large values that compaction moved further to the front.";
        MappingWriteBytes "mapping_write_bytes" "bytes" "Bytes written to say where pages lie: journal, base, superblock.";
        ChunkReads "chunk_reads" "chunks" "Chunks of large values read from the device.";
        ChunkReadBytes "chunk_read_bytes" "bytes" "Bytes of these.";
        ChunkWrites "chunk_writes" "chunks" "Chunks of large values written to the device.";
        ChunkWriteBytes "chunk_write_bytes" "bytes" "Bytes of the blocks of these.";
        ExtentsAllocated "extents_allocated" "extents" "Extents of blocks allocated for page images.";
        BlocksAllocated "blocks_allocated" "blocks" "Blocks of these.";
        BlocksFreed "blocks_freed" "blocks" "Blocks given back.";
        BlocksDiscarded "blocks_discarded" "blocks" "Free blocks given back to the file system.";
        SearchesBounded "searches_bounded" "searches" "Searches for blocks that ended at their bound.";
    }
    Tree {
        Restarts "restarts" "descents" "Descents begun again after a failed version check.";
        RestartsPessimistic "restarts_pessimistic" "reads" "Reads that took shared latches after they were begun again too often.";
        Splits "splits" "pages" "Pages split in two.";
        PagesRemoved "pages_removed" "pages" "Emptied pages taken out of their tree.";
        PagesMerged "pages_merged" "pages" "Underfull pages whose entries went to a neighbour.";
        PagesPacked "pages_packed" "pages" "Pages that compaction filled with entries of a neighbour.";
    }
    Pool {
        Faults "faults" "pages" "Pages asked for that were not in memory.";
        FaultsFailed "faults_failed" "pages" "Faults that ended without the page: faults are these and the pages read.";
        PageReads "page_reads" "pages" "Pages read from the device.";
        PageReadsJoined "page_reads_joined" "pages" "Pages asked of the device in one request with those beside them.";
        PageReadsLeaf "page_reads_leaf" "pages" "Leaves among these: misses of the cache at the lowest level.";
        PageReadsInner "page_reads_inner" "pages" "Inner nodes among these: misses at the levels above.";
        PageReadsOverflow "page_reads_overflow" "pages" "Pages of long values among these.";
        PageReadBytes "page_read_bytes" "bytes" "Bytes of pages read from the device, as stored.";
        PageWrites "page_writes" "pages" "Page images written to the device.";
        PageWriteBytes "page_write_bytes" "bytes" "Bytes of page images written to the device, as stored.";
        PagesCompressed "pages_compressed" "pages" "Page images that compression made smaller.";
        PagesDecompressed "pages_decompressed" "pages" "Pages read that were compressed.";
        EvictionsClean "evictions_clean" "frames" "Frames emptied of a clean page.";
        EvictionsDirty "evictions_dirty" "frames" "Images begun of dirty frames that the clock hand would have emptied.";
    }
    Log {
        LogBytes "log_bytes" "bytes" "Bytes of records appended to the log.";
        LogWriteBytes "log_write_bytes" "bytes" "Bytes that flushes wrote: records, and what fills their last sector.";
        LogFlushes "log_flushes" "flushes" "Writes of the log that were made durable.";
        LogFlushedRecords "log_flushed_records" "records" "Records made durable, to be divided by the flushes.";
    }
    Device {
        DeviceReadBytes "device_read_bytes" "bytes" "Bytes read from files.";
        DeviceWriteBytes "device_write_bytes" "bytes" "Bytes written to files.";
        DeviceErrors "device_errors" "requests" "Reads, writes and syncs that failed.";
    }
    Server {
        ConnectionsReceived "connections_received" "connections" "Connections that clients opened.";
        ConnectionsRejected "connections_rejected" "connections" "Connections refused since there were too many.";
        Commands "commands" "commands" "Commands run, whatever they replied.";
        CommandsTogether "commands_together" "commands" "GETs and commands that write that ran in a pipeline run, or with those of other connections.";
        CommandsSuspended "commands_suspended" "commands" "Times that a command had to wait for the engine.";
        ScriptsMoved "scripts_moved" "commands" "Commands that went on on a thread for scripts, since theirs took long.";
        CommandErrors "command_errors" "replies" "Replies that were errors.";
        InputBytes "input_bytes" "bytes" "Bytes received from clients.";
        OutputBytes "output_bytes" "bytes" "Bytes sent to clients.";
        KeyspaceHits "keyspace_hits" "lookups" "Lookups of keys that exist, by commands that read.";
        KeyspaceMisses "keyspace_misses" "lookups" "Lookups of keys that do not exist, by commands that read.";
        ExpiredKeys "expired_keys" "keys" "Keys removed since their time had come.";
        ObjectsFreed "objects_freed" "objects" "Large collections, streams and strings in pieces that were removed behind a command that took their key.";
        TransactionConflicts "transaction_conflicts" "transactions" "Transactions that were run again since others had changed what they read.";
    }
}

/// Number of tickers.
pub const TICKERS: usize = Ticker::ALL.len();
