//! What directives of redis-server mean here.

use std::net::{IpAddr, TcpListener};

use pando_server::is_settable;

use super::Directive;
use crate::failure::Failure;

/// What is refused, since whoever asks for it counts on it: with the value that asks for nothing.
const REFUSED: &[(&str, &str)] = &[
    ("aclfile", ""),
    ("cluster-enabled", "no"),
    ("loadmodule", ""),
    ("rename-command", ""),
    ("replicaof", "no one"),
    ("slaveof", "no one"),
    ("tls-port", "0"),
    ("user", ""),
];
/// What redis-server knows, and has no effect here.
const WITHOUT_EFFECT: &[&str] = &[
    "acl-pubsub-default",
    "always-show-logo",
    "aof-disable-auto-gc",
    "aof_rewrite_cpulist",
    "appenddirname",
    "appendfilename",
    "bgsave_cpulist",
    "bind-source-addr",
    "bio_cpulist",
    "cluster-allow-pubsubshard-when-down",
    "cluster-allow-reads-when-down",
    "cluster-allow-replica-migration",
    "cluster-announce-bus-port",
    "cluster-announce-hostname",
    "cluster-announce-ip",
    "cluster-announce-port",
    "cluster-announce-tls-port",
    "cluster-config-file",
    "cluster-link-sendbuf-limit",
    "cluster-migration-barrier",
    "cluster-node-timeout",
    "cluster-port",
    "cluster-preferred-endpoint-type",
    "cluster-replica-no-failover",
    "cluster-replica-validity-factor",
    "cluster-require-full-coverage",
    "cluster-slave-no-failover",
    "cluster-slave-validity-factor",
    "disable-thp",
    "ignore-warnings",
    "io-threads-do-reads",
    "key-load-delay",
    "locale-collate",
    "masterauth",
    "masteruser",
    "max-new-connections-per-cycle",
    "max-new-tls-connections-per-cycle",
    "oom-score-adj",
    "oom-score-adj-values",
    "pidfile",
    "propagation-error-behavior",
    "rdb-key-save-delay",
    "rdbchecksum",
    "repl-diskless-sync-max-replicas",
    "replica-announce-ip",
    "replica-announce-port",
    "replica-ignore-disk-write-errors",
    "server_cpulist",
    "set-proc-title",
    "shutdown-on-sigint",
    "shutdown-on-sigterm",
    "slave-announce-ip",
    "slave-announce-port",
    "slave-announced",
    "socket-mark-id",
    "syslog-facility",
    "syslog-ident",
    "tcp-backlog",
    "tls-auth-clients",
    "tls-ca-cert-dir",
    "tls-ca-cert-file",
    "tls-cert-file",
    "tls-ciphers",
    "tls-ciphersuites",
    "tls-client-cert-file",
    "tls-client-key-file",
    "tls-client-key-file-pass",
    "tls-cluster",
    "tls-dh-params-file",
    "tls-key-file",
    "tls-key-file-pass",
    "tls-prefer-server-ciphers",
    "tls-protocols",
    "tls-replication",
    "tls-session-cache-size",
    "tls-session-cache-timeout",
    "tls-session-caching",
];
/// Directives that are keys of our own configuration.
const KEYS: [(&str, &str); 8] = [
    ("dir", "dir"),
    ("durability", "durability"),
    ("loglevel", "log_level"),
    ("requirepass", "requirepass"),
    ("stall-timeout", "stall_timeout"),
    ("tcp-keepalive", "tcp_keepalive"),
    ("unixsocket", "unix_socket"),
    ("unixsocketperm", "unix_socket_mode"),
];
/// Directives that mean something here, besides parameters that can be set.
const MEANT: &[&str] = &[
    "appendonly",
    "bind",
    "daemonize",
    "dir",
    "enable-debug-command",
    "logfile",
    "maxmemory",
    "maxmemory-policy",
    "port",
    "supervised",
    "unixsocket",
    "unixsocketperm",
];

