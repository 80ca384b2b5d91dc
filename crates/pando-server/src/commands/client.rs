//! CLIENT and its subcommands, except KILL, PAUSE and those about keys that a client keeps.

use pando_sync::atomic::Ordering;

use super::client_kill::{Kind, kill};
use super::client_pause::{pause, reply, unpause};
use super::client_tracking::{CACHING, GETREDIR, TRACKING, TRACKINGINFO};
use crate::client::record::{NO_EVICT, NO_TOUCH};
use crate::client::unblocking::Unblocked;
use crate::context::{Command, Context, Flags, Group, Run, replies};
use crate::loop_handle::Message;

const FLAGS: Flags = Flags::LOADING.and(Flags::NOSCRIPT);
const ADMIN: Flags = FLAGS.and(Flags::ADMIN);

const fn sub(
    name: &'static str,
    arity: i32,
    flags: Flags,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags,
        group: Group::Connection,
        summary,
        ..Command::new(name, arity, run)
    }
}

pub(crate) const COMMANDS: &[Command] = &[Command {
    group: Group::Connection,
    since: "2.4.0",
    complexity: "Depends on subcommand.",
    summary: "A container for client connection commands.",
    subcommands: &[
        sub(
            "id",
            2,
            FLAGS,
            id,
            "Returns the unique client ID of the connection.",
        ),
        sub("setname", 3, FLAGS, set_name, "Sets the connection name."),
        sub(
            "getname",
            2,
            FLAGS,
            get_name,
            "Returns the name of the connection.",
        ),
        sub(
            "setinfo",
            4,
            FLAGS,
            set_info,
            "Sets information specific to the client or connection.",
        ),
        sub(
            "info",
            2,
            FLAGS,
            info,
            "Returns information about the connection.",
        ),
        sub("list", -2, ADMIN, list, "Lists open connections."),
        sub(
            "kill",
            -3,
            ADMIN,
            |context| context.once(kill),
            "Terminates open connections.",
        ),
        sub(
            "unblock",
            -3,
            ADMIN,
            |context| context.once(unblock),
            "Unblocks a client blocked by a blocking command from a different connection.",
        ),
        sub(
            "pause",
            -3,
            ADMIN,
            |context| context.once(pause),
            "Suspends commands processing.",
        ),
        sub(
            "unpause",
            2,
            ADMIN,
            |context| context.once(unpause),
            "Resumes processing commands from paused clients.",
        ),
        sub(
            "reply",
            3,
            FLAGS.and(Flags::NO_MULTI),
            reply,
            "Instructs the server whether to reply to commands.",
        ),
        CACHING,
        GETREDIR,
        TRACKING,
        TRACKINGINFO,
        sub(
            "no-evict",
            3,
            ADMIN,
            no_evict,
            "Sets the client eviction mode of the connection.",
        ),
        sub(
            "no-touch",
            3,
            FLAGS,
            no_touch,
            "Controls whether commands affect the LRU/LFU of keys.",
        ),
        sub(
            "help",
            2,
            Flags::LOADING,
            help,
            "Returns helpful text about the different subcommands.",
        ),
    ],
    ..Command::new("client", -2, help)
}];

/// Length of a name of a client or its library: each client keeps three.
const NAME_BYTES_MAX: usize = 4096;
const NAME_TOO_LONG: &str = "ERR names of clients and libraries have at most 4096 bytes";

/// Returns a name as it is stored; refuses long ones, and those with blanks or invisible
/// characters.
pub(crate) fn valid_name(name: &[u8]) -> Result<String, &'static str> {
    if name.len() > NAME_BYTES_MAX {
        Err(NAME_TOO_LONG)
    } else if name.iter().all(u8::is_ascii_graphic) {
        Ok(String::from_utf8_lossy(name).into_owned())
    } else {
        Err("ERR Client names cannot contain spaces, newlines or special characters.")
    }
}

fn id(context: &mut Context<'_>) -> Run {
    let id = context.record.id;
    context.integer(i64::try_from(id).unwrap_or(i64::MAX))
}

fn set_name(context: &mut Context<'_>) -> Run {
    match valid_name(context.argument(2)) {
        Ok(name) => {
            context.record.names.lock().name = name;
            context.ok()
        }
        Err(text) => context.fail(text),
    }
}

fn get_name(context: &mut Context<'_>) -> Run {
    let name = context.record.names.lock().name.clone();
    if name.is_empty() {
        context.reply().null();
    } else {
        context.reply().bulk(name.as_bytes());
    }
    Ok(())
}

fn set_info(context: &mut Context<'_>) -> Run {
    let (option, value) = (context.argument(2), context.argument(3));
    let is_name = option.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !option.eq_ignore_ascii_case(b"lib-ver") {
        let option = replies::shown(option);
        return context.fail(&format!("ERR Unrecognized option '{option}'"));
    }
    let value = match valid_name(value) {
        Ok(value) => value,
        Err(NAME_TOO_LONG) => return context.fail(NAME_TOO_LONG),
        Err(_) => {
            let option = if is_name { "lib-name" } else { "lib-ver" };
            return context.fail(&format!(
                "ERR {option} cannot contain spaces, newlines or special characters."
            ));
        }
    };
    let mut names = context.record.names.lock();
    if is_name {
        names.library = value;
    } else {
        names.library_version = value;
    }
    drop(names);
    context.ok()
}

