//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO (decision 091).

use pando_sync::Arc;

use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::pubsub::message::Name;
use crate::tracking::session::{ClientTracking, Redirection, TrackingOptions};

/// Longest prefix: each key that is written is compared with all lengths of prefixes.
const PREFIX_BYTES_MAX: usize = 4096;
/// Maximum number of prefixes of a client.
const PREFIXES_MAX: usize = 1024;

pub(super) const TRACKING: Command = of_tracking(
    ("tracking", -3, "6.0.0"),
    tracking,
    "Controls server-assisted client-side caching for the connection.",
);
pub(super) const CACHING: Command = of_tracking(
    ("caching", 3, "6.0.0"),
    caching,
    "Instructs the server whether to track the keys in the next request.",
);
pub(super) const GETREDIR: Command = of_tracking(
    ("getredir", 2, "6.0.0"),
    get_redirection,
    "Returns the client ID to which the connection's tracking notifications are redirected.",
);
pub(super) const TRACKINGINFO: Command = of_tracking(
    ("trackinginfo", 2, "6.2.0"),
    info,
    "Returns information about server-assisted client-side caching for the connection.",
);

const fn of_tracking(
    (name, arity, since): (&'static str, i32, &'static str),
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: Flags::LOADING.and(Flags::NOSCRIPT),
        group: Group::Connection,
        since,
        summary,
        ..Command::new(name, arity, run)
    }
}

/// What CLIENT TRACKING asks for.
#[derive(Default)]
struct Asked {
    options: TrackingOptions,
    prefixes: Vec<Name>,
}

fn tracking(context: &mut Context<'_>) -> Run {
    let asked = match parse(context) {
        Ok(asked) => asked,
        Err(text) => return context.fail(&text),
    };
    let tracking = context.session.tracking.as_ref();
    let old = tracking.map_or_else(TrackingOptions::default, |of| of.options.clone());
    let new = if context.is(2, "on") {
        match turned_on(&old, asked) {
            Ok(new) => new,
            Err(text) => return context.fail(&text),
        }
    } else if context.is(2, "off") {
        TrackingOptions::default()
    } else {
        return context.fail(replies::SYNTAX);
    };
    let shared = context.shared;
    if new.is_on || context.session.tracking.is_some() {
        let record = context.record;
        let tracking = context.session.tracking.get_or_insert_with(|| {
            let mailbox = Arc::clone(record.mailbox(&shared.loops));
            Box::new(ClientTracking::new(&shared.tracking, (record.id, mailbox)))
        });
        tracking.set(new);
        tracking.mend();
    }
    context.ok()
}

fn parse(context: &Context<'_>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let options = &mut asked.options;
    let mut at = 3;
    while at < context.count() {
        let has_more = at + 1 < context.count();
        if context.is(at, "redirect") && has_more {
            at += 1;
            if options.redirection.is_some() {
                let text = "ERR A client can only redirect to a single other client";
                return Err(text.to_owned());
            }
            let id = context.integer_at(at)?;
            let shared = context.shared;
            let found = u64::try_from(id).ok().and_then(|id| {
                let mailbox = shared.clients.mailbox(id, &shared.loops)?;
                Some(Redirection { id, mailbox })
            });
            let text = "ERR The client ID you want redirect to does not exist";
            options.redirection = Some(found.ok_or(text)?);
        } else if context.is(at, "bcast") {
            options.is_broadcast = true;
        } else if context.is(at, "optin") {
            options.opt_in = true;
        } else if context.is(at, "optout") {
            options.opt_out = true;
        } else if context.is(at, "noloop") {
            options.no_loop = true;
        } else if context.is(at, "prefix") && has_more {
            at += 1;
            let prefix = context.argument(at);
            if prefix.len() > PREFIX_BYTES_MAX {
                return Err(format!("ERR a prefix has at most {PREFIX_BYTES_MAX} bytes"));
            }
            if asked.prefixes.len() >= PREFIXES_MAX {
                return Err(format!("ERR a client has at most {PREFIXES_MAX} prefixes"));
            }
            asked.prefixes.push(Name::from(prefix));
        } else {
            return Err(replies::SYNTAX.to_owned());
        }
        at += 1;
    }
    Ok(asked)
}

