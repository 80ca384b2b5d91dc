//! ROLE, LOLWUT, MODULE, CLUSTER, REPLICAOF and the like: what a server without replicas, modules
//! and cluster says about them.

use super::auth::REDIS_VERSION;
use crate::context::{Command, Context, Flags, Group, Run, replies};

const FLAGS: Flags = Flags::LOADING;
const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT);
const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
const NO_MODULES: &str = "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\", you \
     can run it from a local connection, otherwise you need to set this option in the \
     configuration file, and then restart the server.";

const fn sub(
    name: &'static str,
    arity: i32,
    run: fn(&mut Context<'_>) -> Run,
    summary: &'static str,
) -> Command {
    Command {
        flags: FLAGS,
        summary,
        ..Command::new(name, arity, run)
    }
}

const fn of_cluster(name: &'static str, arity: i32) -> Command {
    Command {
        group: Group::Cluster,
        since: "3.0.0",
        ..sub(name, arity, no_cluster, "Is refused: there is no cluster.")
    }
}

const fn of_replicas(name: &'static str, since: &'static str) -> Command {
    Command {
        flags: ADMIN,
        since,
        summary: "Configures a server as replica of another, or promotes it to a master.",
        ..Command::new(name, 3, replica_of)
    }
}

const fn of_modules(name: &'static str, arity: i32, run: fn(&mut Context<'_>) -> Run) -> Command {
    Command {
        flags: ADMIN,
        since: "4.0.0",
        ..sub(name, arity, run, "About modules, of which there are none.")
    }
}

pub(crate) const COMMANDS: &[Command] = &[
    Command {
        flags: Flags::LOADING.and(Flags::NOSCRIPT).and(Flags::FAST),
        since: "2.8.12",
        summary: "Returns the replication role.",
        ..Command::new("role", 1, role)
    },
    Command {
        flags: Flags::READONLY.and(Flags::FAST),
        since: "5.0.0",
        summary: "Displays the version.",
        ..Command::new("lolwut", -1, version)
    },
    of_replicas("replicaof", "5.0.0"),
    of_replicas("slaveof", "1.0.0"),
    Command {
        flags: ADMIN,
        since: "6.2.0",
        summary: "Starts a coordinated failover from a server to one of its replicas.",
        ..Command::new("failover", -1, |context| {
            context.fail("ERR FAILOVER requires connected replicas.")
        })
    },
    Command {
        since: "4.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for module commands.",
        subcommands: &[
            of_modules("list", 2, |context| {
                context.reply().array(0);
                Ok(())
            }),
            of_modules("load", -3, no_modules),
            of_modules("loadex", -3, no_modules),
            of_modules("unload", 3, no_modules),
            Command {
                flags: FLAGS,
                ..of_modules("help", 2, module_help)
            },
        ],
        ..Command::new("module", -2, module_help)
    },
    Command {
        group: Group::Cluster,
        since: "3.0.0",
        complexity: "Depends on subcommand.",
        summary: "A container for Redis Cluster commands.",
        ..Command::new("cluster", -2, cluster)
    },
    Command {
        flags: FLAGS.and(Flags::FAST),
        ..of_cluster("readonly", 1)
    },
    Command {
        flags: FLAGS.and(Flags::FAST),
        ..of_cluster("readwrite", 1)
    },
    Command {
        flags: Flags::FAST,
        ..of_cluster("asking", 1)
    },
];

fn role(context: &mut Context<'_>) -> Run {
    let mut reply = context.reply();
    reply.array(3);
    reply.bulk(b"master");
    reply.integer(0);
    reply.array(0);
    Ok(())
}

fn version(context: &mut Context<'_>) -> Run {
    let own = &context.shared.options.version;
    let text = format!("Redis ver. {REDIS_VERSION}\nPandoDB {own}\n");
    context.reply().verbatim(&text);
    Ok(())
}

fn replica_of(context: &mut Context<'_>) -> Run {
    if context.is(1, "no") && context.is(2, "one") {
        return context.ok();
    }
    match context.integer_at(2) {
        Ok(0..=65_535) => context.fail("ERR replication is not there yet"),
        _ => context.fail("ERR Invalid master port"),
    }
}

fn no_modules(context: &mut Context<'_>) -> Run {
    context.fail(NO_MODULES)
}

/// Subcommands of CLUSTER, all of which are refused.
const OF_CLUSTER: &[&str] = &[
    "addslots",
    "addslotsrange",
    "bumpepoch",
    "count-failure-reports",
    "countkeysinslot",
    "delslots",
    "delslotsrange",
    "failover",
    "flushslots",
    "forget",
    "getkeysinslot",
    "help",
    "info",
    "keyslot",
    "links",
    "meet",
    "myid",
    "myshardid",
    "nodes",
    "replicas",
    "replicate",
    "reset",
    "saveconfig",
    "set-config-epoch",
    "setslot",
    "shards",
    "slaves",
    "slots",
];

fn cluster(context: &mut Context<'_>) -> Run {
    if OF_CLUSTER.iter().any(|known| context.is(1, known)) {
        return no_cluster(context);
    }
    let name = replies::shown(context.argument(1));
    context.fail(&format!(
        "ERR unknown subcommand '{name}'. Try CLUSTER HELP."
    ))
}

fn no_cluster(context: &mut Context<'_>) -> Run {
    context.fail(NO_CLUSTER)
}

fn module_help(context: &mut Context<'_>) -> Run {
    if context.count() < 2 {
        return context.fail(&replies::wrong_arity("module"));
    }
    context.lines(&[
        "MODULE <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
        "LIST",
        "    Return a list of loaded modules.",
        "HELP",
        "    Print this help.",
    ])
}
