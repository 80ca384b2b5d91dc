//! Files that differ from what was written: flipped bits, cut and missing files, writes that were
//! lost or went elsewhere.
//!
//! Either the store reports the damage and names its place, or the damage does not matter: there is
//! never a wrong value and never a panic, and a store that opens continues to work (see
//! `damage_writes`). Each store is salvaged, too (see `damage_salvage`). A loss at the end of the
//! log cannot be told from a torn tail, so of the commits after the checkpoint a prefix may exist.

use std::fmt;
use std::str::FromStr;

use pando_device::faulty::{CrashMode, Fault, FaultPlan, Operation, Random};
use pando_device::{AnyDevice, Device, FaultyDevice, File, OpenOptions};
use pandodb::{Db, Error, VerifyReport};

use crate::crash::limit;
use crate::damage_salvage::{Before, Salvaged, salvage};
use crate::damage_writes::live_on;
use crate::failure::{Failure, Result, fail};
use crate::history::{self, History};
use crate::state::{Effect, Place, State};
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan};

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// One bit is flipped.
    Flip,
    /// A sector is zeroed.
    Zero,
    /// The file is truncated.
    Cut,
    /// The file is missing.
    Missing,
    /// A write has no effect.
    Lost,
    /// A write goes to another place in the file.
    Misdirected,
}

/// Harms by name.
pub const HARMS: [(&str, Harm); 6] = [
    ("flip", Harm::Flip),
    ("zero", Harm::Zero),
    ("cut", Harm::Cut),
    ("missing", Harm::Missing),
    ("lost", Harm::Lost),
    ("misdirected", Harm::Misdirected),
];
/// Prefixes of the names of a store's files.
pub const FILES: [&str; 5] = ["superblock", "map", "journal", "data", "log"];

/// One damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DamageCase {
    /// Decides the store, and the place of the damage.
    pub seed: u64,
    /// Which file, by the prefix of its name.
    pub file: &'static str,
    /// What is done to it.
    pub harm: Harm,
}

impl fmt::Display for DamageCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = HARMS.iter().find(|(_, harm)| *harm == self.harm);
        write!(
            f,
            "{}:{}:{}",
            self.seed,
            self.file,
            name.map_or("?", |(name, _)| name)
        )
    }
}

impl FromStr for DamageCase {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || Failure::new(format!("'{text}': SEED:FILE:HARM"));
        let words: Vec<&str> = text.split(':').collect();
        let [seed, file, harm] = words[..] else {
            return Err(wrong());
        };
        Ok(Self {
            seed: seed.parse().map_err(|_| wrong())?,
            file: FILES
                .iter()
                .find(|known| **known == file)
                .ok_or_else(wrong)?,
            harm: HARMS
                .iter()
                .find(|(name, _)| *name == harm)
                .ok_or_else(wrong)?
                .1,
        })
    }
}

/// Results of damages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DamageCounts {
    /// Number of damages.
    pub cases: u64,
    /// Damages that opening reported.
    pub refused: u64,
    /// Damages that reading reported.
    pub met: u64,
    /// Damages that did not matter.
    pub harmless: u64,
    /// Stores that were written to afterwards, and opened again.
    pub written: u64,
}

impl DamageCounts {
    /// Adds the results of other damages.
    pub fn add(&mut self, other: Self) {
        self.cases += other.cases;
        self.refused += other.refused;
        self.met += other.met;
        self.harmless += other.harmless;
        self.written += other.written;
    }
}

/// A store that was used and then closed, or not.
struct Victim {
    device: FaultyDevice,
    /// What it held halfway through its life, and what was done until then.
    first: State,
    older: Vec<History>,
    histories: Vec<History>,
    synced: Vec<u64>,
    /// Its contents without the damage.
    content: Vec<State>,
}

