//! What the command table knows about a command.

use pando_resp::{Arguments, parse_integer};

use crate::context::{Context, Run};
use crate::data::keyspace::ValueType;

/// Properties of a command, as COMMAND shows them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// Changes data.
    pub(crate) const WRITE: Self = Self(1);
    /// Reads data.
    pub(crate) const READONLY: Self = Self(2);
    /// Refused while the disk is full.
    pub(crate) const DENYOOM: Self = Self(4);
    /// Administrative command.
    pub(crate) const ADMIN: Self = Self(8);
    /// Takes constant or logarithmic time.
    pub(crate) const FAST: Self = Self(16);
    /// Runs while the engine is opening.
    pub(crate) const LOADING: Self = Self(32);
    /// Runs before authentication.
    pub(crate) const NO_AUTH: Self = Self(64);
    /// Not allowed between MULTI and EXEC.
    pub(crate) const NO_MULTI: Self = Self(128);
    /// Not allowed in scripts.
    pub(crate) const NOSCRIPT: Self = Self(256);
    /// May wait for other clients or for the store.
    pub(crate) const BLOCKING: Self = Self(512);

    /// Not allowed between PANDO BEGIN and COMMIT.
    pub(crate) const NO_INTERACTIVE: Self = Self(1024);
    /// Allowed in a transaction of PANDO BEGIN that was rolled back.
    pub(crate) const AFTER_LOSS: Self = Self(2048);
    /// About channels and their messages.
    pub(crate) const PUBSUB: Self = Self(4096);
    /// Allowed to a subscriber with RESP2.
    pub(crate) const BESIDE_MESSAGES: Self = Self(8192);
    /// Its arguments need not have a key, though they may.
    pub(crate) const NO_MANDATORY_KEYS: Self = Self(16_384);

    /// Removes elements: what it puts is smaller than what it removes, so it works on a full disk.
    pub(crate) const REMOVES: Self = Self(1 << 21);
    /// May show all of a collection: it runs together with others only if that is packed.
    pub(crate) const SHOWS_ALL: Self = Self(1 << 22);

    // What follows is shown to clients, and nothing here goes by it.
    /// Its keys have places that only the command itself knows.
    pub(crate) const MOVABLE_KEYS: Self = Self(1 << 15);
    /// Redis runs it on a replica that has lost its master.
    pub(crate) const STALE: Self = Self(1 << 16);
    /// Redis runs it while a script holds it up, which none does here.
    pub(crate) const ALLOW_BUSY: Self = Self(1 << 17);
    /// MONITOR shows it at another time than other commands.
    pub(crate) const SKIP_MONITOR: Self = Self(1 << 18);
    /// The slow log does not have it.
    pub(crate) const SKIP_SLOWLOG: Self = Self(1 << 19);
    /// Redis does not run it on a replica that loads beside serving.
    pub(crate) const NO_ASYNC_LOADING: Self = Self(1 << 20);

    /// Returns the flags of both.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns true if all flags of `other` are set.
    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the names that COMMAND shows.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(Flags, &str); 18] = [
            (Flags::WRITE, "write"),
            (Flags::READONLY, "readonly"),
            (Flags::DENYOOM, "denyoom"),
            (Flags::ADMIN, "admin"),
            (Flags::PUBSUB, "pubsub"),
            (Flags::NOSCRIPT, "noscript"),
            (Flags::BLOCKING, "blocking"),
            (Flags::LOADING, "loading"),
            (Flags::STALE, "stale"),
            (Flags::SKIP_MONITOR, "skip_monitor"),
            (Flags::SKIP_SLOWLOG, "skip_slowlog"),
            (Flags::FAST, "fast"),
            (Flags::NO_AUTH, "no_auth"),
            (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
            (Flags::NO_ASYNC_LOADING, "no_async_loading"),
            (Flags::NO_MULTI, "no_multi"),
            (Flags::MOVABLE_KEYS, "movablekeys"),
            (Flags::ALLOW_BUSY, "allow_busy"),
        ];
        NAMES
            .into_iter()
            .filter(move |(flag, _)| self.has(*flag))
            .map(|(_, name)| name)
    }
}

/// Which arguments are keys: the first, the last (negative: counted from the end), and the step.
/// All 0: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    /// Index of the first; the name of the command is argument 0.
    pub(crate) first: i32,
    /// Index of the last; -1 is the last argument.
    pub(crate) last: i32,
    /// 1 if all arguments between them are keys, 2 if every second one is.
    pub(crate) step: i32,
    /// Index of an argument that says how many keys come behind it, besides those; 0: there is
    /// none; -1: the first half of what is behind the word STREAMS are keys.
    pub(crate) count_at: i32,
}

