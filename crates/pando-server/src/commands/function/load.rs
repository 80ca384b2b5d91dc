//! FUNCTION LOAD, DELETE and FLUSH.

use pando_resp::text_of;
use pando_sync::time::{Duration, now};

use super::arguments::wrong_arguments;
use super::store::{NewLibrary, Old, Source, store, taken};
use crate::context::{Context, Run};
use crate::data::functions::Libraries;

/// Time that the libraries of a command may take to register their functions, in each of its runs.
/// That of Redis, where each library of a payload has it.
pub(super) const LOAD_TIME: Duration = Duration::from_millis(500);

pub(super) fn load(context: &mut Context<'_>) -> Run {
    let last = context.count() - 1;
    let mut replaces = false;
    for at in 2..last {
        if !context.is(at, "replace") {
            let option = text_of(context.argument(at));
            return context.fail(&format!("ERR Unknown option given: {option}"));
        }
        replaces = true;
    }
    let source = Source::of(context, context.argument(last).to_vec())?;
    let mut libraries = context.libraries()?;
    let is_there = libraries.0.contains_key(&source.name);
    source.check_new(is_there && !replaces)?;
    // What has to be read is read before anything runs.
    let names = is_there.then(|| source.name.clone()).into_iter().collect();
    let old = taken(context, &mut libraries, names)?;
    let new = [NewLibrary::of(context, source, now() + LOAD_TIME)?];
    store(context, libraries, &old, &new)?;
    context.reply().bulk(&new[0].name);
    Ok(())
}

pub(super) fn delete(context: &mut Context<'_>) -> Run {
    let mut libraries = context.libraries()?;
    let name = context.argument(2);
    if !libraries.0.contains_key(name) {
        return context.fail("ERR Library not found");
    }
    let old = taken(context, &mut libraries, vec![name.to_vec()])?;
    store(context, libraries, &old, &[])?;
    context.ok()
}

pub(super) fn flush(context: &mut Context<'_>) -> Run {
    if context.count() > 3 {
        let name = text_of(context.argument(1));
        return context.fail(&wrong_arguments(&name));
    }
    let is_mode = context.count() == 3 && (context.is(2, "sync") || context.is(2, "async"));
    if context.count() == 3 && !is_mode {
        return context.fail("ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
    }
    store(context, Libraries::default(), &Old::All, &[])?;
    context.ok()
}
