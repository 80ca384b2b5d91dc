//! Berkeley DB 5.3: transactions, locks on pages, a cache of its own over buffered reads: the
//! library of distributions is built without direct I/O.

use pando_bench::Result;
use pando_peers_native::{Config, open_berkeleydb};

use super::table::{Native, config};
use crate::engine::{Engine, Setup};
use crate::options::failed;

pub(super) fn open(setup: &Setup) -> Result<Box<dyn Engine>> {
    let config = Config {
        cache_bytes: setup.cache_beside_page_cache(),
        // Debian builds it without.
        direct: false,
        ..config(setup)
    };
    let store = open_berkeleydb(&setup.dir, config).map_err(failed("berkeleydb: opening"))?;
    let is_set = |set: bool| if set { "set" } else { "not set" }.to_owned();
    let settings = vec![
        ("set_cachesize", config.cache_bytes.to_string()),
        ("DB_TXN_NOSYNC", is_set(!config.durable)),
        ("page_size", "4096".to_owned()),
        ("log_buffer", (8 << 20).to_string()),
        ("set_lk_detect", "DB_LOCK_DEFAULT".to_owned()),
        (
            "transactions",
            "serializable: pages that were read or written stay locked until the end".to_owned(),
        ),
        ("scan", "bulk reads of 64 KiB (DB_MULTIPLE_KEY)".to_owned()),
    ];
    Ok(Box::new(Native::new("berkeleydb", store, settings)))
}
