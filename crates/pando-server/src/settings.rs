//! Settings that can change while the server runs.

use std::collections::BTreeMap;
use std::time::Duration;

use pando_sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering};
use pando_sync::{Rank, RwLock};

use crate::data::limits::EncodingLimits;
use crate::log::{LogLevel, LogLevelSetter};
use crate::options::{Durability, ServerOptions};
use crate::times::milliseconds;

/// What of a row lies in its leaf with pages of 4 KiB, and some room for its key.
const PACKED_BYTES_MAX: u64 = 1800;

/// Number of file descriptors reserved for everything but connections of clients and event loops.
const OTHER_FILES: u64 = 128;
/// Number of those of an event loop: it waits with one, is woken by one, and has two for its reads.
/// A script thread has as many, and there may be one for each loop.
const FILES_OF_LOOP: u64 = 8;

/// Settings that `CONFIG SET` changes and the loops read. All atomic accesses are Relaxed: no
/// setting depends on another one.
#[derive(Debug)]
pub(crate) struct Settings {
    password: RwLock<Option<String>>,
    /// Whether `password` is set; written under its lock, read without it.
    has_password: AtomicBool,
    protected_mode: AtomicBool,
    /// [`Durability`] as a number.
    durability: AtomicU8,
    /// Maximum number of connections.
    maxclients: AtomicU64,
    /// Idle time after which a connection is closed, in seconds; 0 means never.
    timeout_s: AtomicU64,
    /// Silence after which the system probes a peer, in seconds; 0 means never.
    tcp_keepalive_s: AtomicU64,
    /// Time after which a stalled peer is closed, in milliseconds; 0 means never.
    stall_ms: AtomicU64,
    /// Unsent reply bytes at which a connection stops executing.
    output_bytes_max: AtomicU64,
    /// Duration from which on a command enters the slow log, in microseconds; negative means never.
    slow_us: AtomicI64,
    /// Maximum number of entries of the slow log.
    slow_entries_max: AtomicU64,
    /// Duration from which on the latency monitor records an event, in milliseconds; 0 means never.
    monitor_ms: AtomicU64,
    /// The smaller of `slow_us` and `monitor_ms`, in nanoseconds; see [`Settings::watch_ns`].
    watch_ns: AtomicU64,
    /// Longest packed collection that Redis would not keep in a compact encoding, in bytes.
    packed_bytes_max: AtomicU64,
    /// Time that one run of a script may take, in milliseconds; 0 means any.
    script_ms: AtomicU64,
    /// Of OBJECT ENCODING.
    pub(crate) encoding_limits: EncodingLimits,
    /// False while the rows of expired keys are left alone.
    active_expire: AtomicBool,
    /// Parameters of CONFIG without an effect that were set.
    remembered: RwLock<BTreeMap<&'static str, String>>,
    log_level: RwLock<LogLevel>,
    log_level_setter: Option<LogLevelSetter>,
}

impl Settings {
    /// Takes the first values from the options. `maxclients` may be lower than asked for.
    pub(crate) fn new(options: &ServerOptions, maxclients: usize) -> Self {
        let settings = Self {
            password: RwLock::new(Rank::Leaf, None),
            has_password: AtomicBool::new(false),
            protected_mode: AtomicBool::new(options.protected_mode),
            durability: AtomicU8::new(0),
            maxclients: AtomicU64::new(maxclients as u64),
            timeout_s: AtomicU64::new(0),
            tcp_keepalive_s: AtomicU64::new(options.tcp_keepalive_s),
            stall_ms: AtomicU64::new(milliseconds(options.stall_timeout)),
            output_bytes_max: AtomicU64::new(options.output_bytes_max as u64),
            slow_us: AtomicI64::new(0),
            slow_entries_max: AtomicU64::new(128),
            monitor_ms: AtomicU64::new(0),
            watch_ns: AtomicU64::new(u64::MAX),
            packed_bytes_max: AtomicU64::new(PACKED_BYTES_MAX),
            script_ms: AtomicU64::new(5000),
            encoding_limits: EncodingLimits::default(),
            active_expire: AtomicBool::new(true),
            remembered: RwLock::new(Rank::Leaf, BTreeMap::new()),
            log_level: RwLock::new(Rank::Leaf, options.log_level),
            log_level_setter: options.log_level_setter,
        };
        settings.set_slow_us(10_000);
        settings.set_durability(options.durability);
        settings.set_password(options.requirepass.clone().unwrap_or_default());
        settings
    }

