//! A damaged store is salvaged: the new one is sound, nothing in it is wrong, and what is missing
//! is on a list.

use std::collections::BTreeMap;

use pando_device::AnyDevice;
use pando_device::faulty::FaultyDevice;
use pandodb::{Error, LostRange, SalvageReport};

use crate::failure::{Failure, Result, fail};
use crate::history::History;
use crate::state::{Effect, Place, State};
use crate::store;

/// What is known of the store before the damage.
pub(crate) struct Before<'a> {
    /// What its first checkpoint held at least.
    pub(crate) first: &'a State,
    /// What was committed up to then: without the newest changes of the mapping, pages are found
    /// where they were before, with what they held.
    pub(crate) older: &'a [History],
    /// What was committed since.
    pub(crate) histories: &'a [History],
    /// All that it holds, if that is known and no log is damaged.
    pub(crate) content: Option<&'a State>,
}

/// What came of it.
pub(crate) enum Salvaged {
    /// Nothing is lost: all that the new store holds.
    Whole(Vec<State>),
    /// What is missing is listed.
    InPart,
    /// There is no new store: a file is missing, or all of the superblock is damaged.
    Refused(Error),
}

/// Salvages the store in `device`.
///
/// # Errors
/// What is wrong, or missing and not listed.
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
    // A table whose name is lost tells nobody whose its rows are; the probe is nobody's.
    found.retain(|(name, _), _| !name.starts_with("lost/") && name != store::PROBE);
    match before.content.filter(|_| report.unbounded.is_empty()) {
        Some(content) => check_bounded(content, &found, &report.lost)?,
        None => check_written(before, &found)?,
    }
    Ok(Salvaged::InPart)
}

/// Everything is there, but for what is listed.
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

/// Every value was put to its key once.
fn check_written(before: &Before<'_>, found: &BTreeMap<Place, Vec<u8>>) -> Result<()> {
    let histories = before.older.iter().chain(before.histories);
    let steps = histories.flat_map(History::steps);
    let mut written = std::collections::BTreeSet::new();
    for effect in steps.flat_map(|step| &step.effects) {
        if let Effect::Put(place, value) = effect {
            written.insert((place, value));
        }
    }
    for (place, value) in found {
        if before.first.get(place) != Some(value) && !written.contains(&(place, value)) {
            return fail(format!("salvaged: {place:?} has a value that nobody put"));
        }
    }
    Ok(())
}
