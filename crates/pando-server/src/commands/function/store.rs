//! Libraries become rows, and go.

use std::collections::HashSet;

use pando_resp::text_of;
use pando_sync::time::Instant;

use super::metadata::library_name;
use super::register::functions_of;
use crate::context::{Context, Interrupted, Run};
use crate::data::functions::{LIBRARIES_MAX, Libraries, Library, Listed};
use crate::lua::sha1_of;

/// A text that is to become a library, and the name that its first line gives.
pub(super) struct Source {
    pub(super) name: Vec<u8>,
    code: Vec<u8>,
}

/// A library that is to be stored.
pub(super) struct NewLibrary {
    pub(super) name: Vec<u8>,
    library: Library,
    listed: Listed,
}

/// What goes.
pub(super) enum Old {
    /// These, which the list has no more.
    Some(Vec<(Vec<u8>, Library)>),
    /// Whatever there is.
    All,
}

fn shown(name: &[u8]) -> String {
    text_of(name)
}

/// Refuses something that exists.
pub(super) fn exists(what: &str, name: &[u8]) -> Interrupted {
    format!("ERR {what} {} already exists", shown(name)).into()
}

impl Source {
    pub(super) fn of(context: &Context<'_>, code: Vec<u8>) -> Result<Self, Interrupted> {
        check_bytes(context, code.len() as u64)?;
        let name = library_name(&code)?;
        Ok(Self { name, code })
    }

    /// Length of its text.
    pub(super) fn bytes(&self) -> u64 {
        self.code.len() as u64
    }

    /// Refuses it if there is another one of its name.
    pub(super) fn check_new(&self, exists: bool) -> Run {
        match exists {
            true => Err(format!("ERR Library '{}' already exists", shown(&self.name)).into()),
            false => Ok(()),
        }
    }
}

impl NewLibrary {
    /// Runs it, to learn what it registers, until a moment at the latest.
    pub(super) fn of(
        context: &mut Context<'_>,
        source: Source,
        until: Instant,
    ) -> Result<Self, Interrupted> {
        let Source { name, code } = source;
        let functions = functions_of(context, &code, until)?;
        let library = Library { functions, code };
        let listed = library.listed(&name);
        check_bytes(context, listed.bytes)?;
        Ok(Self {
            name,
            library,
            listed,
        })
    }

    /// Bytes that it takes.
    pub(super) fn bytes(&self) -> u64 {
        self.listed.bytes
    }
}

/// Takes libraries out of the list, and returns what they are.
pub(super) fn taken(
    context: &mut Context<'_>,
    libraries: &mut Libraries,
    names: Vec<Vec<u8>>,
) -> Result<Old, Interrupted> {
    let mut old = Vec::new();
    for name in names {
        let library = context.listed_library(&name)?;
        libraries.0.remove(&name);
        old.push((name, library));
    }
    Ok(Old::Some(old))
}

/// Stores `new` beside `libraries`, and deletes `old`. Checks everything before it writes.
pub(super) fn store(
    context: &mut Context<'_>,
    mut libraries: Libraries,
    old: &Old,
    new: &[NewLibrary],
) -> Run {
    let mut names = HashSet::new();
    for NewLibrary { library, .. } in new {
        // In one library names may differ in case only, as in Redis.
        let mut own = HashSet::new();
        for function in &library.functions {
            let folded = function.name.to_ascii_lowercase();
            // One of a library that the list does not have is a remnant of damage.
            let is_taken = match old {
                Old::All => false,
                Old::Some(_) => (context.function(&function.name)?)
                    .is_some_and(|row| libraries.0.contains_key(&row.library)),
            };
            if is_taken || names.contains(&folded) {
                return Err(exists("Function", &function.name));
            }
            own.insert(folded);
        }
        names.extend(own);
    }
    for NewLibrary { name, listed, .. } in new {
        libraries.0.insert(name.clone(), *listed);
    }
    // With less memory than before there may be too many, which can be deleted.
    if !new.is_empty() {
        check_count(libraries.0.len())?;
        check_bytes(context, libraries.bytes())?;
    }
    match old {
        Old::All => context.delete_libraries(),
        Old::Some(old) => {
            for (name, library) in old {
                context.delete_library(name, library)?;
            }
        }
    }
    for NewLibrary { name, library, .. } in new {
        context.put_library(name, library, sha1_of(&library.code))?;
    }
    match (old, new) {
        (Old::All, []) => Ok(()),
        _ => context.put_libraries(&libraries),
    }
}

/// Refuses more libraries than there may be.
pub(super) fn check_count(count: usize) -> Run {
    match count <= LIBRARIES_MAX {
        true => Ok(()),
        false => Err(format!("ERR there may be {LIBRARIES_MAX} libraries at most").into()),
    }
}

/// Refuses libraries that take so many bytes together, if that is too much.
pub(super) fn check_bytes(context: &Context<'_>, bytes: u64) -> Run {
    let most = context.engine().function_bytes_max;
    if bytes > most as u64 {
        let text = format!(
            "ERR all libraries together have {most} bytes at most, with eight rows for each function"
        );
        return Err(text.into());
    }
    Ok(())
}