    /// Returns true if clients must authenticate.
    #[inline]
    pub(crate) fn has_password(&self) -> bool {
        self.has_password.load(Ordering::Relaxed)
    }

    /// Sets the password; an empty one means that none is asked for.
    pub(crate) fn set_password(&self, password: String) {
        let mut held = self.password.write();
        self.has_password
            .store(!password.is_empty(), Ordering::Relaxed);
        *held = (!password.is_empty()).then_some(password);
    }

    /// Returns true if `given` is the password, or if none is asked for. The comparison takes the
    /// same time for any two passwords of the same length.
    pub(crate) fn is_password(&self, given: &[u8]) -> bool {
        match self.password.read().as_deref() {
            None => true,
            Some(password) => {
                let password = password.as_bytes();
                let differs = |sum, (index, byte): (usize, &u8)| {
                    sum | (byte ^ password[index % password.len()])
                };
                given.iter().enumerate().fold(0, differs) == 0 && given.len() == password.len()
            }
        }
    }

    /// Returns the password; empty if none is asked for.
    pub(crate) fn password(&self) -> String {
        self.password.read().clone().unwrap_or_default()
    }

    /// Returns true if the rows of expired keys are removed in the background.
    pub(crate) fn active_expire(&self) -> bool {
        self.active_expire.load(Ordering::Relaxed)
    }

    /// Applies to the next round of each loop.
    pub(crate) fn set_active_expire(&self, on: bool) {
        self.active_expire.store(on, Ordering::Relaxed);
    }

    /// Returns the value that a parameter without an effect was set to.
    pub(crate) fn remembered(&self, name: &str) -> Option<String> {
        self.remembered.read().get(name).cloned()
    }

    /// Sets a parameter without an effect.
    pub(crate) fn remember(&self, name: &'static str, value: String) {
        self.remembered.write().insert(name, value);
    }

    /// Returns the length from which on the elements of a collection get rows of their own, in
    /// bytes.
    pub(crate) fn packed_bytes_max(&self) -> u64 {
        self.packed_bytes_max.load(Ordering::Relaxed)
    }

