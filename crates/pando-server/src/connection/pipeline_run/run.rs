//! The commands of a pipeline run, gathered from the input before any of them runs.

use std::ops::Range;

use pando_resp::{Arguments, Limits, Parsed, Parser, Span};

use crate::context::{Command, CommandIndex};
use crate::data::engine::Engine;
use crate::data::keyspace::{KeyFolder, head_bytes};

/// Maximum number of bytes of commands in a run, so that what is copied stays in the caches.
const BYTES_MAX: usize = 64 * 1024;

/// The kind of the commands in a pipeline run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainKind {
    /// `GET key`.
    Get,
    /// `SET key value`.
    Set,
}

impl PlainKind {
    /// Returns the kind of a command with these arguments.
    fn of_arguments(arguments: Arguments<'_>) -> Option<Self> {
        match (arguments.len(), arguments.get(0)?) {
            (2, name) if name.eq_ignore_ascii_case(b"get") => Some(Self::Get),
            (3, name) if name.eq_ignore_ascii_case(b"set") => Some(Self::Set),
            _ => None,
        }
    }

    /// Returns its number of arguments, the name included.
    fn arity(self) -> usize {
        match self {
            Self::Get => 2,
            Self::Set => 3,
        }
    }

    /// Returns the index and the entry of the command in the table.
    pub(super) fn of(self, commands: &CommandIndex) -> (usize, &'static Command) {
        let name: &[u8] = match self {
            Self::Get => b"get",
            Self::Set => b"set",
        };
        commands.find(name).expect("the table has both")
    }
}

/// The commands of a pipeline run, with the buffers to run them; one per loop.
#[derive(Default)]
pub(crate) struct PipelineRun {
    parser: Parser,
    /// Arguments of all commands, relative to the beginning of the first command.
    spans: Vec<Span>,
    /// End of each command, also relative to it.
    ends: Vec<usize>,
    arity: usize,
    /// Stored keys of a group, concatenated; `stored_ends` has their ends.
    pub(super) stored: Vec<u8>,
    pub(super) stored_ends: Vec<usize>,
    /// Values of a group; `values` has their ranges.
    pub(super) bytes: Vec<u8>,
    pub(super) values: Vec<Option<Range<usize>>>,
}

impl PipelineRun {
    /// Gathers plain commands from the beginning of `rest`, at most `most`; `first` are the
    /// arguments of the first one. Returns `None` if there are not at least two plain commands of
    /// the same kind.
    pub(super) fn gather(
        &mut self,
        rest: &[u8],
        first: &[Span],
        engine: &Engine,
        limits: &Limits,
        most: usize,
    ) -> Option<PlainKind> {
        let kind = PlainKind::of_arguments(Arguments::new(rest, first))?;
        self.arity = kind.arity();
        self.spans.clear();
        self.ends.clear();
        let mut at = 0;
        while self.ends.len() < most && at < BYTES_MAX {
            let behind = &rest[at..];
            self.parser.clear();
            let Parsed::Command { consumed } = self.parser.peek(behind, limits) else {
                break;
            };
            let arguments = self.parser.arguments(behind);
            if PlainKind::of_arguments(arguments) != Some(kind) || !is_plain(arguments, engine) {
                break;
            }
            let spans = self.parser.spans().iter();
            self.spans.extend(spans.map(|span| span.shifted(at)));
            at += consumed;
            self.ends.push(at);
        }
        (self.ends.len() > 1).then_some(kind)
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns the number of bytes of the first `count` commands.
    pub(super) fn end(&self, count: usize) -> usize {
        match count {
            0 => 0,
            _ => self.ends[count - 1],
        }
    }

    /// Returns the arguments of the command at `place`; `rest` as in [`PipelineRun::gather`].
    pub(super) fn arguments<'a>(&'a self, rest: &'a [u8], place: usize) -> Arguments<'a> {
        let from = place * self.arity;
        Arguments::new(rest, &self.spans[from..from + self.arity])
    }

    /// Builds the stored keys of the commands at `places`.
    pub(super) fn store_keys(&mut self, rest: &[u8], places: Range<usize>, folder: &KeyFolder) {
        self.stored.clear();
        self.stored_ends.clear();
        for place in places {
            let key = self.spans[place * self.arity + 1].of(rest);
            folder.append(key, &mut self.stored);
            self.stored_ends.push(self.stored.len());
        }
    }

    /// Returns the stored key at `place` of the group.
    pub(super) fn stored_at(&self, place: usize) -> &[u8] {
        let start = match place {
            0 => 0,
            _ => self.stored_ends[place - 1],
        };
        &self.stored[start..self.stored_ends[place]]
    }

    /// Frees the memory of unusually large values.
    pub(crate) fn trim(&mut self, bytes: usize) {
        for buffer in [&mut self.stored, &mut self.bytes] {
            if buffer.capacity() > bytes {
                *buffer = Vec::new();
            }
        }
    }
}

/// Returns true if the row does not store the whole key, and the value lies in pages.
fn is_plain(arguments: Arguments<'_>, engine: &Engine) -> bool {
    let value_bytes = arguments.get(2).map_or(0, <[u8]>::len);
    let row_bytes = value_bytes + head_bytes(None);
    !engine.folder.folds(arguments.at(1))
        && value_bytes as u64 <= engine.string_bytes_max
        && row_bytes <= engine.row_bytes_max
}
