//! `redis.call`: a command of a script, nested in it as the commands of EXEC are.

use std::hash::{Hash as _, Hasher as _};
use std::rc::Rc;

use pando_lua::Stack;
use pando_resp::{Arguments, Span, Version};
use pando_stats::Ticker;
use pando_sync::time::{Duration, now};
use pandodb::nonblocking::{BatchPlace, Pending};
use rapidhash::quality::RapidHasher;

use super::conversion::{Reply, append, push_reply};
use crate::context::overlay::Overlay;
use crate::context::progress::{InnerCall, RunPlace};
use crate::context::{Command, Context, Flags, Interrupted};
use crate::figures::error_codes::code_of;
use crate::lua::{Asked, Buffers, Calls, Ending, Guard};
use crate::times::nanoseconds;

/// Length of a reply for which room is made in the state of Lua: its collector does not look at how
/// much memory is left.
const LONG_REPLY_BYTES: usize = 64 * 1024;
/// Time of a call behind which the script's limits are looked at. The hook looks after a thousand
/// instructions, and two hundred calls may have no more.
const LONG_CALL: Duration = Duration::from_micros(20);
/// Number of calls of one run that the statistics of commands count.
const CALLS_COUNTED: usize = 10_000;

/// What a call is answered with.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Refused(&'static str),
    /// The command may be called.
    Allowed,
    /// The clock of the run.
    Time,
    /// The command has replied, in this version, behind the beginning of the run's own reply.
    Reply(Version),
}

/// What the calls of one run of a script share.
pub(super) struct Caller<'c, 'a> {
    pub(super) context: &'c mut Context<'a>,
    /// The keys that an EXEC around it, or the script itself, has changed.
    pub(super) overlay: &'c mut Overlay,
    pub(super) read_only: bool,
    /// What bounds the run.
    guard: Rc<Guard>,
    /// Number of commands that the run has called.
    calls: u64,
    /// Number of calls of scripts before this one whose figures are kept.
    calls_before: usize,
    /// Why the run has to end.
    pub(super) interrupted: Option<Interrupted>,
    /// [`pandodb::nonblocking::ValidatedBatch::reads_repeated`] when the run began.
    repeated_before: u64,
    /// Where the reply of the script begins; until then, the reply of what it has called.
    out_start: usize,
    answer: Answer,
    /// The reply of the script is too long.
    pub(super) is_too_long: bool,
    /// It has called a command that may not share a commit.
    pub(super) needs_own_commit: bool,
    /// The last call took longer than [`LONG_CALL`].
    was_long: bool,
    /// The arguments of a call.
    pub(super) buffers: Buffers,
}

impl<'c, 'a> Caller<'c, 'a> {
    pub(super) fn new(
        context: &'c mut Context<'a>,
        overlay: &'c mut Overlay,
        (read_only, guard): (bool, Rc<Guard>),
        buffers: Buffers,
    ) -> Self {
        let batch = context.data().batch.as_deref();
        let repeated_before = batch.map_or(0, |batch| batch.reads_repeated());
        let out_start = context.out.len();
        let calls_before = context.progress.calls.len();
        Self {
            context,
            overlay,
            read_only,
            guard,
            repeated_before,
            calls: 0,
            calls_before,
            interrupted: None,
            out_start,
            answer: Answer::Allowed,
            is_too_long: false,
            needs_own_commit: false,
            was_long: false,
            buffers,
        }
    }

