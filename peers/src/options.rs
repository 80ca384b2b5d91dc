//! What a run is asked for. The process of an engine gets it as JSON from the one that started it.

use std::path::PathBuf;

use clap::ValueEnum;
use pando_bench::keys::Keys;
use pando_bench::{Distribution, Error, KeyKind, Result, Workload};
use pando_sync::time::Duration;
use serde::{Deserialize, Serialize};

/// What a write waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It is on disk.
    Durable,
    /// Nothing; once a second all is made durable.
    Periodic,
    /// Nothing.
    None,
}

impl Level {
    /// Its name in options and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Periodic => "periodic",
            Self::None => "none",
        }
    }
}

/// What keys look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A number with leading zeros.
    Decimal,
    /// Eight big-endian bytes, padded with the character 0.
    Binary,
    /// Sixteen bytes that look random.
    Random,
}

impl Kind {
    /// As `pando-bench` calls it.
    pub fn kind(self) -> KeyKind {
        match self {
            Self::Decimal => KeyKind::Decimal,
            Self::Binary => KeyKind::Binary,
            Self::Random => KeyKind::Random,
        }
    }
}

/// Workloads that other engines are measured under.
pub const WORKLOADS: [Workload; 11] = [
    Workload::FillSeq,
    Workload::FillRandom,
    Workload::FillBulk,
    Workload::Overwrite,
    Workload::ReadRandom,
    Workload::MultiReadRandom,
    Workload::ReadSeq,
    Workload::SeekRandom,
    Workload::ReadWhileWriting,
    Workload::UpdateRandom,
    Workload::Transactions,
];

/// Entries of a call of readseq.
pub const CHUNK: u64 = 1000;

/// Options of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Options {
    /// Names of engines, in their order.
    pub engines: Vec<String>,
    /// Names of workloads, in their order.
    pub workloads: Vec<String>,
    /// Number of keys.
    pub num: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// What keys look like.
    pub key_kind: Kind,
    /// Memory budget of each engine, in bytes.
    pub max_memory: u64,
    /// What a write waits for.
    pub durability: Level,
    /// Which keys are chosen.
    pub distribution: Distribution,
    /// Engines finish what they put off after each workload that writes.
    pub settle: bool,
    /// Numbers of threads, in their order.
    pub threads: Vec<usize>,
    /// Length of workloads that do not fill; None: `num` operations.
    pub duration: Option<Duration>,
    /// Time before each measured part, in no figure.
    pub warmup: Duration,
    /// How often each engine has its turn.
    pub rounds: u64,
    /// Keys of a commit of fills and of overwrite, and of a call of multireadrandom. None: 128,
    /// but one for durable writes of overwrite.
    pub batch: Option<u64>,
    /// Entries of a call of seekrandom.
    pub scan: u64,
    /// Keys of a transaction.
    pub ops_per_transaction: u64,
    /// How many of a hundred of them are put; the others are read.
    pub writes: u64,
    /// Of all choices.
    pub seed: u64,
    /// Where stores lie; None: a temporary directory.
    pub dir: Option<PathBuf>,
    /// Where records go.
    pub json: Option<PathBuf>,
    /// A group whose children may be given memory limits; None: the own one, if it can.
    pub cgroup: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engines: Vec::new(),
            workloads: Vec::new(),
            num: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            key_kind: Kind::Decimal,
            max_memory: 1 << 30,
            durability: Level::None,
            distribution: Distribution::Uniform,
            settle: false,
            threads: vec![1],
            duration: None,
            warmup: Duration::ZERO,
            rounds: 1,
            batch: None,
            scan: 100,
            ops_per_transaction: 11,
            writes: 9,
            seed: 1,
            dir: None,
            json: None,
            cgroup: None,
        }
    }
}

/// For `map_err` and alike: an error of an engine or of the system.
pub(crate) fn failed<E>(during: impl Into<String>) -> impl FnOnce(E) -> Error
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let during = during.into();
    move |source| Error::Io {
        during,
        source: std::io::Error::other(source),
    }
}

/// An option that makes no sense.
pub(crate) fn refused(flag: &'static str, what: impl Into<String>) -> Error {
    let what = what.into();
    Error::Option { flag, what }
}

impl Options {
    /// Workloads in their order.
    ///
    /// # Errors
    /// A name that is none, or one that other engines do not have.
    pub fn workloads(&self) -> Result<Vec<Workload>> {
        let one = |name: &String| {
            let workload = Workload::from_name(name)?;
            match WORKLOADS.contains(&workload) {
                true => Ok(workload),
                false => Err(refused("workloads", format!("peers have no '{name}'"))),
            }
        };
        self.workloads.iter().map(one).collect()
    }