/// Returns true if redis-server knows the directive `name`.
pub(super) fn is_known(name: &str) -> bool {
    is_settable(name).is_some()
        || MEANT.contains(&name)
        || WITHOUT_EFFECT.contains(&name)
        || REFUSED.iter().any(|(of, _)| *of == name)
}

/// What some directives mean.
#[derive(Debug, Default, Clone)]
pub(crate) struct Meaning {
    /// Keys of our own configuration, with their text, and where they come from; without a text if
    /// they have their default again.
    pub(crate) values: Vec<(&'static str, Vec<String>, String)>,
    /// Parameters of CONFIG SET.
    pub(crate) parameters: Vec<(String, String)>,
    /// The file of the log, if there is one.
    pub(crate) log_file: Option<String>,
    /// Who may call DEBUG.
    pub(crate) debug_commands: Option<String>,
    /// What people should know.
    pub(crate) notes: Vec<String>,
    /// Names of directives without an effect.
    pub(crate) without_effect: Vec<String>,
    bind: Vec<String>,
    port: Option<String>,
    save: Option<String>,
    appends: Option<bool>,
    flush: Option<String>,
}

impl Meaning {
    /// Reads `directives`, which come after those of `before`.
    pub(super) fn of(directives: &[Directive], before: Option<&Self>) -> Result<Self, Failure> {
        let mut meaning = match before {
            None => Self::default(),
            Some(of) => Self {
                bind: of.bind.clone(),
                port: of.port.clone(),
                appends: of.appends,
                flush: of.flush.clone(),
                ..Self::default()
            },
        };
        for directive in directives {
            meaning.add(directive)?;
        }
        if let Some(save) = meaning.save.take() {
            meaning.notes.push(
                "save has no effect: every write is in the log, and checkpoints come by themselves"
                    .to_owned(),
            );
            meaning.parameters.push(("save".to_owned(), save));
        }
        let has = |names: &[&str]| directives.iter().rfind(|of| names.contains(&&*of.name));
        if let Some(last) = has(&["bind", "port"]) {
            meaning.listen(last)?;
        }
        if let Some(last) = has(&["appendonly", "appendfsync"]) {
            let is_set = before.is_some_and(|of| of.appends == Some(true) && of.flush.is_some());
            meaning.durability(last, is_set)?;
        }
        Ok(meaning)
    }

    fn add(&mut self, directive: &Directive) -> Result<(), Failure> {
        let Directive {
            name,
            words,
            origin,
        } = directive;
        let wrong = |what: &str| Failure::usage(format!("{origin}: {name}: {what}"));
        let joined = words.join(" ");
        if let Some((_, nothing)) = REFUSED.iter().find(|(of, _)| of == name) {
            return match joined.eq_ignore_ascii_case(nothing) {
                true => Ok(()),
                false => Err(wrong("is not supported")),
            };
        }
        match name.as_str() {
            "bind" => self.bind.clone_from(words),
            "save" => self.add_save(directive)?,
            "client-output-buffer-limit" => self.add_limits(directive)?,
            _ if !is_known(name) => return Err(wrong("there is no such directive")),
            _ if WITHOUT_EFFECT.contains(&&**name) => self.without_effect.push(name.clone()),
            _ => {
                let [word] = words.as_slice() else {
                    return Err(wrong("needs one argument"));
                };
                self.add_one(directive, word)?;
            }
        }
        Ok(())
    }