fn info(context: &mut Context<'_>) -> Run {
    let mut text = String::new();
    context.session.publish(context.record);
    context.record.describe(&mut text, context.commands.names());
    text.push('\n');
    context.reply().verbatim(&text);
    Ok(())
}

fn list(context: &mut Context<'_>) -> Run {
    let (mut ids, mut wanted_kind) = (None, None);
    if context.count() > 2 {
        if context.is(2, "type") && context.count() == 4 {
            match Kind::parse(context.argument(3)) {
                Ok(kind) => wanted_kind = Some(kind),
                Err(text) => return context.fail(&text),
            }
        } else if context.is(2, "id") && context.count() > 3 {
            let mut wanted = Vec::new();
            for index in 3..context.count() {
                match context.integer_at(index) {
                    // Nobody has a number below one.
                    Ok(id) => wanted.extend(u64::try_from(id)),
                    Err(_) => return context.fail("ERR Invalid client ID"),
                }
            }
            ids = Some(wanted);
        } else {
            return context.fail(replies::SYNTAX);
        }
    }
    context.session.publish(context.record);
    let mut text = String::new();
    for record in context.shared.clients.all() {
        if ids.as_ref().is_none_or(|ids| ids.contains(&record.id))
            && wanted_kind.is_none_or(|kind| kind.has(&record))
        {
            record.describe(&mut text, context.commands.names());
            text.push('\n');
        }
    }
    context.reply().verbatim(&text);
    Ok(())
}

/// Ends the wait of another client; a client that runs this does not wait.
fn unblock(context: &mut Context<'_>) -> Run {
    let how = match context.count() {
        3 => Unblocked::Timeout,
        4 if context.is(3, "timeout") => Unblocked::Timeout,
        4 if context.is(3, "error") => Unblocked::Error,
        4 => return context.fail("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"),
        _ => return context.fail(&replies::wrong_form(context.argument(1), "CLIENT")),
    };
    let id = match context.integer_at(2) {
        Ok(id) => id,
        Err(text) => return context.fail(text),
    };
    let record = u64::try_from(id)
        .ok()
        .and_then(|id| context.shared.clients.get(id));
    let record = record.filter(|record| record.unblocking.unblock(how));
    if let Some(record) = &record {
        context.shared.loops[record.loop_index].send(Message::Touch(record.token));
    }
    context.integer(i64::from(record.is_some()))
}

fn no_evict(context: &mut Context<'_>) -> Run {
    note(context, NO_EVICT)
}

fn no_touch(context: &mut Context<'_>) -> Run {
    note(context, NO_TOUCH)
}

/// Notes what the client has asked for.
fn note(context: &mut Context<'_>, bit: u8) -> Run {
    let asked = &context.record.asked;
    // Relaxed: a report.
    if context.is(2, "on") {
        asked.fetch_or(bit, Ordering::Relaxed);
    } else if context.is(2, "off") {
        asked.fetch_and(!bit, Ordering::Relaxed);
    } else {
        return context.fail(replies::SYNTAX);
    }
    context.ok()
}

fn help(context: &mut Context<'_>) -> Run {
    const LINES: &[&str] = &[
        "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "CACHING (YES|NO)",
        "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
        "GETREDIR",
        "    Return the client ID we are redirecting to when tracking is enabled.",
        "GETNAME",
        "    Return the name of the current connection.",
        "ID",
        "    Return the ID of the current connection.",
        "INFO",
        "    Return information about the current client connection.",
        "KILL <ip:port>",
        "    Kill connection made from <ip:port>.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Kill connections. Options are: ADDR, LADDR, TYPE, USER, SKIPME, ID, MAXAGE.",
        "LIST [options ...]",
        "    Return information about client connections. Options: TYPE, ID.",
        "NO-EVICT (ON|OFF)",
        "    Protect current client connection from eviction.",
        "NO-TOUCH (ON|OFF)",
        "    Will not touch LRU/LFU stats when this mode is on.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Suspend all, or just write, clients for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Control the replies sent to the current connection.",
        "SETINFO <option> <value>",
        "    Set client meta attr. Options are: LIB-NAME, LIB-VER.",
        "SETNAME <name>",
        "    Assign the name <name> to the current connection.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Control server assisted client side caching.",
        "TRACKINGINFO",
        "    Report tracking status for the current connection.",
        "UNBLOCK <clientid> [TIMEOUT|ERROR]",
        "    Unblock the client, as if its time was over, or with an error.",
        "UNPAUSE",
        "    Stop the current client pause, resuming traffic.",
        "HELP",
        "    Print this help.",
    ];
    context.reply().array(LINES.len());
    for line in LINES {
        context.reply().simple(line);
    }
    Ok(())
}