    /// Bytes of all keys and values.
    pub fn data_bytes(&self) -> u64 {
        self.num
            .saturating_mul(self.key_bytes as u64 + self.value_bytes as u64)
    }

    /// True if memory does not hold the data.
    pub fn is_out_of_memory(&self) -> bool {
        self.data_bytes() > self.max_memory
    }

    /// True if there will be transactions.
    pub fn has_transactions(&self) -> bool {
        let name = Workload::Transactions.name();
        self.workloads.iter().any(|workload| workload == name)
    }

    /// Keys of a call of `workload`.
    pub fn batch_of(&self, workload: Workload) -> u64 {
        const BATCH: u64 = 128;
        let durable = self.durability == Level::Durable;
        match workload {
            Workload::FillSeq
            | Workload::FillRandom
            | Workload::FillBulk
            | Workload::MultiReadRandom => self.batch.unwrap_or(BATCH),
            Workload::Overwrite => self.batch.unwrap_or(if durable { 1 } else { BATCH }),
            _ => 1,
        }
    }

    /// Keys and values that `ops` operations of `workload` write, in bytes, if all of them do.
    pub(crate) fn written_bytes(&self, workload: Workload, ops: u64) -> Option<u64> {
        let writes =
            workload.is_fill() || matches!(workload, Workload::Overwrite | Workload::UpdateRandom);
        writes.then(|| ops * (self.key_bytes as u64 + self.value_bytes as u64))
    }

    /// Makes the keys that these options describe.
    pub(crate) fn keys(&self) -> Keys {
        Keys::new(self.key_kind.kind(), self.key_bytes, self.seed)
    }

    /// # Errors
    /// Options that make no sense.
    pub fn check(&self) -> Result<()> {
        let needed = |flag, fine: bool| match fine {
            true => Ok(()),
            false => Err(refused(flag, "at least 1 is needed")),
        };
        needed("num", self.num > 0)?;
        needed("rounds", self.rounds > 0)?;
        needed("batch", self.batch != Some(0))?;
        needed("scan", self.scan > 0)?;
        needed("ops-per-transaction", self.ops_per_transaction > 0)?;
        if self.writes > 100 {
            return Err(refused("writes", "a number from 0 to 100 is needed"));
        }
        needed("workloads", !self.workloads.is_empty())?;
        needed("engines", !self.engines.is_empty())?;
        needed(
            "threads",
            !self.threads.is_empty() && !self.threads.contains(&0),
        )?;
        if self.workloads()?.contains(&Workload::FillBulk) && !self.keys().is_ordered() {
            return Err(refused("key-kind", "fillbulk needs keys in order"));
        }
        if self.settle && !self.warmup.is_zero() {
            let what = "what a warm-up wrote would be counted, too";
            return Err(refused("settle", what));
        }
        match self.keys().check(self.num) {
            Some(what) => Err(refused("key-size", what)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Level, Options};
    use pando_bench::Workload;

    #[test]
    fn a_durable_put_is_acknowledged_by_itself() {
        let mut options = Options {
            durability: Level::Durable,
            ..Options::default()
        };
        assert_eq!(options.batch_of(Workload::Overwrite), 1);
        assert_eq!(options.batch_of(Workload::FillRandom), 128);
        options.durability = Level::None;
        assert_eq!(options.batch_of(Workload::Overwrite), 128);
        options.batch = Some(7);
        assert_eq!(options.batch_of(Workload::Overwrite), 7);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let fine = Options {
            engines: vec!["pandodb".to_owned()],
            workloads: vec!["readrandom".to_owned()],
            ..Options::default()
        };
        assert!(fine.check().is_ok());
        let wrong: [fn(&mut Options); 11] = [
            |options| options.writes = 101,
            |options| options.ops_per_transaction = 0,
            |options| {
                options.workloads = vec!["fillbulk".to_owned()];
                options.key_kind = super::Kind::Random;
            },
            |options| options.num = 0,
            |options| options.rounds = 0,
            |options| options.threads = vec![1, 0],
            |options| options.key_bytes = 2,
            |options| options.batch = Some(0),
            |options| (options.settle, options.warmup) = (true, Duration::from_secs(1)),
            |options| options.workloads = vec!["deleterandom".to_owned()],
            |options| options.workloads = vec!["readrandm".to_owned()],
        ];
        for change in wrong {
            let mut options = fine.clone();
            change(&mut options);
            assert!(options.check().is_err(), "{options:?}");
        }
    }
}
