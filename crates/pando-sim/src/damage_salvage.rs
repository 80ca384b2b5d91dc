//! A damaged store is salvaged: the new store is sound, nothing in it is wrong, and everything that
//! is missing is listed (decision 062).

use std::collections::{BTreeMap, BTreeSet};

use pando_device::AnyDevice;
use pando_device::faulty::FaultyDevice;
use pandodb::{Error, LostRange, SalvageReport};

use crate::failure::{Failure, Result, fail};
use crate::history::History;
use crate::state::{Effect, Place, State, table_owner};
use crate::store;

/// What is known of the store before the damage.
pub(crate) struct Before<'a> {
    /// The least that its first checkpoint held.
    pub(crate) first: &'a State,
    /// The commits up to that checkpoint. Without the newest changes of the mapping, pages are
    /// found at their earlier places, with their earlier contents.
    pub(crate) older: &'a [History],
    /// The commits after it.
    pub(crate) histories: &'a [History],
    /// All that the store holds, if that is known and no log is damaged.
    pub(crate) content: Option<&'a State>,
}

/// Result of a salvage.
pub(crate) enum Salvaged {
    /// Nothing is lost; has all that the new store holds.
    Whole(Vec<State>),
    /// Something is missing, and listed.
    InPart,
    /// There is no new store: a file is missing, or the whole superblock is damaged.
    Refused(Error),
}

/// Salvages the store in `device`.
///
/// # Errors
/// Something is wrong, or missing and not listed.
pub(crate) fn salvage(seed: u64, device: &FaultyDevice, before: &Before<'_>) -> Result<Salvaged> {
    let new = FaultyDevice::new(seed);
    let from = AnyDevice::from(device.clone());
    let report = SalvageReport::of_devices(&from, new.clone().into(), store::options(seed));
    let report = match report {
        Ok(report) => report,
        Err(error) => return Ok(Salvaged::Refused(error)),
    };
    store::verify(&new)?;
    let db = store::open(seed, &new).map_err(|error| Failure::new(error.to_string()))?;
    if report.is_whole() {
        return store::read_all(&db, before.histories.len()).map(Salvaged::Whole);
    }
    let mut found = BTreeMap::new();
    for name in db.tables() {
        let table = db.existing_table(&name);
        for entry in table.iter().flatten() {
            let (key, value) = entry.map_err(|error| Failure::new(error.to_string()))?;
            found.insert((name.clone(), key), value);
        }
    }
    // The owner of a table whose name is lost is unknown; the probe table has no owner.
    found.retain(|(name, _), _| !name.starts_with("lost/") && name != store::PROBE);
    match before.content.filter(|_| report.unbounded.is_empty()) {
        Some(content) => check_bounded(content, &found, &report.lost)?,
        None => check_written(before, &found)?,
    }
    Ok(Salvaged::InPart)
}

/// Checks that everything exists, except what is listed.
fn check_bounded(
    content: &State,
    found: &BTreeMap<Place, Vec<u8>>,
    lost: &[LostRange],
) -> Result<()> {
    for (place, value) in found {
        if content.get(place) != Some(value) {
            return fail(format!("salvaged: {place:?} has a wrong value"));
        }
    }
    for place in content.entries().keys() {
        let (table, key) = place;
        let is_listed = |lost: &LostRange| lost.table == *table && lost.contains(key);
        if !found.contains_key(place) && !lost.iter().any(is_listed) {
            return fail(format!("salvaged: {place:?} is missing, and not listed"));
        }
    }
    Ok(())
}

/// Checks that every value was written to its key at some time. Without the newest changes of the
/// mapping, a table that was swapped since is found under its earlier name, so a value may be in
/// any of the tables with which its table was swapped: those of its thread.
fn check_written(before: &Before<'_>, found: &BTreeMap<Place, Vec<u8>>) -> Result<()> {
    let histories = before.older.iter().chain(before.histories);
    let steps = histories.flat_map(History::steps);
    let mut written: BTreeSet<Writing<'_>> = before.first.entries().iter().map(writing).collect();
    for effect in steps.flat_map(|step| &step.effects) {
        if let Effect::Put(place, value) = effect {
            written.insert(writing((place, value)));
        }
    }
    for (place, value) in found {
        if !written.contains(&writing((place, value))) {
            return fail(format!("salvaged: {place:?} has a value that nobody put"));
        }
    }
    Ok(())
}

/// The thread whose tables are swapped with one another, or else the table; key, and value.
type Writing<'a> = (std::result::Result<usize, &'a str>, &'a [u8], &'a [u8]);

fn writing<'a>(((table, key), value): (&'a Place, &'a Vec<u8>)) -> Writing<'a> {
    (table_owner(table).ok_or(table.as_str()), key, value)
}
