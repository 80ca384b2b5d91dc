//! The table of histograms: what is measured, with unit and help.
//!
//! It has the form of the table of tickers. A name with `sampled` is for operations so short that
//! reading the clock would cost more than 1 % of them: [`Sampled`](crate::Sampled) chooses the ones
//! that are timed.

use crate::ticker::Layer;

macro_rules! measures {
    ($($layer:ident { $($variant:ident $name:literal $unit:literal $help:literal;)* })*) => {
        /// A quantity that has a histogram.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Measure {
            $($(#[doc = $help] $variant,)*)*
        }

        impl Measure {
            /// All measures, in the order of their declaration.
            pub const ALL: &'static [Measure] = &[$($(Measure::$variant,)*)*];

            /// Returns the name, in snake case, with the unit for times.
            pub fn name(self) -> &'static str {
                match self { $($(Self::$variant => $name,)*)* }
            }

            /// Returns the unit of its values.
            pub fn unit(self) -> &'static str {
                match self { $($(Self::$variant => $unit,)*)* }
            }

            /// Returns one line of help.
            pub fn help(self) -> &'static str {
                match self { $($(Self::$variant => $help,)*)* }
            }

            /// Returns the layer that measures it.
            pub fn layer(self) -> Layer {
                match self { $($(Self::$variant => Layer::$layer,)*)* }
            }
        }
    };
}

measures! {
    Engine {
        GetSampled "get_sampled_ns" "nanoseconds" "Time of point reads that block, from the call to the value; one of 128.";
        ValueSampled "value_sampled_bytes" "bytes" "Length of the values that these found.";
        PutSampled "put_sampled_ns" "nanoseconds" "Time of commits that block, the wait for durability included; one of 16.";
        CommitSampled "commit_sampled_ns" "nanoseconds" "Time of the attempts that committed a batch, up to its last change; one of 16.";
        CheckpointGate "checkpoint_gate_ns" "nanoseconds" "Time a checkpoint had the gate closed.";
        CheckpointWrite "checkpoint_write_ns" "nanoseconds" "Time a checkpoint wrote pages.";
        CheckpointSync "checkpoint_sync_ns" "nanoseconds" "Time a checkpoint synced pages, journal and log.";
        CheckpointPublish "checkpoint_publish_ns" "nanoseconds" "Time a checkpoint wrote its superblock and freed what was retired.";
    }
    Log {
        LogFlush "log_flush_ns" "nanoseconds" "Time of a write of the log and its sync.";
        LogFlushRecords "log_flush_records" "records" "Records that one flush made durable.";
    }
    Device {
        DeviceRead "device_read_ns" "nanoseconds" "Time from the submission of a read to its completion, both as the caller sees them.";
        DeviceWrite "device_write_ns" "nanoseconds" "The same of a write.";
        DeviceSync "device_sync_ns" "nanoseconds" "Time of a sync.";
        DeviceQueueDepth "device_queue_depth" "requests" "Requests in flight on the channel of a request when it was submitted, itself included.";
    }
}

/// Number of measures.
pub const MEASURES: usize = Measure::ALL.len();
