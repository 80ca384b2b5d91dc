//! AUTH and HELLO.

use pando_resp::{Version, parse_integer};

use super::client::valid_name;
use crate::context::{Command, Context, Flags, Group, Run, Secrets, replies};

/// The version of Redis whose commands and errors are implemented.
pub const REDIS_VERSION: &str = "7.2.5";

const FLAGS: Flags = Flags::FAST
    .and(Flags::LOADING)
    .and(Flags::NO_AUTH)
    .and(Flags::NOSCRIPT);

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: FLAGS,
        group: Group::Connection,
        complexity: "O(N) where N is the number of passwords defined for the user",
        summary: "Authenticates the connection.",
        secrets: Secrets::Behind(1),
        ..Command::new("auth", -2, auth)
    },
    Command {
        flags: FLAGS,
        group: Group::Connection,
        since: "6.0.0",
        summary: "Handshakes with the Redis server.",
        secrets: Secrets::OfHello,
        ..Command::new("hello", -1, hello)
    },
];

fn is_user(context: &Context<'_>, user: &[u8], password: &[u8]) -> bool {
    // Both are compared, whatever the result of the first comparison, so that the time tells
    // nothing.
    let known = context.shared.settings.is_password(password);
    let is_user = user == b"default" && known;
    if !is_user {
        let client = &context.record.address;
        context.shared.events.wrong_password(client);
    }
    is_user
}

fn auth(context: &mut Context<'_>) -> Run {
    let (user, password): (&[u8], &[u8]) = match context.count() {
        2 => (b"default", context.argument(1)),
        3 => (context.argument(1), context.argument(2)),
        _ => return context.fail(replies::SYNTAX),
    };
    if context.count() == 2 && !context.shared.settings.has_password() {
        return context.fail(replies::NO_PASSWORD_CONFIGURED);
    }
    if !is_user(context, user, password) {
        return context.fail(replies::WRONG_PASSWORD);
    }
    context.session.authenticated = true;
    context.ok()
}

fn hello(context: &mut Context<'_>) -> Run {
    let mut version = None;
    if let Some(text) = context.arguments.get(1) {
        version = match parse_integer(text) {
            Some(2) => Some(Version::Resp2),
            Some(3) => Some(Version::Resp3),
            Some(_) => return context.fail("NOPROTO unsupported protocol version"),
            None => {
                return context.fail("ERR Protocol version is not an integer or out of range");
            }
        };
    }
    let mut authenticated = context.session.authenticated;
    let mut name = None;
    let mut at = 2;
    while at < context.count() {
        let left = context.count() - at - 1;
        if context.is(at, "auth") && left >= 2 {
            if !is_user(context, context.argument(at + 1), context.argument(at + 2)) {
                return context.fail(replies::WRONG_PASSWORD);
            }
            authenticated = true;
            at += 3;
        } else if context.is(at, "setname") && left >= 1 {
            match valid_name(context.argument(at + 1)) {
                Ok(valid) => name = Some(valid),
                Err(text) => return context.fail(text),
            }
            at += 2;
        } else {
            let option = replies::shown(context.argument(at));
            return context.fail(&format!("ERR Syntax error in HELLO option '{option}'"));
        }
    }
    if !authenticated {
        return context.fail(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        );
    }
    context.session.authenticated = true;
    if let Some(name) = name {
        context.record.names.lock().name = name;
    }
    context.session.version = version.unwrap_or(context.session.version);
    describe(context);
    Ok(())
}

fn describe(context: &mut Context<'_>) {
    let id = i64::try_from(context.record.id).unwrap_or(i64::MAX);
    let version = context.session.version;
    let mut reply = context.reply();
    reply.map(7);
    reply.bulk(b"server");
    reply.bulk(b"redis");
    reply.bulk(b"version");
    reply.bulk(REDIS_VERSION.as_bytes());
    reply.bulk(b"proto");
    reply.integer(version.number());
    reply.bulk(b"id");
    reply.integer(id);
    reply.bulk(b"mode");
    reply.bulk(b"standalone");
    reply.bulk(b"role");
    reply.bulk(b"master");
    reply.bulk(b"modules");
    reply.array(0);
}