    /// Adds a directive that has one word.
    fn add_one(&mut self, directive: &Directive, word: &str) -> Result<(), Failure> {
        let Directive { name, origin, .. } = directive;
        let wrong = |what: &str| Failure::usage(format!("{origin}: {name}: {what}"));
        let switch = || match word.to_ascii_lowercase().as_str() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(wrong("argument must be 'yes' or 'no'")),
        };
        if let Some((_, key)) = KEYS.iter().find(|(of, _)| of == name) {
            self.value(key, word.to_owned(), origin);
            return Ok(());
        }
        match name.as_str() {
            "port" => {
                let port = word.parse::<u16>().ok();
                port.ok_or_else(|| wrong("a number from 0 to 65535 is needed"))?;
                self.port = Some(word.to_owned());
            }
            "appendonly" => {
                self.appends = Some(switch()?);
                if self.appends == Some(false) {
                    let note = "appendonly no has no effect: every write is in the log";
                    self.notes.push(note.to_owned());
                }
            }
            "appendfsync" => {
                self.flush = Some(word.to_owned());
            }
            "daemonize" if switch()? => {
                let note = "daemonize yes has no effect: the server stays in the foreground";
                self.notes.push(note.to_owned());
            }
            "daemonize" => {}
            "maxmemory-policy" if !word.eq_ignore_ascii_case("noeviction") => {
                self.notes.push(format!(
                    "maxmemory-policy {word} has no effect: keys are never evicted"
                ));
            }
            "logfile" => {
                self.log_file = Some(word.to_owned());
            }
            "enable-debug-command" => {
                self.debug_commands = Some(word.to_owned());
            }
            "maxmemory" => {
                let bytes = bytes(word).ok_or_else(|| wrong("argument must be a memory value"))?;
                match bytes {
                    // No bound: what this server takes if nothing is said.
                    0 => self.default_of("max_memory", origin),
                    _ => self.value("max_memory", bytes.to_string(), origin),
                }
            }
            _ if is_settable(name) == Some(true) => {
                self.parameters.push((name.clone(), word.to_owned()));
            }
            _ => {
                self.without_effect.push(name.clone());
            }
        }
        Ok(())
    }

    fn value(&mut self, key: &'static str, text: String, origin: &str) {
        self.values.push((key, vec![text], origin.to_owned()));
    }

    /// Takes back what was said of `key` before.
    fn default_of(&mut self, key: &'static str, origin: &str) {
        self.values.push((key, Vec::new(), origin.to_owned()));
    }

    /// Each adds its pairs; an empty one forgets those before it.
    fn add_save(&mut self, directive: &Directive) -> Result<(), Failure> {
        let words = directive.words.join(" ");
        let is_pairs = directive.words.len().is_multiple_of(2);
        if words.is_empty() {
            self.save = Some(String::new());
        } else if is_pairs || directive.words.len() == 1 && words.contains(' ') {
            let held = self.save.take().unwrap_or_default();
            self.save = Some(format!("{held} {words}").trim().to_owned());
        } else {
            let origin = &directive.origin;
            return Err(Failure::usage(format!("{origin}: Invalid save parameters")));
        }
        Ok(())
    }

    /// There are no replicas, and replies have no limit; that of subscribers is one.
    fn add_limits(&mut self, directive: &Directive) -> Result<(), Failure> {
        let origin = &directive.origin;
        let words: Vec<&str> = (directive.words.iter())
            .flat_map(|word| word.split_whitespace())
            .collect();
        if words.is_empty() || !words.len().is_multiple_of(4) {
            let text = "Wrong number of arguments in buffer limit configuration.";
            return Err(Failure::usage(format!("{origin}: {text}")));
        }
        for limits in words.chunks_exact(4) {
            match limits[0].to_ascii_lowercase().as_str() {
                "replica" | "slave" => {}
                "normal" if limits[1..] != ["0"; 3] => {
                    let note = "client-output-buffer-limit normal has no effect: a client that \
                                does not read its replies is executed no further";
                    self.notes.push(note.to_owned());
                }
                _ => self
                    .parameters
                    .push((directive.name.clone(), limits.join(" "))),
            }
        }
        Ok(())
    }

