//! The registry of clients, over all loops: what `CLIENT LIST` shows and `CLIENT KILL` searches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::RawFd;
use std::task::Waker;

use pando_sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering};
use pando_sync::time::unix_ms;
use pando_sync::{Arc, Mutex, OnceLock, Rank};

use crate::client::memory::{ClientMemory, Held};
use crate::client::unblocking::Unblocking;
use crate::loop_handle::{LoopHandle, Token, TouchWake};
use crate::pubsub::mailbox::Mailbox;
use crate::socket::Address;

/// It tracks keys.
pub(crate) const TRACKS: u8 = 1;
/// The client that its messages about keys go to was gone.
pub(crate) const IS_BROKEN: u8 = 2;
/// It hears of all keys with its prefixes.
pub(crate) const IS_BROADCAST: u8 = 4;

/// CLIENT NO-EVICT.
pub(crate) const NO_EVICT: u8 = 1;
/// CLIENT NO-TOUCH, which has no effect.
pub(crate) const NO_TOUCH: u8 = 2;

/// Names that a client has given itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    /// Empty until the client sets it.
    pub(crate) name: String,
    /// Empty until the client sets it.
    pub(crate) library: String,
    /// Empty until the client sets it.
    pub(crate) library_version: String,
}

/// One client, as other threads see it. Its atomics are written by the loop of its connection
/// (relaxed: a report may be a moment old); `killed`, `unblocking` and what of `held` is counted by
/// any thread.
#[derive(Debug)]
pub(crate) struct ClientRecord {
    /// No other client of this run has had it.
    pub(crate) id: u64,
    /// Address of the peer.
    pub(crate) address: Address,
    /// Address of this end.
    pub(crate) local_address: Address,
    /// Descriptor of the socket; for reports only.
    pub(crate) file: RawFd,
    /// Index in [`crate::shared::Shared::loops`] of the loop that serves the connection.
    pub(crate) loop_index: usize,
    /// Names the connection in that loop, also after it has ended.
    pub(crate) token: Token,
    /// Unix time at which it was accepted, in milliseconds.
    pub(crate) created_ms: u64,
    /// Unix time of the last turn of the connection, in milliseconds.
    pub(crate) active_ms: AtomicU64,
    /// Number of the selected database.
    pub(crate) database: AtomicU32,
    /// Protocol version, 2 or 3.
    pub(crate) version: AtomicU8,
    /// Number of queued commands; -1 outside MULTI.
    pub(crate) queued: AtomicI64,
    /// Memory of the queued commands, in bytes; 0 outside MULTI.
    pub(crate) queued_bytes: AtomicU64,
    /// What the server holds for its transaction of PANDO BEGIN, in bytes.
    pub(crate) transaction_bytes: AtomicU64,
    /// Number of watched places; several keys may share one.
    pub(crate) watched: AtomicU32,
    /// Memory of the watches, in bytes.
    pub(crate) watched_bytes: AtomicU64,
    /// Number of channels of its subscriptions.
    pub(crate) channels: AtomicU32,
    /// Number of patterns of its subscriptions.
    pub(crate) patterns: AtomicU32,
    /// Number of channels of SSUBSCRIBE.
    pub(crate) shard_channels: AtomicU32,
    /// Unexecuted bytes of input.
    pub(crate) input_bytes: AtomicU64,
    /// Unsent bytes of replies in memory.
    pub(crate) output_bytes: AtomicU64,
    /// Memory of its buffers, its command and its queue of MULTI.
    pub(crate) held: Held,
    /// Bytes of the messages that wait in its mailbox, as if it shared them with nobody.
    pub(crate) mail_bytes: AtomicU64,
    /// When its transaction of PANDO BEGIN began, in milliseconds since 1970; 0 without one.
    pub(crate) transaction_ms: AtomicU64,
    /// True while a command waits for something that may never come, or for the end of a pause.
    pub(crate) waiting: AtomicBool,
    /// It sees the commands of all clients.
    pub(crate) is_monitor: AtomicBool,
    /// Whether the wait of its command can be ended.
    pub(crate) unblocking: Unblocking,
    /// [`TRACKS`] and its like: how it tracks keys.
    pub(crate) tracking: AtomicU8,
    /// [`NO_EVICT`] and its like: what it has asked for.
    pub(crate) asked: AtomicU8,
    /// Id of the client that its messages about keys go to; 0: none; -1: it tracks no keys.
    pub(crate) redirection: AtomicI64,
    /// For messages about keys, its own or those of another client: from the first CLIENT TRACKING
    /// that names it.
    mail: OnceLock<Arc<Mailbox>>,
    /// Set by CLIENT KILL; the loop then closes the connection.
    pub(crate) killed: AtomicBool,
    /// Guarded by its lock, which is held for a copy only.
    pub(crate) names: Mutex<Names>,
    /// Number of the command that was sent last, among the names of all commands and subcommands;
    /// [`UNKNOWN`] if there is none, or no command is called so.
    command: AtomicU32,
}