impl Keys {
    pub(crate) const NONE: Self = Self::new(0, 0, 0);
    /// The first argument.
    pub(crate) const ONE: Self = Self::new(1, 1, 1);
    /// The second argument.
    pub(crate) const SECOND: Self = Self::new(2, 2, 1);
    /// The first two arguments.
    pub(crate) const TWO: Self = Self::new(1, 2, 1);
    /// All arguments but the last.
    pub(crate) const BUT_LAST: Self = Self::new(1, -2, 1);
    /// All arguments but the first.
    pub(crate) const FROM_SECOND: Self = Self::new(2, -1, 1);
    /// All arguments.
    pub(crate) const ALL: Self = Self::new(1, -1, 1);
    /// The keys of arguments that are pairs of key and value.
    pub(crate) const PAIRS: Self = Self::new(1, -1, 2);
    /// Also used for arguments that are no keys.
    pub(crate) const THIRD: Self = Self::new(3, 3, 1);
    /// Those of streams to be read: the first half of what is behind STREAMS.
    pub(crate) const OF_STREAMS: Self = Self::NONE.and_counted(-1);
    /// The values of such pairs.
    pub(crate) const OF_PAIRS: Self = Self::new(2, -1, 2);

    const fn new(first: i32, last: i32, step: i32) -> Self {
        Self {
            first,
            last,
            step,
            count_at: 0,
        }
    }

    /// Returns these keys, and those behind argument `at`, which says how many they are.
    pub(crate) const fn and_counted(self, at: i32) -> Self {
        Self {
            count_at: at,
            ..self
        }
    }

    /// Returns the range of the keys that are counted by one of `arguments`; of those that are
    /// there.
    fn counted(self, arguments: Arguments<'_>) -> std::ops::Range<usize> {
        if self.count_at < 0 {
            let all: Vec<&[u8]> = arguments.from(0).collect();
            return behind_streams(&all).unwrap_or(0..0);
        }
        let at = usize::try_from(self.count_at).unwrap_or(0);
        if at == 0 || at >= arguments.len() {
            return 0..0;
        }
        let count = parse_integer(arguments.at(at)).and_then(|count| usize::try_from(count).ok());
        let end = count.unwrap_or(0).saturating_add(at + 1);
        at + 1..end.min(arguments.len())
    }

    /// Returns true if argument `index` of `count` is a key.
    pub(crate) fn has(self, index: usize, count: usize) -> bool {
        let range = self.range(count);
        let step = usize::try_from(self.step).unwrap_or(1).max(1);
        range.contains(&index) && (index - range.start).is_multiple_of(step)
    }

    /// Returns the range of the keys among `count` arguments.
    #[inline]
    fn range(self, count: usize) -> std::ops::Range<usize> {
        let first = usize::try_from(self.first).unwrap_or(0);
        let end = match usize::try_from(self.last) {
            Ok(last) => last + 1,
            Err(_) => count.saturating_sub(self.last.unsigned_abs() as usize - 1),
        };
        if first == 0 {
            0..0
        } else {
            first..end.min(count)
        }
    }

    /// Iterates over the keys among `arguments`.
    pub(crate) fn of<'a>(self, arguments: Arguments<'a>) -> impl Iterator<Item = &'a [u8]> {
        let step = usize::try_from(self.step).unwrap_or(1).max(1);
        self.range(arguments.len())
            .step_by(step)
            .chain(self.counted(arguments))
            .map(move |index| arguments.at(index))
    }
}

/// Returns the places of the keys behind the word STREAMS, which may also be the name of a group or
/// consumer.
pub(crate) fn behind_streams(arguments: &[&[u8]]) -> Option<std::ops::Range<usize>> {
    let mut at = 1;
    loop {
        let word = arguments.get(at)?.to_ascii_lowercase();
        at += match &word[..] {
            b"block" | b"count" => 2,
            b"group" => 3,
            b"noack" => 1,
            b"streams" => break,
            _ => return None,
        };
    }
    let (start, behind) = (at + 1, arguments.len() - at - 1);
    behind.is_multiple_of(2).then(|| start..start + behind / 2)
}

/// Family of a command, as the documentation of Redis groups them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Connection,
    Generic,
    String,
    Hash,
    List,
    Set,
    SortedSet,
    Bitmap,
    HyperLogLog,
    Geo,
    Stream,
    Server,
    Transactions,
    PubSub,
    Cluster,
    #[cfg(feature = "scripts")]
    Scripting,
}