    /// Answers a call; `None`: the run has to end, and `interrupted` says why.
    fn answer(&mut self, asked: Asked, arguments: &Stack<'_>) -> Option<Answer> {
        let (bytes, spans) = &mut self.buffers;
        bytes.clear();
        spans.clear();
        let most = self.context.engine().request_bytes_max;
        for place in 1..=arguments.top() {
            let start = bytes.len();
            if let Err(text) = append(bytes, arguments.view(place), most) {
                return Some(Answer::Refused(text));
            }
            spans.push(Span::new(start, bytes.len()));
        }
        if spans.is_empty() {
            let text = "ERR Please specify at least one argument for this redis lib call";
            return Some(Answer::Refused(text));
        }
        let (bytes, spans) = (std::mem::take(bytes), std::mem::take(spans));
        let answer = self.command(asked, Arguments::new(&bytes, &spans));
        self.buffers = (bytes, spans);
        answer
    }

    fn command(&mut self, asked: Asked, arguments: Arguments<'_>) -> Option<Answer> {
        let found = self.context.commands.find(arguments.at(0));
        let resolved = found.map(|(index, _)| self.context.commands.resolve(index, arguments));
        if asked.only_checks {
            return Some(match resolved {
                Some(Ok(_)) => Answer::Allowed,
                _ => Answer::Refused("ERR Invalid command passed to redis.acl_check_cmd()"),
            });
        }
        let (id, command) = match resolved {
            Some(Ok(resolved)) => resolved,
            Some(Err((Some(id), _))) => {
                let text = "ERR Wrong number of args calling Redis command from script";
                return Some(self.refused(Some(id), text));
            }
            // Neither the command nor the subcommand is known.
            _ => {
                let text = "ERR Unknown Redis command called from script";
                return Some(self.refused(None, text));
            }
        };
        if let Some(text) = self.refusal(command) {
            return Some(self.refused(Some(id), text));
        }
        self.calls += 1;
        if command.name == "time" {
            if self.context.shared.channels.has_monitors() {
                let overlay = &mut *self.overlay;
                let mut nested = self.context.nested(command, arguments, &[], 0, overlay);
                nested.show(true);
            }
            return Some(Answer::Time);
        }
        // What changes whole databases, or something beside the transaction, has to see all that
        // was before it, and must not be undone.
        if !command.is_of_keys() {
            self.needs_own_commit = true;
            if self.context.is_together {
                self.interrupted = Some(Interrupted::Yield);
                return None;
            }
        }
        self.run(asked.version, (id, command), arguments)
    }

    /// Counts a call that is refused with an error.
    #[cold]
    fn refused(&mut self, id: Option<usize>, text: &'static str) -> Answer {
        self.note(InnerCall {
            id,
            error: text.split(' ').next().map(|code| code.as_bytes().to_vec()),
            is_refused: true,
            ..InnerCall::default()
        });
        Answer::Refused(text)
    }

    /// Keeps what the figures of commands are to have of a call.
    fn note(&mut self, call: InnerCall) {
        let calls = &mut self.context.progress.calls;
        if calls.len() < CALLS_COUNTED {
            calls.push(call);
        }
    }