const UNKNOWN: u32 = u32::MAX;

impl ClientRecord {
    /// Returns the record of a client that was accepted now; `addresses` are the peer's and this
    /// end's.
    pub(crate) fn new(
        id: u64,
        addresses: (Address, Address),
        file: RawFd,
        loop_index: usize,
        token: Token,
    ) -> Self {
        let now = unix_ms();
        Self {
            id,
            address: addresses.0,
            local_address: addresses.1,
            file,
            loop_index,
            token,
            created_ms: now,
            active_ms: AtomicU64::new(now),
            database: AtomicU32::new(0),
            version: AtomicU8::new(2),
            queued: AtomicI64::new(-1),
            queued_bytes: AtomicU64::new(0),
            transaction_bytes: AtomicU64::new(0),
            watched: AtomicU32::new(0),
            watched_bytes: AtomicU64::new(0),
            channels: AtomicU32::new(0),
            patterns: AtomicU32::new(0),
            shard_channels: AtomicU32::new(0),
            input_bytes: AtomicU64::new(0),
            output_bytes: AtomicU64::new(0),
            held: Held::default(),
            mail_bytes: AtomicU64::new(0),
            transaction_ms: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
            is_monitor: AtomicBool::new(false),
            unblocking: Unblocking::default(),
            tracking: AtomicU8::new(0),
            asked: AtomicU8::new(0),
            redirection: AtomicI64::new(-1),
            mail: OnceLock::new(),
            killed: AtomicBool::new(false),
            names: Mutex::new(Rank::Leaf, Names::default()),
            command: AtomicU32::new(UNKNOWN),
        }
    }

    /// Returns true if CLIENT KILL has hit it.
    #[inline]
    pub(crate) fn is_killed(&self) -> bool {
        // Acquire: pairs with the Release in CLIENT KILL.
        self.killed.load(Ordering::Acquire)
    }

    /// Returns its mailbox for messages about keys, if somebody has wanted it.
    #[inline]
    pub(crate) fn mail(&self) -> Option<&Arc<Mailbox>> {
        self.mail.get()
    }

    /// Returns its mailbox for messages about keys.
    pub(crate) fn mailbox(&self, loops: &[Arc<LoopHandle>]) -> &Arc<Mailbox> {
        self.mail.get_or_init(|| {
            let handle = Arc::clone(&loops[self.loop_index]);
            let waker = Waker::from(TouchWake::new(self.token, handle));
            Arc::new(Mailbox::new(waker))
        })
    }

    /// Returns true if it has subscribed to anything.
    pub(crate) fn is_subscribed(&self) -> bool {
        // Relaxed: a report of its own.
        let counts = [&self.channels, &self.patterns, &self.shard_channels];
        counts.iter().any(|of| of.load(Ordering::Relaxed) > 0)
    }

    /// Returns how long its transaction of PANDO BEGIN has been open as of `now`, in milliseconds.
    pub(crate) fn transaction_age_ms(&self, now: u64) -> Option<u64> {
        // Relaxed: a report of its own.
        let began = self.transaction_ms.load(Ordering::Relaxed);
        (began > 0).then(|| now.saturating_sub(began))
    }