/// Returns what the client asks for from now on.
///
/// # Errors
/// The options contradict each other, or what it has asked for before.
fn turned_on(old: &TrackingOptions, asked: Asked) -> Result<TrackingOptions, String> {
    let Asked {
        options: mut new,
        prefixes,
    } = asked;
    let refusal = if !new.is_broadcast && !prefixes.is_empty() {
        "ERR PREFIX option requires BCAST mode to be enabled"
    } else if old.is_on && old.is_broadcast != new.is_broadcast {
        "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
         then re-enabling it with a different mode."
    } else if new.is_broadcast && (new.opt_in || new.opt_out) {
        "ERR OPTIN and OPTOUT are not compatible with BCAST"
    } else if new.opt_in && new.opt_out {
        "ERR You can't specify both OPTIN mode and OPTOUT mode"
    } else if new.opt_in && old.opt_out || new.opt_out && old.opt_in {
        "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
         then re-enabling it with a different mode."
    } else {
        check_overlaps(old, &prefixes)?;
        new.is_on = true;
        new.caching = old.caching;
        new.prefixes.clone_from(&old.prefixes);
        if new.is_broadcast && prefixes.is_empty() {
            new.prefixes.insert(Name::from(&b""[..]));
        }
        new.prefixes.extend(prefixes);
        if new.prefixes.len() > PREFIXES_MAX {
            return Err(format!("ERR a client has at most {PREFIXES_MAX} prefixes"));
        }
        return Ok(new);
    };
    Err(refusal.to_owned())
}

/// # Errors
/// A key may have two of the prefixes.
fn check_overlaps(old: &TrackingOptions, prefixes: &[Name]) -> Result<(), String> {
    let overlap = |one: &[u8], other: &[u8]| one.starts_with(other) || other.starts_with(one);
    for (place, prefix) in prefixes.iter().enumerate() {
        let known = old.prefixes.iter().map(|of| (of, "an existing"));
        let others = prefixes[place + 1..].iter();
        let mut all = known.chain(others.map(|of| (of, "another provided")));
        if let Some((other, whose)) = all.find(|(other, _)| overlap(prefix, other)) {
            return Err(format!(
                "ERR Prefix '{}' overlaps with {whose} prefix '{}'. Prefixes for a single client \
                 must not overlap.",
                replies::shown(prefix),
                replies::shown(other)
            ));
        }
    }
    Ok(())
}

fn caching(context: &mut Context<'_>) -> Run {
    let tracking = context.session.tracking.as_ref();
    let Some(options) = tracking.map(|of| &of.options).filter(|of| of.is_on) else {
        return context.fail(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN \
             or OPTOUT mode enabled",
        );
    };
    let (opt_in, opt_out) = (options.opt_in, options.opt_out);
    if context.is(2, "yes") && !opt_in {
        let text = "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
        return context.fail(text);
    }
    if context.is(2, "no") && !opt_out {
        let text = "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";
        return context.fail(text);
    }
    if !context.is(2, "yes") && !context.is(2, "no") {
        return context.fail(replies::SYNTAX);
    }
    if let Some(tracking) = &mut context.session.tracking {
        tracking.options.caching = true;
    }
    context.ok()
}

/// Returns the id of the client that messages go to; 0: none; -1: the client does not track.
fn redirection(context: &Context<'_>) -> i64 {
    let tracking = context.session.tracking.as_ref();
    let Some(options) = tracking.map(|of| &of.options).filter(|of| of.is_on) else {
        return -1;
    };
    let id = options.redirection.as_ref().map_or(0, |to| to.id);
    i64::try_from(id).unwrap_or(i64::MAX)
}

fn get_redirection(context: &mut Context<'_>) -> Run {
    let id = redirection(context);
    context.integer(id)
}

fn info(context: &mut Context<'_>) -> Run {
    let tracking = context.session.tracking.as_ref();
    let options = tracking.map_or_else(TrackingOptions::default, |of| of.options.clone());
    let is_broken = tracking.is_some_and(|of| of.is_broken());
    let flags: Vec<&str> = [
        (options.is_on, "on"),
        (!options.is_on, "off"),
        (options.is_broadcast, "bcast"),
        (options.opt_in, "optin"),
        (options.opt_in && options.caching, "caching-yes"),
        (options.opt_out, "optout"),
        (options.opt_out && options.caching, "caching-no"),
        (options.no_loop, "noloop"),
        (is_broken, "broken_redirect"),
    ]
    .into_iter()
    .filter_map(|(is_set, name)| is_set.then_some(name))
    .collect();
    let id = redirection(context);
    let mut reply = context.reply();
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.integer(id);
    reply.bulk(b"prefixes");
    reply.array(options.prefixes.len());
    options.prefixes.iter().for_each(|of| reply.bulk(of));
    Ok(())
}
