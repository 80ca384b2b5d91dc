//! FUNCTION DUMP and RESTORE: payloads of Redis.

use std::collections::HashSet;

use pando_resp::text_of;
use pando_sync::time::now;

use super::arguments::wrong_arguments;
use super::load::LOAD_TIME;
use super::store::{NewLibrary, Old, Source, check_bytes, check_count, exists, store, taken};
use crate::context::{Context, Interrupted, Run};
use crate::data::functions::Libraries;
use crate::dump::{self, Input, put_string};

pub(super) fn dump(context: &mut Context<'_>) -> Run {
    let mut payload = Vec::new();
    let names: Vec<_> = context.libraries()?.0.into_keys().collect();
    for name in names {
        let library = context.listed_library(&name)?;
        payload.push(dump::FUNCTION);
        put_string(&mut payload, &library.code);
    }
    dump::seal(&mut payload, dump::VERSION);
    context.reply().bulk(&payload);
    context.check_reply()
}

/// What happens to the libraries that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Append,
    Replace,
    Flush,
}

fn policy(context: &Context<'_>) -> Result<Policy, &'static str> {
    match context.count() {
        3 => Ok(Policy::Append),
        _ if context.is(3, "append") => Ok(Policy::Append),
        _ if context.is(3, "replace") => Ok(Policy::Replace),
        _ if context.is(3, "flush") => Ok(Policy::Flush),
        _ => {
            Err("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.")
        }
    }
}

/// Takes the next library.
fn next_source(context: &Context<'_>, content: &mut Input<'_>) -> Result<Source, Interrupted> {
    match content.byte().map_err(|_| "ERR can not read data type")? {
        dump::FUNCTION => {}
        dump::FUNCTION_BEFORE_RELEASE => {
            return Err("ERR Pre-GA function format not supported".into());
        }
        _ => return Err("ERR given type is not a function".into()),
    }
    let code = content
        .string()
        .map_err(|_| "ERR Failed loading library payload")?;
    Source::of(context, code.into_owned())
}

/// Takes all libraries, up to the first error, which is the last element.
fn sources(context: &Context<'_>, content: &[u8]) -> Vec<Result<Source, Interrupted>> {
    let mut sources = Vec::new();
    // A small payload may be a hundred times larger when it is expanded.
    let mut content = Input::new(content, context.engine().function_bytes_max);
    let (mut names, mut bytes) = (HashSet::new(), 0);
    while !content.is_empty() {
        let source = next_source(context, &mut content).and_then(|source| {
            bytes += source.bytes();
            check_bytes(context, bytes)?;
            check_count(sources.len() + 1)?;
            source.check_new(!names.insert(source.name.clone()))?;
            Ok(source)
        });
        let is_last = source.is_err();
        sources.push(source);
        if is_last {
            break;
        }
    }
    sources
}

/// Takes those libraries out of the list that go, before anything runs.
fn replaced(
    context: &mut Context<'_>,
    policy: Policy,
    libraries: &mut Libraries,
    sources: &[Result<Source, Interrupted>],
) -> Result<Old, Interrupted> {
    let names = match policy {
        Policy::Append => Vec::new(),
        Policy::Replace => {
            let names = sources.iter().flatten().map(|source| &source.name);
            let is_there = |name: &&Vec<u8>| libraries.0.contains_key(*name);
            names.filter(is_there).cloned().collect()
        }
        Policy::Flush => return Ok(Old::All),
    };
    taken(context, libraries, names)
}

pub(super) fn restore(context: &mut Context<'_>) -> Run {
    if context.count() > 4 {
        let name = text_of(context.argument(1));
        return context.fail(&wrong_arguments(&name));
    }
    let policy = policy(context)?;
    let Some(content) = dump::opened(context.argument(2)) else {
        return context.fail("ERR DUMP payload version or checksum are wrong");
    };
    let sources = sources(context, content);
    let mut libraries = match policy {
        Policy::Flush => Libraries::default(),
        Policy::Append | Policy::Replace => context.libraries()?,
    };
    let old = replaced(context, policy, &mut libraries, &sources)?;
    let until = now() + LOAD_TIME;
    let (mut new, mut bytes): (Vec<NewLibrary>, u64) = (Vec::new(), 0);
    for source in sources {
        let library = NewLibrary::of(context, source?, until)?;
        bytes += library.bytes();
        check_bytes(context, bytes)?;
        new.push(library);
    }
    if let Some(of) = new.iter().find(|of| libraries.0.contains_key(&of.name)) {
        return Err(exists("Library", &of.name));
    }
    store(context, libraries, &old, &new)?;
    context.ok()
}