impl Group {
    /// Returns its name, as COMMAND DOCS shows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Generic => "generic",
            Self::String => "string",
            Self::Hash => "hash",
            Self::List => "list",
            Self::Set => "set",
            Self::SortedSet => "sorted-set",
            Self::Bitmap => "bitmap",
            Self::HyperLogLog => "hyperloglog",
            Self::Geo => "geo",
            Self::Stream => "stream",
            Self::Server => "server",
            Self::Transactions => "transactions",
            Self::PubSub => "pubsub",
            Self::Cluster => "cluster",
            #[cfg(feature = "scripts")]
            Self::Scripting => "scripting",
        }
    }
}

/// How a command is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Accesses no data.
    Session,
    /// Reads the current state, without a transaction.
    Read,
    /// Reads several keys as of one moment.
    ReadMany,
    /// Reads all keys as of one moment: at a snapshot.
    ReadAll,
    /// Reads or writes in a transaction that is then committed.
    Transaction,
    /// Reads through a transaction; commits only the removal of expired keys.
    Watch,
    /// Runs the transaction of MULTI.
    Exec,
    /// Commits the transaction of PANDO BEGIN.
    Commit,
}

/// Which arguments of a command may be secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Secrets {
    None,
    /// All behind so many, the name of the command included.
    Behind(usize),
    /// User and password of HELLO.
    OfHello,
    /// Values of parameters of CONFIG SET, if their names say so.
    OfParameters,
}

