//! The commands of a pipeline run, gathered from the input before any of them runs.

use std::ops::Range;

use pando_resp::{Arguments, Limits, Parsed, Parser, Span};
use pandodb::nonblocking::Foreseen;

use crate::context::foreseen_rows::ForeseenRows;
use crate::context::{Command, CommandIndex, Keys};
use crate::data::keyspace::KeyFolder;

/// Maximum number of bytes of commands in a run, so that what is copied stays in the caches.
const BYTES_MAX: usize = 64 * 1024;
/// Maximum number of arguments of one command in a run: others run meanwhile if it is slow.
const ARGUMENTS_MAX: usize = 128;

/// The kind of the commands in a pipeline run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunKind {
    /// `GET key`.
    Gets,
    /// Commands that read one key, GET among them.
    Reads,
    /// Commands that write values, and scripts.
    Writes,
    /// PUBLISH, PING and their like.
    Keyless,
}

impl RunKind {
    /// Returns true if commands of this kind may be in such a run.
    fn takes(self, of: Self) -> bool {
        self == of || (self, of) == (Self::Reads, Self::Gets)
    }

    /// Returns true if they read keys, and write nothing.
    pub(super) fn reads(self) -> bool {
        matches!(self, Self::Gets | Self::Reads)
    }
}

/// Which commands are taken into a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) scripts: bool,
    /// Those that may show all of a collection.
    pub(super) shows_all: bool,
    /// Their number, at most.
    pub(super) most: usize,
}

/// A command of a pipeline run.
#[derive(Clone, Copy)]
pub(in crate::connection) struct Gathered {
    /// Its number in the index of commands.
    pub(super) id: usize,
    pub(in crate::connection) command: &'static Command,
    /// End of its arguments in `PipelineRun::spans`.
    spans_end: usize,
    /// Its end in the input, relative to the beginning of the first command.
    end: usize,
}

/// The commands of a pipeline run, with the buffers to run them; one per loop.
#[derive(Default)]
pub(crate) struct PipelineRun {
    parser: Parser,
    /// Arguments of all commands, relative to the beginning of the first command.
    spans: Vec<Span>,
    commands: Vec<Gathered>,
    /// Where the error replies begin, with the place of the command.
    pub(super) errors: Vec<(usize, usize)>,
    /// Stored keys of a group, concatenated; `stored_ends` has their ends.
    pub(super) stored: Vec<u8>,
    pub(super) stored_ends: Vec<usize>,
    /// Values of a group; `values` has their ranges.
    pub(super) bytes: Vec<u8>,
    pub(super) values: Vec<Option<Range<usize>>>,
    /// The last group of GETs had a value that does not lie in its leaf: the next ones are read one
    /// by one, where they were foreseen.
    pub(super) meets_long: bool,
    /// The last GETs met a string in pieces: the next ones run as other commands that read.
    pub(super) meets_pieces: bool,
    /// Where such GETs find their rows, and the row of one.
    pub(super) foreseen: Foreseen,
    pub(super) row: Vec<u8>,
    /// Memory for [`super::foresight`].
    pub(super) rows: ForeseenRows,
}