impl DamageCase {
    /// Returns a random case.
    pub fn choose(random: &mut Random) -> Self {
        Self {
            seed: random.below(1 << 20),
            file: FILES[random.index(FILES.len())],
            harm: HARMS[random.index(HARMS.len())].1,
        }
    }

    /// Returns the command that repeats the case.
    pub fn command(&self) -> String {
        format!("cargo run -p pando-sim -- damage --case {self} --repeat 10")
    }

    /// Does `times` damages of this kind to one store.
    ///
    /// # Errors
    /// What is wrong, with the command that repeats the case.
    pub fn run(&self, times: u64) -> Result<DamageCounts> {
        let mut counts = DamageCounts::default();
        let replay = |failure: Failure| failure.within(format!("replay: {}\n ", self.command()));
        let mut random = Random::new(self.seed).part(0xda3a);
        let written_wrong = matches!(self.harm, Harm::Lost | Harm::Misdirected);
        for time in 0..times {
            let _watchdog = Watchdog::new(limit(), self.command());
            let victim = self.victim(&mut random, time).map_err(replay)?;
            let places = match (self.file, self.harm) {
                _ if written_wrong => 1,
                // Many hit pages that have moved since.
                ("data", Harm::Flip | Harm::Zero) => 16,
                _ => 4,
            };
            for _ in 0..places {
                let device = victim.device.after_crash(1, CrashMode::AllSurvive);
                let harmed = self.harm(&device, &victim.content, &mut random);
                let place = harmed.map_err(replay)?;
                counts.cases += 1;
                self.judge(&device, &victim, &mut random, &mut counts)
                    .map_err(|failure| replay(failure.within(place)))?;
            }
        }
        Ok(counts)
    }

    fn victim(&self, random: &mut Random, time: u64) -> Result<Victim> {
        let device = FaultyDevice::new(self.seed);
        let plan = Plan {
            round: time,
            threads: 1,
            ..Plan::of_seed(self.seed, 200)
        };
        let db = store::open(self.seed, &device).map_err(failed("opening"))?;
        let first = workload::run(&db, plan, &[])?;
        // From here on, a prefix is a prefix of the second workload's commits.
        db.checkpoint().map_err(failed("a checkpoint"))?;
        let wrong = match self.harm {
            Harm::Lost => Some(Fault::Lost),
            Harm::Misdirected => Some(Fault::Misdirected(4096 * random.below(64))),
            _ => None,
        };
        if let Some(fault) = wrong {
            let nth = 1 + random.below(12);
            device.fail(FaultPlan::once(Operation::Write, self.file, nth, fault));
        }
        let initial = [first.histories[0].now().clone()];
        let again = Plan {
            round: plan.round + 1000,
            ..plan
        };
        // If a write went wrong, the workload's reads may meet the damage already.
        let run = workload::run(&db, again, &initial);
        device.clear_faults();
        let (histories, synced) = match run {
            Ok(run) if wrong.is_some() || run.errors.is_empty() => (run.histories, run.synced),
            Ok(run) => return fail(format!("without damage: {:?}", run.errors)),
            Err(failure) => return Err(failure),
        };
        let whole = random.once_in(2) && db.report().poisoned.is_none();
        if whole {
            // A damaged page may prevent a clean close.
            let _ = db.close();
        } else {
            device.crash_now();
            drop(db);
        }
        let device = device.after_crash(1, CrashMode::AllSurvive);
        let content = if wrong.is_some() {
            Vec::new()
        } else {
            let copy = device.after_crash(1, CrashMode::AllSurvive);
            let db = store::open(self.seed, &copy).map_err(failed("opening undamaged"))?;
            store::read_all(&db, 1)?
        };
        let [initial] = initial;
        Ok(Victim {
            device,
            first: initial,
            older: first.histories,
            histories,
            synced,
            content,
        })
    }

