//! The contents of INFO at one moment.

use std::collections::BTreeMap;

use pando_sync::time::Instant;

use super::connection::Trouble;
use super::spread::Spread;

/// Sections that are requested.
pub(crate) const SECTIONS: &[&str] = &[
    "INFO",
    "server",
    "clients",
    "memory",
    "persistence",
    "stats",
    "commandstats",
    "keyspace",
    "pando",
    "histograms",
];
const COMMAND: &str = "command_";

/// All fields of INFO.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    /// When it arrived, on this machine's clock.
    pub(crate) at: Instant,
    fields: BTreeMap<String, String>,
    spreads: BTreeMap<String, Spread>,
}

impl Sample {
    /// Parses `text`, which arrived at `at`.
    ///
    /// # Errors
    /// It is from a server other than PandoDB.
    pub(crate) fn parse(text: &str, at: Instant) -> Result<Self, Trouble> {
        let (mut fields, mut spreads) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            let Some((name, value)) = line.split_once(':') else {
                continue;
            };
            match Spread::parse(value) {
                Some(spread) => drop(spreads.insert(name.to_owned(), spread)),
                None => drop(fields.insert(name.to_owned(), value.to_owned())),
            }
        }
        if !fields.contains_key("pando_version") {
            let text = "this is no PandoDB: INFO has no pando_version";
            return Err(Trouble::Refused(text.to_owned()));
        }
        Ok(Self {
            at,
            fields,
            spreads,
        })
    }

    /// Returns the field `name`; empty if it is missing.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// Returns the number in field `name`.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).parse().ok()
    }

    /// Returns the histogram `name`.
    pub(crate) fn spread(&self, name: &str) -> Option<&Spread> {
        self.spreads.get(name)
    }

    /// Iterates over the commands that have a histogram, by name.
    pub(crate) fn commands(&self) -> impl Iterator<Item = (&str, &Spread)> {
        let all = self.spreads.iter();
        all.filter_map(|(name, spread)| Some((name.strip_prefix(COMMAND)?, spread)))
    }

    /// Returns the number of calls of `command` that replied with an error, refused calls included.
    pub(crate) fn failures(&self, command: &str) -> Option<u64> {
        let value = self.text(&format!("cmdstat_{command}")).to_owned();
        let part = |name: &str| {
            let mut parts = value.split(',').filter_map(|part| part.split_once('='));
            parts
                .find(|(found, _)| *found == name)?
                .1
                .parse::<u64>()
                .ok()
        };
        part("rejected_calls")?.checked_add(part("failed_calls")?)
    }

    /// Returns the number of keys in all databases.
    pub(crate) fn keys(&self) -> u64 {
        let numbers = 0..16;
        let keys = numbers.filter_map(|number| {
            let value = self.text(&format!("db{number}"));
            let (keys, _) = value.strip_prefix("keys=")?.split_once(',')?;
            keys.parse::<u64>().ok()
        });
        keys.fold(0, u64::saturating_add)
    }

    /// Returns true if both samples are from the same run of the server.
    pub(crate) fn is_of_run(&self, other: &Self) -> bool {
        self.text("run_id") == other.text("run_id")
    }
}
