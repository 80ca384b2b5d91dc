//! Some files of a store are replaced by copies from one earlier moment, as after a backup that was
//! put back in part.
//!
//! Either the store holds what it held at some moment, or an error reports damage: there is never a
//! mix of two moments that looks whole, never a value that was not written to its key, and never a
//! panic. A store that opens continues to work (see `damage_writes`). Nobody can tell a whole
//! earlier state from one that was never continued.

use std::collections::BTreeSet;

use pando_device::faulty::{CrashMode, Random};
use pando_device::{AnyDevice, Create, Device, FaultyDevice, File, OpenOptions};
use pandodb::{Db, Error, VerifyReport};

use crate::crash::limit;
use crate::damage_writes::live_on;
use crate::failure::{Failure, Result, fail};
use crate::history::{self, History};
use crate::state::{Effect, Place, State};
use crate::store;
use crate::watchdog::Watchdog;
use crate::workload::{self, Plan};

/// Parts of a store's life; after each, its files are copied.
const PARTS: u64 = 6;
/// Steps of each part.
const STEPS: usize = 70;
/// Names that are no directory's, but stand for all files that begin with them.
const FILES: [&str; 5] = ["superblock", "map", "journal", "data", "log"];

/// All files of a moment, by name.
type Files = Vec<(String, Vec<u8>)>;

/// What became of stores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OlderCounts {
    /// Stores that were not opened.
    pub refused: u64,
    /// Stores in which reading reported damage.
    pub met: u64,
    /// Stores that held the newest state.
    pub newest: u64,
    /// Stores that held an earlier one.
    pub earlier: u64,
}

impl OlderCounts {
    /// Adds those of other stores.
    pub fn add(&mut self, other: Self) {
        self.refused += other.refused;
        self.met += other.met;
        self.newest += other.newest;
        self.earlier += other.earlier;
    }
}

struct Life {
    device: FaultyDevice,
    /// The commits of each part.
    parts: Vec<History>,
    copies: Vec<Files>,
    newest: State,
}

/// Lets a store live, and replaces files of it `times` times.
///
/// # Errors
/// What is wrong, with the seed that repeats it.
pub fn run(seed: u64, times: u64) -> Result<OlderCounts> {
    let replay = format!("older files, seed {seed}");
    let _watchdog = Watchdog::new(limit(), replay.clone());
    let mut random = Random::new(seed).part(0x01de);
    let mut counts = OlderCounts::default();
    let within = |failure: Failure| failure.within(replay.clone());
    let life = live(seed, &mut random).map_err(within)?;
    for _ in 0..times {
        let device = life.device.after_crash(1, CrashMode::AllSurvive);
        let names = replace(&device, &life, &mut random).map_err(within)?;
        judge(seed, &device, &life, &names, &mut random, &mut counts)
            .map_err(|failure| within(failure.within(names.join(", "))))?;
    }
    Ok(counts)
}

fn files_of(device: &FaultyDevice) -> Result<Files> {
    let names = AnyDevice::from(device.clone()).list().map_err(said)?;
    let copy = |name: String| {
        let bytes = device.snapshot_file(&name);
        (name, bytes)
    };
    Ok(names.into_iter().map(copy).collect())
}

fn live(seed: u64, random: &mut Random) -> Result<Life> {
    let device = FaultyDevice::new(seed);
    let plan = Plan {
        threads: 1,
        ..Plan::of_seed(seed, STEPS)
    };
    let mut db = store::open(seed, &device).map_err(said)?;
    let (mut parts, mut copies) = (Vec::new(), Vec::new());
    let mut now = State::default();
    for round in 0..PARTS {
        let plan = Plan {
            round,
            steps: STEPS,
            ..plan
        };
        let run = workload::run(&db, plan, &[now.clone()])?;
        if let Some(error) = run.errors.first() {
            return Err(said(error));
        }
        let mut histories = run.histories;
        let history = histories.pop().expect("one thread has one history");
        now = history.now().clone();
        parts.push(history);
        match random.below(4) {
            0 => db.checkpoint().map_err(said)?,
            1 => {
                db.close().map_err(said)?;
                db = store::open(seed, &device).map_err(said)?;
            }
            _ => {}
        }
        copies.push(files_of(&device)?);
    }
    match random.once_in(2) {
        true => db.close().map_err(said)?,
        false => {
            device.crash_now();
            drop(db);
        }
    }
    let device = device.after_crash(1, CrashMode::AllSurvive);
    let copy = device.after_crash(1, CrashMode::AllSurvive);
    let db = store::open(seed, &copy).map_err(said)?;
    let newest = store::read_all(&db, 1)?;
    history::check_any_prefix(&parts[parts.len() - 1..], &newest)?;
    let newest = newest.into_iter().next().expect("one thread has one state");
    Ok(Life {
        device,
        parts,
        copies,
        newest,
    })
}