    /// Does the damage to a store of `content`; returns a description of the place.
    fn harm(
        &self,
        device: &FaultyDevice,
        content: &[State],
        random: &mut Random,
    ) -> Result<String> {
        let any = AnyDevice::from(device.clone());
        let names = any
            .list()
            .map_err(|error| Failure::new(error.to_string()))?;
        let names: Vec<_> = names
            .iter()
            .filter(|name| name.starts_with(self.file))
            .collect();
        let Some(name) = names.get(random.index(names.len().max(1))) else {
            return fail(format!("no file begins with {}", self.file));
        };
        let bytes = device.snapshot_file(name);
        if bytes.is_empty() || matches!(self.harm, Harm::Lost | Harm::Misdirected) {
            return Ok((*name).clone());
        }
        let value = match self.file == "data" && random.once_in(2) {
            true => a_value(&bytes, content, random),
            false => None,
        };
        let offset = value.unwrap_or_else(|| interesting(&bytes, random));
        let failed = |error: pando_device::Error| Failure::new(error.to_string());
        match self.harm {
            Harm::Flip => device.flip_bit(name, offset, random.number().to_le_bytes()[0] % 8),
            Harm::Zero => {
                let start = offset / 512 * 512;
                let len = (bytes.len() as u64 - start).min(512) as usize;
                device.overwrite(name, start, &vec![0; len]);
            }
            Harm::Cut => {
                let file = any.open(name, OpenOptions::write()).map_err(failed)?;
                file.set_len(offset)
                    .and_then(|()| file.sync())
                    .map_err(failed)?;
            }
            Harm::Missing => any.remove(name).map_err(failed)?,
            Harm::Lost | Harm::Misdirected => {}
        }
        Ok(format!("{name} at {offset}"))
    }

    fn judge(
        &self,
        device: &FaultyDevice,
        victim: &Victim,
        random: &mut Random,
        counts: &mut DamageCounts,
    ) -> Result<()> {
        let verified = VerifyReport::of_device(&AnyDevice::from(device.clone()));
        let sound = verified
            .as_ref()
            .is_ok_and(|report| report.damages.is_empty());
        if let Err(error) = &verified {
            self.check_words(error)?;
        }
        self.salvage(device, victim)
            .map_err(|failure| failure.within("salvaged".to_owned()))?;
        let db = match store::open(self.seed, device) {
            Ok(db) => db,
            Err(error) => {
                counts.refused += 1;
                if sound {
                    return fail(format!("verify found nothing, but opening says: {error}"));
                }
                return self.check_words(&error);
            }
        };
        let met = self.read(&db, victim)?;
        let places = places(&victim.histories).into_iter();
        live_on(self.seed, db, device, places, random)
            .map_err(|failure| failure.within("written to".to_owned()))?;
        counts.written += 1;
        match met {
            Some(error) if sound => fail(format!("verify found nothing, but a read says: {error}")),
            Some(_) => {
                counts.met += 1;
                Ok(())
            }
            None => {
                counts.harmless += 1;
                Ok(())
            }
        }
    }

    /// Salvages the store: everything that is not listed as lost must be the same as in the store.
    fn salvage(&self, device: &FaultyDevice, victim: &Victim) -> Result<()> {
        let exact = self.file != "log";
        let before = Before {
            first: &victim.first,
            older: &victim.older,
            histories: &victim.histories,
            content: victim.content.first().filter(|_| exact),
        };
        match salvage(self.seed, device, &before)? {
            Salvaged::Whole(found) => self.compare(victim, &found),
            Salvaged::InPart => Ok(()),
            Salvaged::Refused(error) => self.check_words(&error),
        }
    }

    /// Reads everything; returns the error that reports the damage, or `None` if nothing is wrong.
    fn read(&self, db: &Db, victim: &Victim) -> Result<Option<Error>> {
        let met = self.read_keys(db, victim)?;
        if met.is_some() {
            return Ok(met);
        }
        self.compare(victim, &store::read_all(db, 1)?)?;
        Ok(None)
    }