impl PipelineRun {
    /// Gathers commands of one kind from the beginning of `rest`, as far as they are taken. Returns
    /// `None` if there are not at least two.
    pub(super) fn gather(
        &mut self,
        rest: &[u8],
        (index, folder): (&CommandIndex, &KeyFolder),
        limits: &Limits,
        taken: Taken,
    ) -> Option<RunKind> {
        self.spans.clear();
        self.commands.clear();
        self.errors.clear();
        let (mut at, mut kind) = (0, None);
        let mut last = None::<Known<'_>>;
        while self.commands.len() < taken.most {
            let behind = &rest[at..];
            self.parser.clear();
            let Parsed::Command { consumed } = self.parser.peek(behind, limits) else {
                break;
            };
            let Some(name) = self.parser.spans().first().map(|span| span.of(behind)) else {
                break;
            };
            // Pipelines repeat themselves.
            let known = match last.filter(|last| last.name == name) {
                Some(last) => Some(last),
                None => Known::of(name, index),
            };
            let arguments = self.parser.arguments(behind);
            let may_join = |known: &Known<'_>| {
                known.takes(arguments, folder)
                    && (taken.scripts || !known.command.is_script())
                    && (taken.shows_all || !known.command.shows_all())
            };
            let Some(known) = known.filter(may_join) else {
                break;
            };
            let of_run = kind.unwrap_or(known.kind);
            if !of_run.takes(known.kind) || at + consumed > BYTES_MAX {
                break;
            }
            kind = Some(of_run);
            last = Some(known);
            self.spans.extend_from_slice(self.parser.spans());
            at += consumed;
            self.commands.push(Gathered {
                id: known.id,
                command: known.command,
                spans_end: self.spans.len(),
                end: at,
            });
        }
        kind.filter(|_| self.commands.len() > 1)
    }

    /// Leaves out the commands from `place` on.
    pub(super) fn truncate(&mut self, place: usize) {
        self.commands.truncate(place);
    }

    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }

    pub(in crate::connection) fn at(&self, place: usize) -> Gathered {
        self.commands[place]
    }

    /// Returns the number of bytes of the first `count` commands.
    pub(super) fn end(&self, count: usize) -> usize {
        match count {
            0 => 0,
            _ => self.commands[count - 1].end,
        }
    }

    /// Returns the arguments of the command at `place`; `rest` as in [`PipelineRun::gather`].
    #[inline]
    pub(in crate::connection) fn arguments<'a>(
        &'a self,
        rest: &'a [u8],
        place: usize,
    ) -> Arguments<'a> {
        let (start, from) = match place {
            0 => (0, 0),
            _ => {
                let before = &self.commands[place - 1];
                (before.end, before.spans_end)
            }
        };
        let spans = &self.spans[from..self.commands[place].spans_end];
        Arguments::new(&rest[start..], spans)
    }

    /// Iterates over the calls of the first `count` commands: number of a command, and how often it
    /// is called in a row.
    pub(super) fn stretches(&self, count: usize) -> impl Iterator<Item = (usize, u64)> {
        let same = |a: &Gathered, b: &Gathered| a.id == b.id;
        let stretches = self.commands[..count].chunk_by(same);
        stretches.map(|stretch| (stretch[0].id, stretch.len() as u64))
    }

    /// Returns the number of keys of the first `count` commands.
    pub(super) fn keys(&self, rest: &[u8], count: usize) -> usize {
        let keys = |place: usize| {
            let command = self.commands[place].command;
            command.keys.of(self.arguments(rest, place)).count()
        };
        (0..count).map(keys).sum()
    }

    /// Builds the stored keys of the commands at `places`, which have one key each.
    pub(super) fn store_keys(&mut self, rest: &[u8], places: Range<usize>, folder: &KeyFolder) {
        let mut stored = std::mem::take(&mut self.stored);
        stored.clear();
        self.stored_ends.clear();
        for place in places {
            folder.append(self.arguments(rest, place).at(1), &mut stored);
            self.stored_ends.push(stored.len());
        }
        self.stored = stored;
    }

    /// Returns the stored key at `place` of the group.
    #[inline]
    pub(super) fn stored_at(&self, place: usize) -> &[u8] {
        let start = match place {
            0 => 0,
            _ => self.stored_ends[place - 1],
        };
        &self.stored[start..self.stored_ends[place]]
    }

    /// Frees the memory of unusually large values.
    pub(crate) fn trim(&mut self, bytes: usize) {
        for buffer in [&mut self.stored, &mut self.bytes, &mut self.row] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }
}

/// Returns the command with this name, and the kind of the run that it may begin.
pub(super) fn kind_of(name: &[u8], index: &CommandIndex) -> Option<(RunKind, &'static Command)> {
    Known::of(name, index).map(|known| (known.kind, known.command))
}

/// A command that may run together with others.
#[derive(Clone, Copy)]
struct Known<'a> {
    /// As it was sent.
    name: &'a [u8],
    kind: RunKind,
    id: usize,
    command: &'static Command,
}

impl<'a> Known<'a> {
    /// Returns the command with this name.
    fn of(name: &'a [u8], index: &CommandIndex) -> Option<Self> {
        let (id, command) = index.find(name)?;
        let kind = match command.shares_commits() {
            true => RunKind::Writes,
            false if command.name == "get" => RunKind::Gets,
            false if command.shares_reads() => RunKind::Reads,
            false if command.needs_no_data() => RunKind::Keyless,
            false => return None,
        };
        Some(Self {
            name,
            kind,
            id,
            command,
        })
    }

    /// Returns true if it can be called with these arguments, and need not be alone.
    fn takes(&self, arguments: Arguments<'_>, folder: &KeyFolder) -> bool {
        let count = arguments.len();
        self.command.takes(count)
            && count <= ARGUMENTS_MAX
            // With several keys, what they show must be of one moment.
            && (self.kind != RunKind::Reads || self.command.keys != Keys::ALL || count == 2)
            // A row that stores the whole key is compared with it: GET itself does that.
            && (self.kind != RunKind::Gets || !folder.folds(arguments.at(1)))
    }
}
