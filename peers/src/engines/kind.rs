//! Which engines there are, and which of them this build has.

use pando_bench::Result;

use crate::engine::{Engine, Setup};
use crate::options::refused;

/// Versions of what this program is made of.
#[cfg(any(feature = "redb", feature = "fjall", feature = "bf-tree", test))]
const LOCK: &str = include_str!("../../Cargo.lock");

type Open = fn(&Setup) -> Result<Box<dyn Engine>>;

/// An engine that can be measured.
#[derive(Debug, Clone, Copy)]
pub struct EngineKind {
    /// Its name in options and records.
    pub name: &'static str,
    /// The feature it needs.
    pub feature: &'static str,
    /// Memory that is not in its own budget serves its reads: it has to be held to the budget from
    /// outside when memory does not hold the data.
    pub leans_on_page_cache: bool,
    /// It has transactions here.
    pub has_transactions: bool,
    open: Option<Open>,
}

macro_rules! open {
    ($feature:literal, $module:ident) => {{
        #[cfg(feature = $feature)]
        let open: Option<Open> = Some(super::$module::open);
        #[cfg(not(feature = $feature))]
        let open: Option<Open> = None;
        open
    }};
}

/// All engines, whether this build has them or not.
pub const ENGINES: &[EngineKind] = &[
    EngineKind {
        name: "pandodb",
        feature: "",
        leans_on_page_cache: false,
        has_transactions: true,
        open: Some(super::pandodb::open),
    },
    EngineKind {
        name: "lmdb",
        feature: "lmdb",
        leans_on_page_cache: true,
        has_transactions: true,
        open: open!("lmdb", lmdb),
    },
    EngineKind {
        name: "rocksdb",
        feature: "rocksdb",
        leans_on_page_cache: false,
        has_transactions: true,
        open: open!("rocksdb", rocksdb),
    },
    EngineKind {
        name: "redb",
        feature: "redb",
        leans_on_page_cache: true,
        has_transactions: true,
        open: open!("redb", redb),
    },
    EngineKind {
        name: "fjall",
        feature: "fjall",
        leans_on_page_cache: true,
        has_transactions: true,
        open: open!("fjall", fjall),
    },
    EngineKind {
        name: "berkeleydb",
        feature: "berkeleydb",
        leans_on_page_cache: true,
        has_transactions: true,
        open: open!("berkeleydb", berkeleydb),
    },
    EngineKind {
        name: "wiredtiger",
        feature: "wiredtiger",
        leans_on_page_cache: false,
        has_transactions: true,
        open: open!("wiredtiger", wiredtiger),
    },
    EngineKind {
        name: "bf-tree",
        feature: "bf-tree",
        leans_on_page_cache: false,
        has_transactions: false,
        open: open!("bf-tree", bf_tree),
    },
];

/// The version of a crate that this program is made of.
#[cfg(any(feature = "redb", feature = "fjall", feature = "bf-tree", test))]
pub(super) fn crate_version(name: &str) -> String {
    let head = format!("name = \"{name}\"");
    let mut lines = LOCK.lines().skip_while(|line| *line != head).skip(1);
    let version = lines
        .next()
        .and_then(|line| line.strip_prefix("version = "));
    version.unwrap_or_default().trim_matches('"').to_owned()
}

impl EngineKind {
    /// The engine of a name.
    ///
    /// # Errors
    /// Nobody knows the name, or this build does not have it.
    pub fn from_name(name: &str) -> Result<Self> {
        let known = ENGINES.iter().find(|kind| kind.name == name);
        let Some(kind) = known else {
            let names: Vec<_> = ENGINES.iter().map(|kind| kind.name).collect();
            let what = format!("'{name}' is no engine; there are {}", names.join(", "));
            return Err(refused("engines", what));
        };
        if !kind.is_built() {
            let what = format!("'{name}' needs a build with --features {}", kind.feature);
            return Err(refused("engines", what));
        }
        Ok(*kind)
    }

    /// True if this build has it.
    pub fn is_built(&self) -> bool {
        self.open.is_some()
    }

    /// Opens it.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn open(&self, setup: &Setup) -> Result<Box<dyn Engine>> {
        let open = self.open.expect("an engine is only named if it is built");
        open(setup)
    }
}

#[cfg(test)]
mod tests {
    use super::crate_version;

    #[test]
    fn versions_are_those_of_the_lock_file() {
        assert!(crate_version("redb").starts_with("4."));
        assert!(crate_version("fjall").starts_with("3."));
        assert_eq!(crate_version("no such crate"), "");
    }
}