/// A command or a subcommand.
pub(crate) struct Command {
    /// In lower case.
    pub(crate) name: &'static str,
    /// Number of arguments, the name included; negative: the minimum.
    pub(crate) arity: i32,
    pub(crate) flags: Flags,
    /// The arguments that are keys.
    pub(crate) keys: Keys,
    /// The arguments that may be longer than what is held in memory.
    pub(crate) large: Keys,
    /// Where COMMAND DOCS lists it.
    pub(crate) group: Group,
    pub(crate) kind: Kind,
    /// The type that the values of its keys must have: it is refused if one has another type.
    /// `None`: it takes all types, or looks itself.
    pub(crate) value_type: Option<ValueType>,
    /// Version of Redis that had it first.
    pub(crate) since: &'static str,
    /// As COMMAND DOCS shows it.
    pub(crate) complexity: &'static str,
    /// One sentence for COMMAND DOCS.
    pub(crate) summary: &'static str,
    /// Which of its arguments nobody else may see.
    pub(crate) secrets: Secrets,
    /// Runs it from its beginning; called again after an interruption or a conflict.
    pub(crate) run: fn(&mut Context<'_>) -> Run,
    /// Subcommands of a container, whose own `run` is never called.
    pub(crate) subcommands: &'static [Command],
}

impl Command {
    /// Returns a session command without keys: the base of struct updates.
    pub(crate) const fn new(
        name: &'static str,
        arity: i32,
        run: fn(&mut Context<'_>) -> Run,
    ) -> Self {
        Self {
            name,
            arity,
            flags: Flags::NONE,
            keys: Keys::NONE,
            large: Keys::NONE,
            group: Group::Server,
            kind: Kind::Session,
            value_type: None,
            since: "1.0.0",
            complexity: "O(1)",
            summary: "",
            secrets: Secrets::None,
            run,
            subcommands: &[],
        }
    }

    /// Returns a command that reads the string at its first argument.
    pub(crate) const fn read(
        name: &'static str,
        arity: i32,
        run: fn(&mut Context<'_>) -> Run,
    ) -> Self {
        Self {
            flags: Flags::READONLY.and(Flags::FAST),
            keys: Keys::ONE,
            group: Group::String,
            kind: Kind::Read,
            value_type: Some(ValueType::String),
            ..Self::new(name, arity, run)
        }
    }

    /// Returns a command that writes the string at its first argument.
    pub(crate) const fn write(
        name: &'static str,
        arity: i32,
        run: fn(&mut Context<'_>) -> Run,
    ) -> Self {
        Self {
            flags: Flags::WRITE.and(Flags::DENYOOM).and(Flags::FAST),
            kind: Kind::Transaction,
            ..Self::read(name, arity, run)
        }
    }

    /// Returns true if it writes values of keys, and nothing else: the same commit may serve
    /// several. Scripts, which are not called by scripts, may do anything. XREADGROUP is one of
    /// them, and begins again by itself if it would have to wait; its like take one element of a
    /// queue, and mostly find nothing.
    #[inline]
    pub(crate) fn writes_values(&self) -> bool {
        self.kind == Kind::Transaction
            && self.keys != Keys::NONE
            && (!self.flags.has(Flags::BLOCKING) || self.keys == Keys::OF_STREAMS)
            && !self.flags.has(Flags::NOSCRIPT)
    }

    /// Returns true if it may share a commit with others of a pipeline: it writes values, or is a
    /// script, which begins again by itself if it calls what may not ([`Command::is_of_keys`]).
    #[inline]
    pub(crate) fn shares_commits(&self) -> bool {
        let has_keys = self.kind == Kind::Transaction && self.keys != Keys::NONE;
        self.writes_values() || has_keys && self.is_script()
    }

    /// Returns which argument is the key of the row that it begins with, to change or to delete it,
    /// when it is called with so many; None if it has several keys, unless it is a script.
    #[inline]
    pub(crate) fn first_row(&self, arguments: usize) -> Option<usize> {
        if self.kind != Kind::Transaction {
            return None;
        }
        match self.keys {
            Keys::ONE => Some(1),
            Keys::ALL if arguments == 2 => Some(1),
            // If it is one: a script may have no keys, and arguments.
            _ if self.is_script() && arguments > 3 => Some(3),
            _ => None,
        }
    }

    /// Returns true if, called with so many arguments, it writes the row of its first argument
    /// without reading it, unless there may be something else that belongs to the old one.
    #[inline]
    pub(crate) fn replaces_its_row(&self, arguments: usize) -> bool {
        arguments == 3 && self.name == "set"
    }

    /// Returns true if it may show all of a collection.
    #[inline]
    pub(crate) fn shows_all(&self) -> bool {
        self.flags.has(Flags::SHOWS_ALL)
    }

    /// Returns true if it may run together with others of a pipeline that read: it reads no more
    /// than the value of one key, and takes little time, at least if that is packed. EXISTS may if
    /// it has one key.
    #[inline]
    pub(crate) fn shares_reads(&self) -> bool {
        if self.name == "exists" {
            return true;
        }
        let is_known = match self.value_type {
            Some(_) => self.flags.has(Flags::FAST) || self.shows_all() || self.name == "lindex",
            None => matches!(self.name, "ttl" | "pttl" | "type"),
        };
        self.kind == Kind::Read && self.keys == Keys::ONE && is_known
    }

    /// Returns true if it may run together with others of a pipeline that need no data: it never
    /// waits, and takes little time.
    #[inline]
    pub(crate) fn needs_no_data(&self) -> bool {
        matches!(self.name, "ping" | "echo" | "publish" | "spublish")
    }

    /// Returns true if it reads and writes its keys, and nothing else: neither whole databases,
    /// which the commands before it in a pipeline have changed, nor what is changed beside a
    /// transaction.
    #[cfg(feature = "scripts")]
    pub(crate) fn is_of_keys(&self) -> bool {
        self.keys != Keys::NONE
            && matches!(self.kind, Kind::Read | Kind::ReadMany | Kind::Transaction)
    }

    /// Returns true if it may change data, or publish. Scripts may; those of EVAL_RO may not.
    pub(crate) fn may_write(&self) -> bool {
        let may = ["publish", "spublish", "pfcount", "eval", "evalsha", "fcall"];
        self.flags.has(Flags::WRITE) || may.contains(&self.name)
    }

    /// Returns true if clients that track keys hear of those that it reads. A script is not such a
    /// command, but those that it calls may be.
    #[inline]
    pub(crate) fn is_tracked(&self) -> bool {
        self.flags.has(Flags::READONLY) && self.keys != Keys::NONE && !self.is_script()
    }

    /// Returns true if it runs other commands.
    pub(crate) fn is_script(&self) -> bool {
        #[cfg(feature = "scripts")]
        return self.group == Group::Scripting;
        #[cfg(not(feature = "scripts"))]
        false
    }

    /// Returns true if it can be called with `count` arguments, the name included.
    #[inline]
    pub(crate) fn takes(&self, count: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        count == least || self.arity < 0 && count > least
    }

    /// Returns the subcommand called `name`, and its place.
    pub(crate) fn subcommand(&self, name: &[u8]) -> Option<(usize, &'static Self)> {
        let mut subcommands = self.subcommands.iter().enumerate();
        subcommands.find(|(_, sub)| sub.name.as_bytes().eq_ignore_ascii_case(name))
    }
}
