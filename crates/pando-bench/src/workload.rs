//! The workloads of `bench kv`: those of `db_bench`, under its names, and the core workloads A to F
//! of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", 2010), with their mixes.

use crate::distribution::Distribution;
use crate::error::{Error, Result};
use crate::random::Random;

/// Exponent of Zipf's law in YCSB.
const YCSB_EXPONENT: f64 = 0.99;

macro_rules! workloads {
    ($($variant:ident $name:literal $help:literal;)*) => {
        /// A workload.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Workload {
            $(#[doc = $help] $variant,)*
        }

        impl Workload {
            /// All workloads.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns its name in options and records: that of `db_bench`, or of YCSB.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Returns one line of help.
            pub fn help(self) -> &'static str {
                match self { $(Self::$variant => $help,)* }
            }
        }
    };
}

workloads! {
    FillSeq "fillseq" "Writes each key once, in order.";
    FillRandom "fillrandom" "Writes each key once, in the order of a seeded permutation.";
    FillBulk "fillbulk" "Writes each key once, in order, as the engine loads what is sorted.";
    Overwrite "overwrite" "Writes random keys.";
    ReadRandom "readrandom" "Reads random keys.";
    ReadMissing "readmissing" "Reads keys that are not there.";
    MultiReadRandom "multireadrandom" "Reads random keys, several in one call.";
    ReadWhileWriting "readwhilewriting" "Reads random keys while one more thread writes random keys.";
    ReadWhileScanning "readwhilescanning" "Reads random keys while one more thread iterates.";
    ReadSeq "readseq" "Iterates forward.";
    ReadReverse "readreverse" "Iterates backward.";
    SeekRandom "seekrandom" "Finds the first entry from a random key on.";
    UpdateRandom "updaterandom" "Reads, changes and writes random keys.";
    DeleteRandom "deleterandom" "Deletes random keys.";
    YcsbA "ycsba" "YCSB A: reads 50 %, writes 50 %.";
    YcsbB "ycsbb" "YCSB B: reads 95 %, writes 5 %.";
    YcsbC "ycsbc" "YCSB C: reads.";
    YcsbD "ycsbd" "YCSB D: reads 95 %, the latest keys most, inserts 5 %.";
    YcsbE "ycsbe" "YCSB E: scans of 1 to 100 entries 95 %, inserts 5 %.";
    YcsbF "ycsbf" "YCSB F: reads 50 %, reads that change and write 50 %.";
    Transactions "transactions" "Gets and puts random keys in transactions.";
    Queue "queue" "Pushes at the tail and pops at the head of a queue.";
}

impl Workload {
    /// Returns the workload with this name.
    ///
    /// # Errors
    /// The name is unknown.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = Self::ALL.iter().find(|workload| workload.name() == name);
        known.copied().ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|workload| workload.name()).collect();
            let known = names.join(", ");
            Error::option(
                "workloads",
                format!("'{name}' is no workload; there are {known}"),
            )
        })
    }

    /// Returns true if it writes each key once, whatever the duration.
    pub fn is_fill(self) -> bool {
        matches!(self, Self::FillSeq | Self::FillRandom | Self::FillBulk)
    }

    /// Returns true if it has a companion thread, besides those that are counted.
    pub fn is_beside(self) -> bool {
        matches!(self, Self::ReadWhileWriting | Self::ReadWhileScanning)
    }

    /// Returns the mix of YCSB's core workload with this name; `None` if it is not one of YCSB.
    pub(crate) fn mix(self) -> Option<Mix> {
        let mix = |percent, most, rest| {
            Some(Mix {
                percent,
                most,
                rest,
            })
        };
        match self {
            Self::YcsbA => mix(50, Act::Read, Act::Write),
            Self::YcsbB => mix(95, Act::Read, Act::Write),
            Self::YcsbC => mix(100, Act::Read, Act::Write),
            Self::YcsbD => mix(95, Act::Read, Act::Insert),
            Self::YcsbE => mix(95, Act::Scan, Act::Insert),
            Self::YcsbF => mix(50, Act::Read, Act::Change),
            _ => None,
        }
    }

    /// Returns true if it inserts new keys.
    pub(crate) fn inserts(self) -> bool {
        matches!(self, Self::YcsbD | Self::YcsbE)
    }

    /// Returns the default distribution of its keys.
    pub fn distribution(self) -> Distribution {
        match self {
            Self::YcsbD => Distribution::Latest,
            _ if self.mix().is_some() => Distribution::Zipf(YCSB_EXPONENT),
            _ => Distribution::Uniform,
        }
    }
}

/// One operation of a mixed workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// Reads an existing key.
    Read,
    /// Overwrites an existing key, without reading it.
    Write,
    /// Inserts a new key.
    Insert,
    /// Reads some entries, starting with a key.
    Scan,
    /// Reads a key, and writes a value derived from what it read.
    Change,
}

/// Two operations, and how often each is chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    /// Share of `most`, in percent.
    percent: u64,
    most: Act,
    rest: Act,
}

impl Mix {
    /// Returns the next operation.
    pub(crate) fn choose(self, random: &mut Random) -> Act {
        match random.below(100) < self.percent {
            true => self.most,
            false => self.rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Distribution, Workload};
    use crate::random::Random;

    /// Parsing the name of a workload returns that workload, and an unknown name is reported.
    #[test]
    fn names_come_back() {
        for workload in Workload::ALL {
            assert_eq!(Workload::from_name(workload.name()).unwrap(), *workload);
        }
        let text = Workload::from_name("fillsec").unwrap_err().to_string();
        assert!(text.contains("is no workload; there are fillseq"), "{text}");
    }

    #[test]
    fn mixes_are_those_of_ycsb() {
        let shares = |workload: Workload| {
            let (mix, mut random) = (workload.mix().unwrap(), Random::new(1, 0));
            let acts: Vec<Act> = (0..20_000).map(|_| mix.choose(&mut random)).collect();
            let share = |act| acts.iter().filter(|one| **one == act).count() as f64 / 20_000.0;
            [Act::Read, Act::Write, Act::Insert, Act::Scan, Act::Change].map(share)
        };
        for (workload, expected) in [
            (Workload::YcsbA, [0.5, 0.5, 0.0, 0.0, 0.0]),
            (Workload::YcsbB, [0.95, 0.05, 0.0, 0.0, 0.0]),
            (Workload::YcsbC, [1.0, 0.0, 0.0, 0.0, 0.0]),
            (Workload::YcsbD, [0.95, 0.0, 0.05, 0.0, 0.0]),
            (Workload::YcsbE, [0.0, 0.0, 0.05, 0.95, 0.0]),
            (Workload::YcsbF, [0.5, 0.0, 0.0, 0.0, 0.5]),
        ] {
            for (share, wanted) in shares(workload).iter().zip(expected) {
                assert!((share - wanted).abs() < 0.02, "{workload:?}: {share}");
            }
        }
        assert!(Workload::ReadRandom.mix().is_none());
    }

    #[test]
    fn keys_are_chosen_as_ycsb_does() {
        assert_eq!(Workload::YcsbD.distribution(), Distribution::Latest);
        assert_eq!(Workload::YcsbE.distribution(), Distribution::Zipf(0.99));
        assert_eq!(Workload::ReadRandom.distribution(), Distribution::Uniform);
    }
}