/// Replaces some files by their copies of one moment; returns which.
fn replace(device: &FaultyDevice, life: &Life, random: &mut Random) -> Result<Vec<String>> {
    let moment = random.index(life.copies.len());
    let first = FILES[random.index(FILES.len())];
    let others = random.once_in(2);
    let is_chosen: Vec<_> = FILES
        .iter()
        .filter(|file| **file == first || others && random.once_in(2))
        .collect();
    // Of several files of the log, also a single one.
    let single = !others && random.once_in(2);
    let mut chosen: Vec<_> = life.copies[moment]
        .iter()
        .filter(|(name, _)| is_chosen.iter().any(|file| name.starts_with(*file)))
        .collect();
    if single && !chosen.is_empty() {
        chosen = vec![chosen[random.index(chosen.len())]];
    }
    let any = AnyDevice::from(device.clone());
    let mut names = Vec::new();
    for (name, bytes) in chosen {
        let how = OpenOptions::create(Create::IfAbsent);
        let file = any.open(name, how).map_err(said)?;
        file.set_len(0)
            .and_then(|()| file.write_at(bytes, 0))
            .and_then(|()| file.sync())
            .map_err(said)?;
        names.push(name.clone());
    }
    any.sync_directory().map_err(said)?;
    Ok(names)
}

fn judge(
    seed: u64,
    device: &FaultyDevice,
    life: &Life,
    names: &[String],
    random: &mut Random,
    counts: &mut OlderCounts,
) -> Result<()> {
    // Superblock and log say what the newest state is.
    let tells = |name: &String| name.starts_with("superblock") || name.starts_with("log");
    let is_exact = !names.iter().any(tells);
    let verified = VerifyReport::of_device(&AnyDevice::from(device.clone()));
    let is_sound = verified.is_ok_and(|report| report.damages.is_empty());
    let db = match store::open(seed, device) {
        Ok(db) => db,
        // Records that are sound may be about pages of a later moment.
        Err(error) if is_sound && !error.to_string().starts_with("log ") => {
            return fail(format!("verify found nothing, but opening says: {error}"));
        }
        Err(error) => {
            counts.refused += 1;
            return check_words(&error);
        }
    };
    let met = read_keys(&db, life, is_exact)?;
    match met {
        Some(error) if is_sound => {
            return fail(format!("verify found nothing, but a read says: {error}"));
        }
        Some(_) => counts.met += 1,
        None => {
            let found = store::read_all(&db, 1)?;
            let is_prefix = |part: &History| {
                history::check_any_prefix(std::slice::from_ref(part), &found).is_ok()
            };
            if !life.parts.iter().any(is_prefix) {
                let what = life.newest.differences(&found[0]);
                return fail(format!("of no moment; against the newest:\n  {what}"));
            }
            match found[0] == life.newest {
                true => counts.newest += 1,
                false if is_exact => return fail("not the newest state".to_owned()),
                false => counts.earlier += 1,
            }
        }
    }
    live_on(seed, db, device, places(life).into_iter(), random)
        .map_err(|failure| failure.within("written to".to_owned()))
}

/// Reads every key that was ever written, and all tables; returns the error of what is damaged.
/// What can be read is what the newest state has, if that `is_exact`.
fn read_keys(db: &Db, life: &Life, is_exact: bool) -> Result<Option<Error>> {
    let mut met = None;
    for (name, key) in places(life) {
        let Some(table) = db.existing_table(&name) else {
            continue;
        };
        let place = (name, key);
        match table.get(&place.1) {
            Ok(value) if is_exact && value.as_ref() != life.newest.get(&place) => {
                return fail(format!("{place:?} has a value of another moment"));
            }
            Ok(_) => {}
            Err(error) => {
                check_words(&error)?;
                met = Some(error);
            }
        }
    }
    for name in db.tables() {
        let table = db.existing_table(&name);
        for entry in table.iter().flatten() {
            if let Err(error) = entry {
                check_words(&error)?;
                met = Some(error);
                break;
            }
        }
    }
    Ok(met)
}

fn places(life: &Life) -> BTreeSet<Place> {
    let steps = life.parts.iter().flat_map(History::steps);
    let written = steps.flat_map(|step| &step.effects);
    written
        .filter_map(|effect| match effect {
            Effect::Put(place, _) | Effect::Delete(place) => Some(place.clone()),
            _ => None,
        })
        .collect()
}

/// Checks that the error reports damage.
fn check_words(error: &Error) -> Result<()> {
    let text = error.to_string();
    if !error.is_corruption() || text.len() < 12 || text.contains("panicked") {
        return fail(format!("not what one says of damage: {text}"));
    }
    Ok(())
}

fn said(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}