    /// Checks that `found`, for which no damage was reported, is what it must be.
    fn compare(&self, victim: &Victim, found: &[State]) -> Result<()> {
        let log_may_end_early = self.file == "log";
        match self.harm {
            Harm::Lost | Harm::Misdirected if !log_may_end_early => {
                history::check(&victim.histories, &victim.synced, found)?;
            }
            _ if log_may_end_early => history::check_any_prefix(&victim.histories, found)?,
            _ if found != victim.content => {
                let what = victim.content[0].differences(&found[0]);
                return fail(format!("silently different:\n  {what}"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that the error reports damage, or the missing file, and names a place.
    fn check_words(&self, error: &Error) -> Result<()> {
        let missing = self.harm == Harm::Missing && matches!(error, Error::Io { .. });
        let text = error.to_string();
        let expected = error.is_corruption() || missing && text.contains(self.file);
        if !expected || text.len() < 12 || text.contains("panicked") {
            return fail(format!("not what one says of damage: {text}"));
        }
        Ok(())
    }

    /// Point reads of every key that was ever written.
    fn read_keys(&self, db: &Db, victim: &Victim) -> Result<Option<Error>> {
        let mut met = None;
        for (name, key) in places(&victim.histories) {
            let Some(table) = db.existing_table(&name) else {
                continue;
            };
            match table.get(&key) {
                Ok(value) => {
                    let exact = self.file != "log" && !victim.content.is_empty();
                    let place = (name, key);
                    if exact && value.as_ref() != victim.content[0].get(&place) {
                        return fail(format!("{place:?} has a wrong value"));
                    }
                }
                Err(error) if error.is_corruption() => {
                    self.check_words(&error)?;
                    met = Some(error);
                }
                Err(error) => return fail(format!("{name}: {error}")),
            }
        }
        // A scan ends at the first damage.
        for name in db.tables() {
            let table = db.existing_table(&name);
            for entry in table.iter().flatten() {
                match entry {
                    Ok(_) => {}
                    Err(error) if error.is_corruption() => {
                        met = Some(error);
                        break;
                    }
                    Err(error) => return fail(format!("scanning {name}: {error}")),
                }
            }
        }
        Ok(met)
    }
}

/// Returns every place that was ever written.
fn places(histories: &[History]) -> std::collections::BTreeSet<Place> {
    let steps = histories.iter().flat_map(History::steps);
    let written = steps
        .flat_map(|step| &step.effects)
        .filter_map(|effect| match effect {
            Effect::Put(place, _) | Effect::Delete(place) => Some(place.clone()),
            _ => None,
        });
    let there = histories
        .iter()
        .flat_map(|history| history.now().entries().keys().cloned());
    written.chain(there).collect()
}

/// Returns the offset of one of the values of `content`, now or earlier: most of a data file
/// consists of pages that have moved since. Returns `None` if the value is not found in its plain
/// form.
fn a_value(bytes: &[u8], content: &[State], random: &mut Random) -> Option<u64> {
    let entries = content.first()?.entries();
    let value = entries.values().nth(random.index(entries.len().max(1)))?;
    let start = value
        .get(..value.len().min(32))
        .filter(|start| start.len() >= 8)?;
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(at) = bytes[from..]
        .windows(start.len())
        .position(|found| found == start)
    {
        places.push((from + at) as u64);
        from += at + start.len();
    }
    places.get(random.index(places.len().max(1))).copied()
}

/// Returns an offset at which a change hurts: mostly one that was written.
fn interesting(bytes: &[u8], random: &mut Random) -> u64 {
    let any = random.index(bytes.len());
    if random.once_in(8) {
        return any as u64;
    }
    let written = |at: &usize| bytes[*at] != 0;
    let behind = (any..bytes.len()).find(written);
    let found = behind.or_else(|| (0..any).rev().find(written));
    found.unwrap_or(any) as u64
}

fn failed(what: &'static str) -> impl Fn(Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}
