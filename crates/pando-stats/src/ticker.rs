//! The table of tickers.

macro_rules! tickers {
    ($($variant:ident $name:literal $unit:literal $help:literal;)*) => {
        /// Something that is counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Ticker {
            $(#[doc = $help] $variant,)*
        }

        impl Ticker {
            /// All tickers, in the order of their declaration.
            pub const ALL: &'static [Ticker] = &[$(Ticker::$variant,)*];

            /// Name for people and scripts: snake case, without the unit.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What one stands for.
            pub fn unit(self) -> &'static str {
                match self { $(Self::$variant => $unit,)* }
            }

            /// One line of help.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

tickers! {
    Gets "gets" "operations" "Point reads.";
    GetsMissed "gets_missed" "operations" "Point reads that had to wait for a page from the device; each counts once.";
    Puts "puts" "operations" "Records written.";
    Deletes "deletes" "operations" "Records deleted.";
    ScanLeaves "scan_leaves" "leaves" "Leaves copied by scans.";
    Commits "commits" "batches" "Batches committed.";
    CommitConflicts "commit_conflicts" "batches" "Commits refused since something read had changed.";
    Restarts "restarts" "descents" "Descents begun again after a failed version check.";
    RestartsPessimistic "restarts_pessimistic" "reads" "Reads that took shared latches after they were begun again too often.";
    Faults "faults" "pages" "Pages asked for that were not in memory.";
    FaultsFailed "faults_failed" "pages" "Faults that ended without the page: faults are these and the pages read.";
    PageReads "page_reads" "pages" "Pages read from the device.";
    PageReadBytes "page_read_bytes" "bytes" "Bytes of pages read from the device.";
    PageWrites "page_writes" "pages" "Page images written to the device.";
    PageWriteBytes "page_write_bytes" "bytes" "Bytes of page images written to the device.";
    PagesCompressed "pages_compressed" "pages" "Page images that compression made smaller.";
    PagesDecompressed "pages_decompressed" "pages" "Pages read that were compressed.";
    ReadContextsMade "read_contexts_made" "contexts" "Read contexts made: one for each thread that reads.";
    EvictionsClean "evictions_clean" "frames" "Frames emptied of a clean page.";
    WritebackBatches "writeback_batches" "batches" "Vectored writes of page images.";
    Splits "splits" "pages" "Pages split in two.";
    PagesRemoved "pages_removed" "pages" "Emptied pages taken out of their tree.";
    PagesMerged "pages_merged" "pages" "Thin pages whose entries went to a neighbour.";
    LogBytes "log_bytes" "bytes" "Bytes of records appended to the log.";
    LogFlushes "log_flushes" "flushes" "Writes of the log that were made durable.";
    LogFlushedRecords "log_flushed_records" "records" "Records made durable, to be divided by the flushes.";
    GateCloses "gate_closes" "closings" "Times the apply gate was closed.";
    GateClosedNs "gate_closed_ns" "nanoseconds" "Time the apply gate was closed.";
    Checkpoints "checkpoints" "checkpoints" "Checkpoints completed.";
    CheckpointPages "checkpoint_pages" "pages" "Pages written by checkpoints.";
    GarbagePages "garbage_pages" "pages" "Pages freed from dropped tables.";
    HoldBudgets "hold_budgets" "operations" "Operations that took a hold budget to make progress.";
}

/// How many tickers there are.
pub const TICKERS: usize = Ticker::ALL.len();
