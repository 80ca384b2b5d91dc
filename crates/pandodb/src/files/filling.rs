//! Directories of stores that are being filled, from a dump or from a damaged store: until that has
//! ended well, nothing opens them, and it may begin anew.

use pando_device::{AnyDevice, Create, Device, OpenOptions};

use crate::error::{Error, Result};
use crate::files::names::LOADING;
use crate::files::whose::{is_ours, may_lie_beside};

/// Marks the directory as one that is being filled, and removes what an earlier attempt has left.
/// If it holds something else, the error is about `option`, and says that it is to be `empty`.
pub(crate) fn begin(into: &AnyDevice, option: &'static str, empty: &str) -> Result<()> {
    let names = into
        .list()
        .map_err(Error::io("listing the new directory"))?;
    let is_again = names.iter().any(|name| name == LOADING);
    let (ours, foreign): (Vec<String>, Vec<String>) = names.into_iter().partition(|n| is_ours(n));
    let other = foreign.iter().find(|name| !may_lie_beside(name));
    let other = other.or_else(|| ours.first().filter(|_| !is_again));
    if let Some(name) = other {
        into.give_up();
        return Err(Error::InvalidOption {
            option,
            what: format!("holds '{name}'; {empty}"),
        });
    }
    let making = Error::io("beginning to fill a store");
    if !is_again {
        into.open(LOADING, OpenOptions::create(Create::New))
            .map_err(&making)?;
    }
    // Even if the mark exists: an earlier attempt may have ended before its name was durable.
    into.sync_directory().map_err(&making)?;
    for name in ours.iter().filter(|name| *name != LOADING) {
        into.remove(name).map_err(&making)?;
    }
    Ok(())
}

/// Takes the mark away: all is there, and durable.
pub(crate) fn end(into: &AnyDevice) -> Result<()> {
    into.remove(LOADING)
        .and_then(|()| into.sync_directory())
        .map_err(Error::io("ending to fill a store"))
}