    /// Makes the addresses of `bind` and `port`.
    fn listen(&mut self, last: &Directive) -> Result<(), Failure> {
        let port = self.port.as_deref().unwrap_or("6379");
        if port == "0" {
            let off = vec!["off".to_owned()];
            self.values.push(("listen", off, last.origin.clone()));
            return Ok(());
        }
        let default = [String::from("127.0.0.1")];
        let bind = match self.bind.as_slice() {
            [] => &default,
            bind => bind,
        };
        let has_any = bind.iter().any(|of| of.trim_start_matches('-') == "*");
        let mut addresses = Vec::new();
        for host in bind {
            let (is_optional, host) = match host.strip_prefix('-') {
                Some(host) => (true, host),
                None => (false, host.as_str()),
            };
            let host = match host {
                "*" => "0.0.0.0",
                // One socket for both would take the port of the other.
                "::*" | "::" if has_any => {
                    let note = "bind * and ::* together: only IPv4 is listened on";
                    self.notes.push(note.to_owned());
                    continue;
                }
                "::*" => "::",
                host => host,
            };
            let ip = host.parse::<IpAddr>().ok();
            if is_optional && ip.is_none_or(|ip| TcpListener::bind((ip, 0)).is_err()) {
                continue;
            }
            addresses.push(match ip {
                Some(IpAddr::V6(ip)) => format!("[{ip}]:{port}"),
                _ => format!("{host}:{port}"),
            });
        }
        if addresses.is_empty() {
            let text = format!("{}: no address of bind is there", last.origin);
            return Err(Failure::usage(text));
        }
        self.values.push(("listen", addresses, last.origin.clone()));
        Ok(())
    }

    /// How often the log is flushed counts for whoever has asked for one: the redis.conf of many
    /// systems says `everysec` behind `appendonly no`, which must not lower what replies promise.
    /// Directives before these may have set another level: then this one takes that back.
    fn durability(&mut self, last: &Directive, is_set: bool) -> Result<(), Failure> {
        let Some(flush) = self.flush.clone() else {
            return Ok(());
        };
        let level = match flush.to_ascii_lowercase().as_str() {
            "always" => "durable",
            "everysec" => "periodic",
            "no" => "none",
            _ => {
                let words = "argument(s) must be one of the following: everysec, always, no";
                let text = format!("{}: appendfsync: {words}", last.origin);
                return Err(Failure::usage(text));
            }
        };
        if self.appends == Some(true) {
            self.value("durability", level.to_owned(), &last.origin);
        } else if level != "durable" {
            if is_set {
                self.value("durability", "durable".to_owned(), &last.origin);
            }
            let note = format!("appendfsync {flush} counts only with appendonly yes");
            self.notes.push(note);
        }
        Ok(())
    }
}

