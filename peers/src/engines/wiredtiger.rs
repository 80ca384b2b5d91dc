//! WiredTiger as distributions have it: 3.2.1 of 2019. Records say its version and age; what
//! MongoDB ships is years ahead of it.

use pando_bench::Result;
use pando_peers_native::open_wiredtiger;

use super::table::{Native, config};
use crate::engine::{Engine, Setup};
use crate::options::failed;

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let config = config(setup);
    let store = open_wiredtiger(&setup.dir, config).map_err(failed("wiredtiger: opening"))?;
    let direct = match config.direct {
        true => "[data]",
        false => "[]",
    };
    let settings = vec![
        (
            "age",
            "released on the date of its version; MongoDB ships newer ones".to_owned(),
        ),
        ("cache_size", config.cache_bytes.to_string()),
        ("direct_io", direct.to_owned()),
        (
            "leaf_page_max",
            if config.direct { "4KB" } else { "32KB" }.to_owned(),
        ),
        ("log", "enabled".to_owned()),
        (
            "transaction_sync",
            format!("enabled={}, method=fsync", config.durable),
        ),
        ("transactions", "snapshot isolation".to_owned()),
        ("eviction", "threads_max=4".to_owned()),
    ];
    Ok(Box::new(Native::new("wiredtiger", store, settings)))
}
