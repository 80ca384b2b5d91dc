//! FUNCTION LIST and STATS.

use pando_resp::text_of;

use crate::context::{Context, Run};
use crate::data::functions::{FLAGS, Library, Registered};
use crate::glob::Comparisons;

/// What LIST is asked for.
#[derive(Default)]
struct Options<'a> {
    with_code: bool,
    pattern: Option<&'a [u8]>,
}

fn options<'a>(context: &Context<'a>) -> Result<Options<'a>, String> {
    let mut options = Options::default();
    let mut at = 2;
    while at < context.count() {
        if !options.with_code && context.is(at, "withcode") {
            options.with_code = true;
        } else if options.pattern.is_none() && context.is(at, "libraryname") {
            at += 1;
            if at == context.count() {
                return Err("ERR library name argument was not given".to_owned());
            }
            options.pattern = Some(context.argument(at));
        } else {
            let shown = text_of(context.argument(at));
            return Err(format!("ERR Unknown argument {shown}"));
        }
        at += 1;
    }
    Ok(options)
}

pub(super) fn list(context: &mut Context<'_>) -> Run {
    let options = options(context)?;
    let comparisons = Comparisons::new();
    let names: Vec<_> = (context.libraries()?.0.into_keys())
        .filter(|name| {
            let pattern = options.pattern;
            pattern.is_none_or(|of| comparisons.matches_ignoring_case(of, name))
        })
        .collect();
    comparisons.end()?;
    // All are read before the first is shown: to show is not to be done again for each page.
    let mut libraries = Vec::new();
    for name in names {
        let library = context.listed_library(&name)?;
        libraries.push((name, library));
    }
    context.reply().array(libraries.len());
    for (name, library) in libraries {
        show(context, &name, &library, options.with_code);
        context.check_reply()?;
    }
    Ok(())
}

fn show(context: &mut Context<'_>, name: &[u8], library: &Library, with_code: bool) {
    let mut reply = context.reply();
    reply.map(if with_code { 4 } else { 3 });
    reply.bulk(b"library_name");
    reply.bulk(name);
    reply.bulk(b"engine");
    reply.bulk(b"LUA");
    reply.bulk(b"functions");
    reply.array(library.functions.len());
    for function in &library.functions {
        show_function(context, function);
    }
    if with_code {
        let mut reply = context.reply();
        reply.bulk(b"library_code");
        reply.bulk(&library.code);
    }
}

fn show_function(context: &mut Context<'_>, function: &Registered) {
    let mut reply = context.reply();
    reply.map(3);
    reply.bulk(b"name");
    reply.bulk(&function.name);
    reply.bulk(b"description");
    match &function.description {
        Some(description) => reply.bulk(description),
        None => reply.null(),
    }
    reply.bulk(b"flags");
    let has = |bit: &usize| function.flags >> bit & 1 == 1;
    let flags: Vec<_> = (0..FLAGS.len()).filter(has).collect();
    reply.set(flags.len());
    flags.into_iter().for_each(|bit| reply.simple(FLAGS[bit]));
}

pub(super) fn stats(context: &mut Context<'_>) -> Run {
    let libraries = context.libraries()?;
    let running = context.shared.functions.oldest();
    let mut reply = context.reply();
    reply.map(2);
    reply.bulk(b"running_script");
    match running {
        None => reply.null(),
        Some(running) => {
            reply.map(3);
            reply.bulk(b"name");
            reply.bulk(&running.name);
            reply.bulk(b"command");
            reply.array(running.command.len());
            running.command.iter().for_each(|word| reply.bulk(word));
            reply.bulk(b"duration_ms");
            let ms = running.time().as_millis();
            reply.integer(i64::try_from(ms).unwrap_or(i64::MAX));
        }
    }
    reply.bulk(b"engines");
    reply.map(1);
    reply.bulk(b"LUA");
    reply.map(2);
    let count = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    reply.bulk(b"libraries_count");
    reply.integer(count(libraries.0.len() as u64));
    reply.bulk(b"functions_count");
    reply.integer(count(libraries.functions()));
    Ok(())
}
