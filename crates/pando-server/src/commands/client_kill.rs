//! CLIENT KILL: marks clients, and tells their loops to close them.

use pando_resp::parse_integer;
use pando_sync::atomic::Ordering;
use pando_sync::time::unix_ms;

use crate::client::record::ClientRecord;
use crate::client::session::Session;
use crate::context::progress::Killed;
use crate::context::{Context, Interrupted, Run, replies};
use crate::loop_handle::Underway;
use crate::shared::Shared;
use crate::socket::Address;

/// What TYPE selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Clients without subscriptions.
    Normal,
    Subscriber,
    /// Servers, of which there are none.
    Other,
}

impl Kind {
    /// # Errors
    /// The reply that refuses it.
    pub(crate) fn parse(name: &[u8]) -> Result<Self, String> {
        match name.to_ascii_lowercase().as_slice() {
            b"normal" => Ok(Self::Normal),
            b"pubsub" => Ok(Self::Subscriber),
            b"master" | b"replica" | b"slave" => Ok(Self::Other),
            _ => {
                let name = replies::shown(name);
                Err(format!("ERR Unknown client type '{name}'"))
            }
        }
    }

    /// Returns true if the client is one of them.
    pub(crate) fn has(self, record: &ClientRecord) -> bool {
        match self {
            Self::Normal => !record.is_subscribed(),
            Self::Subscriber => record.is_subscribed(),
            Self::Other => false,
        }
    }
}

/// Selects clients: those that pass every given filter.
#[derive(Default)]
struct Filters<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    kind: Option<Kind>,
    age_s: Option<u64>,
    spare_self: bool,
}

impl Filters<'_> {
    fn take(&self, record: &ClientRecord, own_id: u64) -> bool {
        let is = |wanted: Option<&[u8]>, address: &Address| {
            wanted.is_none_or(|wanted| wanted == address.to_string().as_bytes())
        };
        let age_s = unix_ms().saturating_sub(record.created_ms) / 1000;
        self.kind.is_none_or(|kind| kind.has(record))
            && self.id.is_none_or(|id| id == record.id)
            && is(self.address, &record.address)
            && is(self.local_address, &record.local_address)
            && self.age_s.is_none_or(|least| age_s >= least)
            && !(self.spare_self && record.id == own_id)
    }
}

/// Closes all clients that the filters take: others by their loops, its own after the reply. That
/// waits until those loops have heard of it: a command of a killed client that had begun has ended,
/// or waits for something and will not go on. An engine thread that empties tables for it goes on.
/// Two clients that kill each other are both closed while they wait. Inside EXEC, which would have
/// to begin again, it waits for nothing; and its own client is closed at the end of EXEC, which may
/// run again before.
pub(crate) fn kill(context: &mut Context<'_>) -> Run {
    let old_style = context.count() == 3;
    let killed = match context.progress.killed.take() {
        Some(killed) => killed,
        None => match filters_of(context, old_style) {
            Ok(filters) => Box::new(kill_all(context, &filters)),
            Err(text) => return context.fail(&text),
        },
    };
    if context.exec_index.is_none() && !killed.underway.has_ended() {
        context.progress.killed = Some(killed);
        return Err(Interrupted::Wait);
    }
    match context.exec_index {
        _ if !killed.has_own => {}
        None => close_own(context.session, context.shared, context.record),
        Some(_) => context.session.closes_after_exec = true,
    }
    match (old_style, killed.count) {
        (true, 0) => context.fail("ERR No such client"),
        (true, _) => context.ok(),
        (false, count) => context.integer(count),
    }
}

/// Closes the client of a session once its replies are sent.
pub(crate) fn close_own(session: &mut Session, shared: &Shared, record: &ClientRecord) {
    // Relaxed: its own loop reads it.
    record.killed.store(true, Ordering::Relaxed);
    shared.clients.remove(record.id);
    session.closing = true;
}

fn filters_of<'a>(context: &Context<'a>, old_style: bool) -> Result<Filters<'a>, String> {
    match old_style {
        true => Ok(Filters {
            address: Some(context.argument(2)),
            ..Filters::default()
        }),
        false => parse(context),
    }
}

/// Marks the clients, and tells their loops.
fn kill_all(context: &Context<'_>, filters: &Filters<'_>) -> Killed {
    let own_id = context.record.id;
    let mut records = context.shared.clients.all();
    records.retain(|record| filters.take(record, own_id));
    let count = i64::try_from(records.len()).unwrap_or(i64::MAX);
    let all = records.len();
    records.retain(|record| record.id != own_id);
    let underway = Underway::new(records.len(), context.waker.clone());
    for record in &records {
        context.shared.end_client(record, &underway);
    }
    Killed {
        count,
        has_own: records.len() < all,
        underway,
    }
}

fn parse<'a>(context: &Context<'a>) -> Result<Filters<'a>, String> {
    let mut filters = Filters {
        spare_self: true,
        ..Filters::default()
    };
    if !context.count().is_multiple_of(2) {
        return Err(replies::SYNTAX.to_owned());
    }
    for at in (2..context.count()).step_by(2) {
        let value = context.argument(at + 1);
        let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
        if context.is(at, "id") {
            let Some(id) = number.filter(|id| *id > 0) else {
                return Err("ERR client-id should be greater than 0".to_owned());
            };
            filters.id = Some(id);
        } else if context.is(at, "maxage") {
            let Some(age) = number.filter(|age| *age > 0) else {
                return Err("ERR maxage is not an integer or out of range".to_owned());
            };
            filters.age_s = Some(age);
        } else if context.is(at, "addr") {
            filters.address = Some(value);
        } else if context.is(at, "laddr") {
            filters.local_address = Some(value);
        } else if context.is(at, "type") {
            filters.kind = Some(Kind::parse(value)?);
        } else if context.is(at, "user") {
            if value != b"default" {
                return Err(format!("ERR No such user '{}'", replies::shown(value)));
            }
        } else if context.is(at, "skipme") && value.eq_ignore_ascii_case(b"yes") {
            filters.spare_self = true;
        } else if context.is(at, "skipme") && value.eq_ignore_ascii_case(b"no") {
            filters.spare_self = false;
        } else {
            return Err(replies::SYNTAX.to_owned());
        }
    }
    Ok(filters)
}
