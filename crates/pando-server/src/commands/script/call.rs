//! `redis.call`: a command of a script, nested in it as the commands of EXEC are.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use mlua::{Lua, MultiValue, Value};
use pando_resp::{Arguments, Span, Version};
use pando_stats::Ticker;
use pando_sync::time::now;
use pandodb::nonblocking::{BatchPlace, Pending};

use super::conversion::{Converted, append, converted};
use crate::context::overlay::Overlay;
use crate::context::progress::{InnerCall, RunPlace};
use crate::context::{Command, Context, Flags, Interrupted};
use crate::figures::error_codes::code_of;
use crate::lua::{Asked, Ending, Limits, Native, Unbounded, refused, returned};
use crate::times::nanoseconds;

/// Length of a reply for which room is made in the state of Lua: its collector does not look at how
/// much memory is left.
const LONG_REPLY_BYTES: usize = 64 * 1024;
/// Bytes that what a byte of a reply stands for takes in Lua, at most: an empty array, four bytes,
/// is a table.
const VALUE_BYTES: usize = 16;
/// What comes before a status, of which the sandbox makes a table.
const STATUS: i64 = 1;
/// Number of calls of one run that the statistics of commands count.
const CALLS_COUNTED: usize = 10_000;

/// What the calls of one run of a script share.
pub(super) struct Caller<'c, 'a> {
    pub(super) context: &'c mut Context<'a>,
    /// The keys that an EXEC around it, or the script itself, has changed.
    pub(super) overlay: &'c mut Overlay,
    pub(super) read_only: bool,
    /// What the run may take.
    limits: Limits,
    /// Number of commands that the run has called.
    pub(super) calls: u64,
    /// Why the run has to end.
    pub(super) interrupted: Option<Interrupted>,
    /// [`pandodb::nonblocking::ValidatedBatch::reads_repeated`] when the run began.
    repeated_before: u64,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl<'c, 'a> Caller<'c, 'a> {
    pub(super) fn new(
        context: &'c mut Context<'a>,
        overlay: &'c mut Overlay,
        (read_only, limits): (bool, Limits),
    ) -> Self {
        let batch = context.data().batch.as_deref();
        let repeated_before = batch.map_or(0, |batch| batch.reads_repeated());
        Self {
            context,
            overlay,
            read_only,
            limits,
            repeated_before,
            calls: 0,
            interrupted: None,
            bytes: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// Answers a script; `None`: its run has to end, and `interrupted` says why.
    pub(super) fn answer(
        &mut self,
        lua: &Lua,
        asked: Asked,
        arguments: &MultiValue,
    ) -> mlua::Result<Option<MultiValue>> {
        let (bytes, spans) = (&mut self.bytes, &mut self.spans);
        bytes.clear();
        spans.clear();
        let most = self.context.engine().request_bytes_max;
        for argument in arguments {
            let start = bytes.len();
            if let Err(text) = append(bytes, argument, most) {
                return refused(lua, text).map(Some);
            }
            spans.push(Span::new(start, bytes.len()));
        }
        if spans.is_empty() {
            let text = "ERR Please specify at least one argument for this redis lib call";
            return refused(lua, text).map(Some);
        }
        let (bytes, spans) = (std::mem::take(bytes), std::mem::take(spans));
        let answer = self.command(lua, asked, Arguments::new(&bytes, &spans));
        (self.bytes, self.spans) = (bytes, spans);
        answer
    }

    fn command(
        &mut self,
        lua: &Lua,
        asked: Asked,
        arguments: Arguments<'_>,
    ) -> mlua::Result<Option<MultiValue>> {
        let found = self.context.commands.find(arguments.at(0));
        let resolved = found.map(|(index, _)| self.context.commands.resolve(index, arguments));
        if asked.only_checks {
            let native = match resolved {
                Some(Ok(_)) => returned(lua, true),
                _ => refused(lua, "ERR Invalid command passed to redis.acl_check_cmd()"),
            };
            return native.map(Some);
        }
        let (id, command) = match resolved {
            Some(Ok(resolved)) => resolved,
            Some(Err((Some(_), _))) => {
                let text = "ERR Wrong number of args calling Redis command from script";
                return refused(lua, text).map(Some);
            }
            // Neither the command nor the subcommand is known.
            _ => return refused(lua, "ERR Unknown Redis command called from script").map(Some),
        };
        if let Some(text) = self.refusal(command) {
            return refused(lua, text).map(Some);
        }
        self.calls += 1;
        if command.name == "time" {
            if self.context.shared.channels.has_monitors() {
                let overlay = &mut *self.overlay;
                let mut nested = self.context.nested(command, arguments, &[], 0, overlay);
                nested.show(true);
            }
            return self.time(lua).map(Some);
        }
        self.run(lua, asked.version, (id, command), arguments)
    }

    /// Returns the error of a command that a script may not call.
    fn refusal(&self, command: &Command) -> Option<&'static str> {
        // What is not allowed in MULTI changes the connection.
        if command.flags.has(Flags::NOSCRIPT) || command.flags.has(Flags::NO_MULTI) {
            return Some("ERR This Redis command is not allowed from script");
        }
        if self.read_only && command.may_write() {
            return Some("ERR Write commands are not allowed from read-only scripts.");
        }
        let interactive = self.context.session.interactive.as_ref()?;
        if command.flags.has(Flags::NO_INTERACTIVE) {
            return Some("ERR Command not allowed inside a transaction");
        }
        (interactive.is_read_only && command.flags.has(Flags::WRITE))
            .then_some("ERR this transaction is READONLY")
    }

    /// Returns true if the run has made the server keep more than one transaction may.
    fn has_too_much(&mut self) -> bool {
        let most = self.context.engine().request_bytes_max;
        let batch = self.context.data().batch.as_deref();
        let kept = batch.map_or(0, |batch| batch.written_bytes() + batch.read_bytes());
        let subscriptions = self.context.session.subscriptions.as_ref();
        let published = subscriptions.map_or(0, |of| of.message_bytes());
        let told = self.context.progress.events.memory();
        kept + published + told + self.context.progress.kept_bytes() > most
    }

    /// TIME is the same in all runs of a script.
    fn time(&mut self, lua: &Lua) -> Native {
        let scripts = self.context.progress.scripts.as_ref();
        let moment = scripts.and_then(|of| of.moment).unwrap_or_default();
        let table = lua.create_table()?;
        table.raw_push(moment.as_secs().to_string())?;
        table.raw_push(moment.subsec_micros().to_string())?;
        returned(lua, table)
    }

    /// Names the command in what it keeps between runs: its place, and what it is, since another
    /// run may call something else at this place.
    fn place(&self, arguments: Arguments<'_>) -> usize {
        let mut hasher = DefaultHasher::new();
        (self.context.exec_index, self.calls).hash(&mut hasher);
        for argument in arguments.from(0) {
            argument.hash(&mut hasher);
        }
        usize::try_from(hasher.finish()).unwrap_or(usize::MAX)
    }

    /// Returns what the run has reached, if it may wait here: on a script thread.
    fn reached(&mut self) -> Option<(RunPlace, BatchPlace)> {
        let data = self.context.data();
        data.patience.as_ref()?;
        let batch = data.batch.as_deref_mut()?;
        let place = batch.place();
        Some((self.context.progress.place(), place))
    }

    /// Waits for what is `pending`, so that the command is repeated, and not the script. An error
    /// ends the run.
    ///
    /// A command that has written something is not repeated alone, since its writes would be there
    /// twice. Nor is one that reads the same again and again, and gets no further: that is for the
    /// executor to find (`Running::count_wait`), which sees the ends of runs only.
    fn wait(
        &mut self,
        pending: Pending,
        reached: &Option<(RunPlace, BatchPlace)>,
    ) -> Result<(), Interrupted> {
        let statistics = &self.context.shared.statistics;
        let data = self.context.data();
        let (Some(batch), Some(patience)) = (data.batch.as_deref_mut(), &mut data.patience) else {
            return Err(Interrupted::Pending(pending));
        };
        let repeated = batch.reads_repeated() != self.repeated_before;
        let goes_on = reached.as_ref().filter(|_| !repeated);
        let Some((place, _)) = goes_on.filter(|(_, place)| batch.go_on_from(*place)) else {
            return Err(Interrupted::Pending(pending));
        };
        statistics.tick(Ticker::CommandsSuspended, 1);
        let began = now();
        let limits = &self.limits;
        // The time that passes here is none of the script's, so it is not over here either.
        let gives_up = || limits.ending().is_some_and(|of| of != Ending::TimeOver);
        let is_awake = patience.wait_for(pending, &gives_up);
        let time = now().duration_since(began);
        limits.waited.set(limits.waited.get() + time);
        self.context.progress.go_on_from(place);
        match is_awake? {
            true => Ok(()),
            // The next run finds out why.
            false => Err(Interrupted::Yield),
        }
    }

    fn run(
        &mut self,
        lua: &Lua,
        version: Version,
        (id, command): (usize, &'static Command),
        arguments: Arguments<'_>,
    ) -> mlua::Result<Option<MultiValue>> {
        let place = self.place(arguments);
        let start = self.context.out.len();
        let own = std::mem::replace(&mut self.context.session.version, version);
        let clock = now();
        self.context.progress.replies_in_memory = true;
        let run = loop {
            let reached = self.reached();
            let mut nested = (self.context).nested(command, arguments, &[], place, self.overlay);
            let run = match nested.run() {
                Ok(()) if nested.data.is_some() => nested.check_reply(),
                run => run,
            };
            match run {
                Err(Interrupted::Pending(pending)) => match self.wait(pending, &reached) {
                    Ok(()) => self.context.out.truncate(start),
                    Err(interrupted) => break Err(interrupted),
                },
                run => break run,
            }
        };
        self.context.session.version = own;
        self.context.progress.replies_in_memory = false;
        if let Err(interrupted) = run {
            self.interrupted = Some(interrupted);
            return Ok(None);
        }
        if self.has_too_much() {
            let text = "ERR the script was ended, and has changed nothing: what it reads, writes \
                        and publishes takes more memory than a request may";
            self.interrupted = Some(Interrupted::Ended(text.to_owned()));
            return Ok(None);
        }
        let reply = &self.context.out[start..];
        let error = (reply.first() == Some(&b'-')).then(|| code_of(reply).to_vec());
        let bytes = reply.len();
        let most = self.context.engine().script_bytes_max;
        if bytes >= LONG_REPLY_BYTES && lua.used_memory() + bytes > most / 2 {
            lua.gc_collect()?;
        }
        // Its values take some times what it has, of which a table takes most.
        let _unbounded = Unbounded::begin(lua, bytes.saturating_mul(VALUE_BYTES));
        let native = match converted(lua, reply, version)? {
            Converted::Value(value) => returned(lua, value),
            Converted::Status(text) => Ok(MultiValue::from_vec(vec![Value::Integer(STATUS), text])),
            Converted::Error(text) => refused(lua, &text),
            Converted::TooDeep => refused(lua, "ERR the reply is nested too deeply for a script"),
        };
        self.context.out.truncate(start);
        let ns = nanoseconds(now().duration_since(clock));
        if self.context.progress.calls.len() < CALLS_COUNTED {
            self.context
                .progress
                .calls
                .push(InnerCall { id, ns, error });
        }
        native.map(Some)
    }
}