    /// Returns the memory of its buffers, of its command and of what it has queued, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        // Relaxed: a report of its own.
        self.held.bytes() + self.transaction_bytes.load(Ordering::Relaxed)
    }

    /// Notes the command that was sent last.
    #[inline]
    pub(crate) fn note_command(&self, number: Option<usize>) {
        let number = number.and_then(|number| u32::try_from(number).ok());
        // Relaxed: a report.
        self.command
            .store(number.unwrap_or(UNKNOWN), Ordering::Relaxed);
    }

    /// Returns the letters of its state, in the order of Redis.
    fn flags(&self, is_in_multi: bool) -> String {
        // Relaxed, as in `describe`.
        let tracking = self.tracking.load(Ordering::Relaxed);
        let asked = self.asked.load(Ordering::Relaxed);
        let letters = [
            (self.is_monitor.load(Ordering::Relaxed), 'O'),
            (self.is_subscribed(), 'P'),
            (is_in_multi, 'x'),
            (self.waiting.load(Ordering::Relaxed), 'b'),
            (tracking & TRACKS != 0, 't'),
            (tracking & IS_BROKEN != 0, 'R'),
            (tracking & IS_BROADCAST != 0, 'B'),
            (matches!(self.address, Address::Unix(_)), 'U'),
            (asked & NO_EVICT != 0, 'e'),
            (asked & NO_TOUCH != 0, 'T'),
        ];
        let set = letters.into_iter().filter(|(is_set, _)| *is_set);
        let flags: String = set.map(|(_, letter)| letter).collect();
        match flags.is_empty() {
            true => "N".to_owned(),
            false => flags,
        }
    }

    /// Appends the line of `CLIENT LIST` to `into`, without its line end. `commands` are the names
    /// of all commands and subcommands.
    pub(crate) fn describe(&self, into: &mut String, commands: &[String]) {
        // Relaxed throughout: each field is a report of its own.
        let now = unix_ms();
        let names = self.names.lock().clone();
        let queued = self.queued.load(Ordering::Relaxed);
        let command = commands.get(self.command.load(Ordering::Relaxed) as usize);
        let flags = self.flags(queued >= 0);
        let _ = write!(
            into,
            "id={} addr={} laddr={} fd={} name={} age={} idle={} flags={flags} db={} sub={} psub={} \
             ssub={} multi={queued} watch={} qbuf={} qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 \
             rbp=0 obl={} oll=0 omem={} tot-mem={} events=r cmd={} user=default redir={} resp={} \
             lib-name={} lib-ver={} transaction-ms={}",
            self.id,
            self.address,
            self.local_address,
            self.file,
            names.name,
            now.saturating_sub(self.created_ms) / 1000,
            now.saturating_sub(self.active_ms.load(Ordering::Relaxed)) / 1000,
            self.database.load(Ordering::Relaxed),
            self.channels.load(Ordering::Relaxed),
            self.patterns.load(Ordering::Relaxed),
            self.shard_channels.load(Ordering::Relaxed),
            self.watched.load(Ordering::Relaxed),
            self.input_bytes.load(Ordering::Relaxed),
            self.queued_bytes.load(Ordering::Relaxed)
                + self.transaction_bytes.load(Ordering::Relaxed),
            self.output_bytes.load(Ordering::Relaxed),
            self.mail_bytes.load(Ordering::Relaxed),
            self.memory() + self.watched_bytes.load(Ordering::Relaxed) + 1024,
            command.map_or("NULL", String::as_str),
            self.redirection.load(Ordering::Relaxed),
            self.version.load(Ordering::Relaxed),
            names.library,
            names.library_version,
            self.transaction_age_ms(now).unwrap_or(0),
        );
    }
}

/// All clients by id.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// Guarded by its lock, which is held for an insertion, a removal or a walk.
    clients: Mutex<BTreeMap<u64, Arc<ClientRecord>>>,
    /// What they hold.
    pub(crate) memory: ClientMemory,
    /// The id that was given last.
    next: AtomicU64,
}

impl Registry {
    /// Returns an id that no client had before.
    pub(crate) fn next_id(&self) -> u64 {
        // Relaxed: only uniqueness matters.
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds a client under its id.
    pub(crate) fn insert(&self, record: Arc<ClientRecord>) {
        self.clients.lock().insert(record.id, record);
    }

    /// Removes the client with this id, if it is there: it gets no more messages.
    pub(crate) fn remove(&self, id: u64) {
        let removed = self.clients.lock().remove(&id);
        let Some(record) = removed else { return };
        self.memory.leave_out(&record.held);
        if let Some(mailbox) = record.mail() {
            mailbox.close();
        }
    }

    /// Returns the mailbox of the client with this id.
    pub(crate) fn mailbox(&self, id: u64, loops: &[Arc<LoopHandle>]) -> Option<Arc<Mailbox>> {
        let mailbox = Arc::clone(self.get(id)?.mailbox(loops));
        // Made before this look: whoever removes the client after it finds the mailbox to close.
        self.get(id).map(|_| mailbox)
    }

    /// Returns the client with this id.
    pub(crate) fn get(&self, id: u64) -> Option<Arc<ClientRecord>> {
        self.clients.lock().get(&id).cloned()
    }

    /// Returns the sum of `figure` over all clients.
    pub(crate) fn sum(&self, figure: impl Fn(&ClientRecord) -> u64) -> u64 {
        let clients = self.clients.lock();
        clients.values().map(|record| figure(record)).sum()
    }

    /// Returns all clients, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<ClientRecord>> {
        self.clients.lock().values().cloned().collect()
    }
}