    /// The script has ended with the error of one of its calls, which has the code `code` and is
    /// not to be counted twice.
    pub(super) fn pass_on(&mut self, code: &[u8]) {
        let calls = self.context.progress.calls.get_mut(self.calls_before..);
        let calls = calls.unwrap_or_default();
        let is_same = |call: &InnerCall| call.error.as_deref() == Some(code);
        // The script may have changed its text.
        let place = (calls.iter().rposition(is_same))
            .or_else(|| calls.iter().rposition(|call| call.error.is_some()));
        if let Some(place) = place {
            calls[place].is_passed_on = true;
        }
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
    fn push_time(&mut self, stack: &mut Stack<'_>) {
        let scripts = self.context.progress.scripts.as_ref();
        let moment = scripts.and_then(|of| of.moment).unwrap_or_default();
        stack.push_table(2, 0);
        let table = stack.top();
        let mut digits = itoa::Buffer::new();
        stack.push_bytes(digits.format(moment.as_secs()).as_bytes());
        stack.set_element(table, 1);
        stack.push_bytes(digits.format(moment.subsec_micros()).as_bytes());
        stack.set_element(table, 2);
    }

    /// Names the command in what it keeps between runs: its place, and what it is, since another
    /// run may call something else at this place.
    fn place(&self, arguments: Arguments<'_>) -> usize {
        // Not seeded: it is the same on the thread that the command may go to.
        let mut hasher = RapidHasher::default_const();
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
        let guard = &self.guard;
        // The time that passes here is none of the script's, so it is not over here either.
        let gives_up = || guard.reached().is_some_and(|of| of != Ending::TimeOver);
        let is_awake = patience.wait_for(pending, &gives_up);
        let time = now().duration_since(began);
        guard.add_wait(time);
        self.context.progress.go_on_from(place);
        match is_awake? {
            true => Ok(()),
            // The next run finds out why.
            false => Err(Interrupted::Yield),
        }
    }

    fn run(
        &mut self,
        version: Version,
        (id, command): (usize, &'static Command),
        arguments: Arguments<'_>,
    ) -> Option<Answer> {
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
            return None;
        }
        if self.has_too_much() {
            // The commands before it have a part of that.
            if self.context.is_together {
                self.interrupted = Some(Interrupted::Yield);
                return None;
            }
            let text = "ERR the script was ended, and has changed nothing: what it reads, writes \
                        and publishes takes more memory than a request may";
            self.interrupted = Some(Interrupted::Ended(text.to_owned()));
            return None;
        }
        let reply = &self.context.out[start..];
        let error = (reply.first() == Some(&b'-')).then(|| code_of(reply).to_vec());
        let time = now().duration_since(clock);
        self.was_long = time > LONG_CALL;
        self.note(InnerCall {
            id: Some(id),
            ns: nanoseconds(time),
            error,
            ..InnerCall::default()
        });
        Some(Answer::Reply(version))
    }
}

impl Calls for Caller<'_, '_> {
    fn call(&mut self, asked: Asked, arguments: &Stack<'_>) -> bool {
        // What an error of Lua has left of an earlier reply, for example.
        self.context.out.truncate(self.out_start);
        self.was_long = false;
        match self.answer(asked, arguments) {
            Some(answer) => self.answer = answer,
            None => return false,
        }
        true
    }

    fn was_long(&self) -> bool {
        self.was_long
    }

    fn reply(&mut self, stack: &mut Stack<'_>) -> bool {
        match self.answer {
            Answer::Refused(text) => {
                stack.push_bytes(text.as_bytes());
                return false;
            }
            Answer::Allowed => stack.push_boolean(true),
            Answer::Time => self.push_time(stack),
            Answer::Reply(version) => {
                let most = self.context.engine().script_bytes_max;
                let reply = &self.context.out[self.out_start..];
                let bytes = reply.len();
                if bytes >= LONG_REPLY_BYTES && stack.used_memory() + bytes > most / 2 {
                    stack.collect();
                }
                let is_value = push_reply(stack, reply, version);
                self.context.out.truncate(self.out_start);
                return is_value;
            }
        }
        true
    }

    fn returned(&mut self, chosen: Version, stack: &mut Stack<'_>) {
        self.context.out.truncate(self.out_start);
        let mut reply = Reply {
            version: self.context.session.version,
            chosen,
            out_max: self.context.reply_start + self.context.engine().reply_bytes_max,
            out: self.context.out,
            elements: 0,
            passes_on: false,
            inner_errors: Vec::new(),
        };
        let written = reply.write(stack, 1, 0);
        self.is_too_long = written.is_err() || reply.is_too_long();
        let (passes_on, inner_errors) = (reply.passes_on, reply.inner_errors);
        if passes_on {
            let code = code_of(&self.context.out[self.out_start..]).to_vec();
            self.pass_on(&code);
        }
        for error in inner_errors.into_iter().take(CALLS_COUNTED) {
            self.note(InnerCall {
                error: Some(error),
                is_refused: true,
                ..InnerCall::default()
            });
        }
    }
}
