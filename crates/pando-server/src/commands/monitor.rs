//! MONITOR.

use crate::context::{Command, Context, Flags, Run};

pub(crate) const COMMANDS: &[Command] = &[Command {
    flags: Flags::ADMIN
        .and(Flags::NOSCRIPT)
        .and(Flags::LOADING)
        .and(Flags::NO_INTERACTIVE),
    summary: "Listens for all requests received by the server in real-time.",
    ..Command::new("monitor", 1, monitor)
}];

/// It begins when the command has ended (`pubsub/subscriptions.rs`).
fn monitor(context: &mut Context<'_>) -> Run {
    if context.exec_index.is_some() {
        return context.fail("ERR MONITOR isn't allowed for DENY BLOCKING client");
    }
    let subscriptions = context.session.subscriptions.get_or_insert_default();
    subscriptions.monitor();
    context.ok()
}