/// Returns the bytes of a number with a unit: `k` is 1000 of them, `kb` 1024.
fn bytes(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    fn directives(text: &str) -> Vec<Directive> {
        let lines = text.lines().map(|line| words::split(line).unwrap());
        lines
            .map(|mut words| Directive {
                name: words.remove(0),
                words,
                origin: "x.conf".to_owned(),
            })
            .collect()
    }

    fn meaning(text: &str) -> Result<Meaning, Failure> {
        Meaning::of(&directives(text), None)
    }

    fn value(meaning: &Meaning, key: &str) -> Option<String> {
        let found = meaning.values.iter().rfind(|(of, ..)| *of == key);
        found.map(|(_, texts, _)| texts.join(" "))
    }

    #[test]
    fn appendfsync_counts_only_with_appendonly_yes() {
        let level = |text: &str| value(&meaning(text).unwrap(), "durability");
        assert_eq!(level("appendonly no\nappendfsync everysec"), None);
        assert_eq!(level("appendfsync no"), None);
        assert_eq!(level("appendonly yes"), None);
        let periodic = Some("periodic".to_owned());
        assert_eq!(level("appendonly yes\nappendfsync everysec"), periodic);
        assert_eq!(level("appendfsync everysec\nappendonly yes"), periodic);
        assert_eq!(
            level("appendonly yes\nappendfsync everysec\nappendonly no"),
            None
        );
        // Flags come after the file.
        let file = meaning("appendonly yes").unwrap();
        let flags = Meaning::of(&directives("appendfsync no"), Some(&file)).unwrap();
        assert_eq!(value(&flags, "durability").as_deref(), Some("none"));
        let flags = Meaning::of(&directives("port 7"), Some(&file)).unwrap();
        assert_eq!(value(&flags, "durability"), None);
        let file = meaning("appendonly yes\nappendfsync everysec").unwrap();
        let flags = Meaning::of(&directives("appendonly no"), Some(&file)).unwrap();
        assert_eq!(value(&flags, "durability").as_deref(), Some("durable"));
        assert!(meaning("appendonly yes\nappendfsync x").is_err());
    }

    #[test]
    fn addresses_are_those_of_bind_with_the_port() {
        let listen = |text: &str| value(&meaning(text).unwrap(), "listen");
        assert_eq!(listen("port 7").as_deref(), Some("127.0.0.1:7"));
        assert_eq!(
            listen("bind 127.0.0.1 ::1").as_deref(),
            Some("127.0.0.1:6379 [::1]:6379")
        );
        assert_eq!(listen("bind * -::*\nport 7").as_deref(), Some("0.0.0.0:7"));
        // An address that is not one of this machine, and need not be.
        assert_eq!(
            listen("bind 127.0.0.1 -203.0.113.7").as_deref(),
            Some("127.0.0.1:6379")
        );
        assert_eq!(listen("timeout 3"), None);
        let file = meaning("bind 127.0.0.2\nport 8").unwrap();
        let flags = Meaning::of(&directives("port 7"), Some(&file)).unwrap();
        assert_eq!(value(&flags, "listen").as_deref(), Some("127.0.0.2:7"));
        assert_eq!(listen("bind * -::*\nport 0").as_deref(), Some("off"));
        assert!(meaning("port 65536").is_err() && meaning("port x").is_err());
        let socket = meaning("unixsocket /run/x\nunixsocketperm 770").unwrap();
        assert_eq!(value(&socket, "unix_socket").as_deref(), Some("/run/x"));
        assert_eq!(value(&socket, "unix_socket_mode").as_deref(), Some("770"));
    }

    #[test]
    fn the_rest_are_keys_parameters_and_notes() {
        let found = meaning(
            "maxmemory 64mb\nmaxmemory-policy allkeys-lru\nsave 900 1\nsave 300 10\nhz 20\n\
             daemonize yes\nlogfile /x\ndatabases 16\ntcp-backlog 511\nloglevel notice\n\
             client-output-buffer-limit normal 0 0 0\nenable-debug-command local\n\
             client-output-buffer-limit replica 256mb 64mb 60\n\
             client-output-buffer-limit pubsub 1mb 1mb 60\ntls-port 0\naclfile ''",
        );
        let found = found.unwrap();
        assert_eq!(value(&found, "max_memory").as_deref(), Some("67108864"));
        assert_eq!(value(&found, "log_level").as_deref(), Some("notice"));
        assert_eq!(found.log_file.as_deref(), Some("/x"));
        assert_eq!(found.debug_commands.as_deref(), Some("local"));
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let limits = "client-output-buffer-limit";
        assert_eq!(
            found.parameters,
            [
                own("hz", "20"),
                own(limits, "normal 0 0 0"),
                own(limits, "pubsub 1mb 1mb 60"),
                own("save", "900 1 300 10"),
            ]
        );
        assert_eq!(found.notes.len(), 3, "{:?}", found.notes);
        assert_eq!(found.without_effect, ["databases", "tcp-backlog"]);
        let taken_back = meaning("maxmemory 64mb\nmaxmemory 0").unwrap();
        assert_eq!(value(&taken_back, "max_memory").as_deref(), Some(""));
        assert_eq!(
            meaning("save 9 1\nsave ''").unwrap().parameters,
            [own("save", "")]
        );
        for wrong in [
            "nosuch 1",
            "hz",
            "hz 1 2",
            "save 1 2 3",
            "maxmemory x",
            "appendonly maybe",
            "rename-command FLUSHALL x",
            "cluster-enabled yes",
            "tls-port 6380",
            "client-output-buffer-limit pubsub 1",
        ] {
            assert!(meaning(wrong).is_err(), "{wrong}");
        }
    }
}