    /// Applies to collections that are written from now on.
    pub(crate) fn set_packed_bytes_max(&self, bytes: u64) {
        self.packed_bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// True if clients of other machines are refused as long as there is no password.
    pub(crate) fn protected_mode(&self) -> bool {
        self.protected_mode.load(Ordering::Relaxed)
    }

    /// Applies to connections that are accepted from now on.
    pub(crate) fn set_protected_mode(&self, on: bool) {
        self.protected_mode.store(on, Ordering::Relaxed);
    }

    /// Returns what is guaranteed when a write is answered.
    #[inline]
    pub(crate) fn durability(&self) -> Durability {
        match self.durability.load(Ordering::Relaxed) {
            0 => Durability::Durable,
            1 => Durability::Periodic,
            _ => Durability::None,
        }
    }

    /// Replies obey it from now on. The caller also tells the engine, if it is open.
    pub(crate) fn set_durability(&self, durability: Durability) {
        let code = match durability {
            Durability::Durable => 0,
            Durability::Periodic => 1,
            Durability::None => 2,
        };
        self.durability.store(code, Ordering::Relaxed);
    }

    /// Returns the maximum number of connections.
    pub(crate) fn maxclients(&self) -> u64 {
        self.maxclients.load(Ordering::Relaxed)
    }

    /// Closes no connection, even if there are more.
    pub(crate) fn set_maxclients(&self, count: u64) {
        self.maxclients.store(count, Ordering::Relaxed);
    }

    /// Returns the idle time after which a connection is closed.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout_s.load(Ordering::Relaxed);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    }

    /// 0 means that idle connections are never closed.
    pub(crate) fn set_timeout_s(&self, seconds: u64) {
        self.timeout_s.store(seconds, Ordering::Relaxed);
    }

    /// Returns the seconds of silence after which the system probes a peer; 0 means never. Applies
    /// to connections that are accepted from now on.
    pub(crate) fn tcp_keepalive_s(&self) -> u64 {
        self.tcp_keepalive_s.load(Ordering::Relaxed)
    }

    /// 0 means never. Applies to connections that are accepted from now on.
    pub(crate) fn set_tcp_keepalive_s(&self, seconds: u64) {
        self.tcp_keepalive_s.store(seconds, Ordering::Relaxed);
    }

    /// Returns the time after which a peer that accepts no byte of a reply, or sends no further
    /// byte of a command, is closed.
    pub(crate) fn stall_timeout(&self) -> Option<Duration> {
        let ms = self.stall_ms.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }

    /// 0 means that stalled peers are never closed.
    pub(crate) fn set_stall_timeout_s(&self, seconds: u64) {
        let ms = seconds.saturating_mul(1000);
        self.stall_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the duration from which on a command is reported to the slow log or to the latency
    /// monitor, in nanoseconds.
    #[inline]
    pub(crate) fn watch_ns(&self) -> u64 {
        self.watch_ns.load(Ordering::Relaxed)
    }

    fn set_watch(&self) {
        let slow = u64::try_from(self.slow_us()).map_or(u64::MAX, |us| us.saturating_mul(1000));
        let monitor = match self.monitor_ms() {
            0 => u64::MAX,
            ms => ms.saturating_mul(1_000_000),
        };
        self.watch_ns.store(slow.min(monitor), Ordering::Relaxed);
    }

    /// Returns the duration from which on a command enters the slow log, in microseconds; negative
    /// means never.
    pub(crate) fn slow_us(&self) -> i64 {
        self.slow_us.load(Ordering::Relaxed)
    }

    /// In microseconds; negative means never.
    pub(crate) fn set_slow_us(&self, us: i64) {
        self.slow_us.store(us, Ordering::Relaxed);
        self.set_watch();
    }

    /// Returns the time that one run of a script may take, in milliseconds; 0 means any.
    pub(crate) fn script_ms(&self) -> u64 {
        self.script_ms.load(Ordering::Relaxed)
    }

    /// Applies to runs that begin from now on.
    pub(crate) fn set_script_ms(&self, ms: u64) {
        self.script_ms.store(ms, Ordering::Relaxed);
    }

    /// Returns the maximum number of entries of the slow log.
    pub(crate) fn slow_entries_max(&self) -> u64 {
        self.slow_entries_max.load(Ordering::Relaxed)
    }

    /// Applies when the next entry is added.
    pub(crate) fn set_slow_entries_max(&self, count: u64) {
        self.slow_entries_max.store(count, Ordering::Relaxed);
    }

    /// Returns the duration from which on the latency monitor records an event, in milliseconds; 0
    /// means never.
    pub(crate) fn monitor_ms(&self) -> u64 {
        self.monitor_ms.load(Ordering::Relaxed)
    }

    /// In milliseconds; 0 means never.
    pub(crate) fn set_monitor_ms(&self, ms: u64) {
        self.monitor_ms.store(ms, Ordering::Relaxed);
        self.set_watch();
    }

    /// Returns the level that the log has now.
    pub(crate) fn log_level(&self) -> LogLevel {
        *self.log_level.read()
    }

    /// Returns true if a log is written whose level can be changed.
    pub(crate) fn has_log(&self) -> bool {
        self.log_level_setter.is_some()
    }

    /// Tells the owner of the subscriber, and stores the level; does nothing without a log.
    pub(crate) fn set_log_level(&self, level: LogLevel) {
        if let Some(LogLevelSetter(set)) = self.log_level_setter {
            let mut held = self.log_level.write();
            set(level);
            *held = level;
        }
    }

    /// Returns the unsent reply bytes at which a connection stops executing, while there is memory:
    /// [`crate::shared::Shared::output_bytes_max`].
    #[inline]
    pub(crate) fn output_bytes_max(&self) -> usize {
        usize::try_from(self.output_bytes_max.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}

/// Raises the limit of open files as far as `wanted` clients of a server with so many event loops
/// need; returns the number of clients that the limit allows, and says so if they are fewer.
pub(crate) fn allowed_clients(wanted: usize, loops: usize) -> usize {
    let others = OTHER_FILES + FILES_OF_LOOP * loops as u64;
    let needed = wanted as u64 + others;
    match rlimit::increase_nofile_limit(needed) {
        Ok(files) if files < needed => {
            let allowed = files.saturating_sub(others).max(1);
            let message = "fewer clients than asked for: raise the limit of open files (ulimit -n)";
            tracing::warn!(maxclients = allowed, wanted, files, needed, message);
            usize::try_from(allowed).unwrap_or(wanted)
        }
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prefixes, extensions and other cases of the password are refused.
    #[test]
    fn only_the_password_is_the_password() {
        let settings = Settings::new(&ServerOptions::default(), 10);
        assert!(settings.is_password(b"anything"));
        settings.set_password("secret".into());
        assert!(settings.has_password());
        assert!(settings.is_password(b"secret"));
        for wrong in [&b""[..], b"secre", b"secrets", b"secretsecret", b"Secret"] {
            assert!(!settings.is_password(wrong));
        }
    }
}
