//! What an import has with the server.

use std::collections::VecDeque;
use std::io::{self, Read};

use pando_resp::{Answer, Client, ClientOptions};
use pando_server::rdb;
use pando_sync::time::{Duration, unix_ms};

use crate::failure::Failure;
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::refused;
use crate::target::Target;

use super::file::{KEPT_BYTES_MAX, Key, RdbFile, Record};
use super::values::{OF_MODULE, PIECE_WEIGHT, STRING};

/// Commands are sent once they have so many bytes, or are so many.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_COMMANDS: usize = 256;
/// A server may take long for a value of half a gigabyte on a slow disk.
const OPTIONS: ClientOptions = ClientOptions {
    timeout: Duration::from_secs(300),
    reply_bytes_max: 16 << 20,
};

/// What has become of the contents of a file.
#[derive(Debug, Default)]
pub(super) struct Imported {
    pub(super) keys: u64,
    pub(super) libraries: u64,
    /// Keys whose deadline had passed.
    pub(super) expired: u64,
    /// Keys and libraries that the server, or this program, has refused.
    pub(super) refused: u64,
    pub(super) bytes: u64,
}

/// An import into a server.
pub(super) struct Importer {
    pub(super) client: Client,
    target: Target,
    pub(super) replaces: bool,
    /// Of the file's format.
    version: u16,
    database: u64,
    /// Why the server does not have this database, if so.
    no_database: Option<String>,
    /// What the replies are of that are to come, and the bytes of their commands.
    sent: VecDeque<Sent>,
    sent_bytes: u64,
    /// Why the first part of a long value was refused, if one was.
    pub(super) part_refused: Option<String>,
    pub(super) done: Imported,
    progress: Progress,
}

/// What a command is of.
pub(super) enum Sent {
    Key {
        name: Vec<u8>,
        bytes: u64,
    },
    /// Part of the value of a key.
    Part,
    /// Its first line, which has its name.
    Library(Vec<u8>),
}

impl Importer {
    pub(super) fn open(target: &Target, replaces: bool, version: u16) -> Result<Self, Failure> {
        let client = target.connect(OPTIONS)?;
        Ok(Self {
            client,
            target: target.clone(),
            replaces,
            version,
            database: 0,
            no_database: None,
            sent: VecDeque::new(),
            sent_bytes: 0,
            part_refused: None,
            done: Imported::default(),
            progress: Progress::new(),
        })
    }

    /// Sends all that a file has, or what is before a fault of the file.
    pub(super) fn all<R: Read>(&mut self, file: &mut RdbFile<R>) -> Result<(), Failure> {
        while let Some(record) = file.next().map_err(|fault| self.fault(fault))? {
            match record {
                Record::Key(key) => self.key(file, key)?,
                Record::Library(code) => self.library(&code)?,
            }
            self.show(file);
        }
        self.flush()
    }

    /// Sends what is before a fault of the file; returns the failure.
    pub(super) fn fault(&mut self, fault: Failure) -> Failure {
        match self.flush() {
            Ok(()) => {
                let text = format!("{}; what is before that was sent", fault.text);
                Failure::new(fault.code, text)
            }
            Err(lost) => lost,
        }
    }

    /// Returns the number of keys and libraries of which nobody knows whether they are there: the
    /// connection was lost before their replies came.
    pub(super) fn unknown(&self) -> usize {
        let parts = self.sent.iter().filter(|sent| matches!(sent, Sent::Part));
        self.sent.len() - parts.count()
    }

    /// Shows how much of the file was read.
    pub(super) fn show<R: Read>(&mut self, file: &RdbFile<R>) {
        self.progress.update("bytes imported", file.share());
    }

    /// Shows no more.
    pub(super) fn hide(&self) {
        self.progress.finish();
    }

    /// Sends a key, whose value is read here.
    fn key<R: Read>(&mut self, file: &mut RdbFile<R>, mut key: Key) -> Result<(), Failure> {
        if key.deadline.is_some_and(|deadline| deadline <= unix_ms()) {
            self.done.expired += 1;
            return self.pass(file, &mut key);
        }
        if key.value.kind == OF_MODULE {
            self.refuse(
                &key.name,
                "it belongs to a module, and PandoDB has no modules",
            );
            return self.pass(file, &mut key);
        }
        self.select(key.database)?;
        if let Some(why) = self.no_database.clone() {
            self.refuse(&key.name, &why);
            return self.pass(file, &mut key);
        }
        let piece = file.piece(&mut key.value);
        let piece = piece.map_err(|fault| self.fault(fault))?;
        let is_string = key.value.kind == STRING;
        if !piece.is_whole || piece.weight > PIECE_WEIGHT && !is_string {
            return self.long(file, key, piece);
        }
        let is_compressed = piece.weight > piece.length;
        let bytes = piece.bytes.and_then(|bytes| match is_compressed {
            // The server expands what fits into its memory, and takes any string that is as it is.
            true if piece.weight > PIECE_WEIGHT => plain_string(&bytes),
            _ => Some(bytes),
        });
        let Some(bytes) = bytes else {
            let why = format!("a string of {} is too long", show_size(piece.weight));
            self.refuse(&key.name, &why);
            return Ok(());
        };
        self.restore(key, &bytes, piece.length + 1)
    }

    /// Reads the value of a key that does not come over.
    fn pass<R: Read>(&mut self, file: &mut RdbFile<R>, key: &mut Key) -> Result<(), Failure> {
        let passed = file.pass(&mut key.value);
        passed.map(|_| ()).map_err(|fault| self.fault(fault))
    }

    /// Sends the value of a key, which is `value` in the form of a file, and takes so many bytes
    /// there.
    fn restore(&mut self, key: Key, value: &[u8], bytes: u64) -> Result<(), Failure> {
        let mut payload = Vec::with_capacity(value.len() + 11);
        payload.push(key.value.kind);
        payload.extend_from_slice(value);
        payload.extend(rdb::footer(&payload, self.version));
        let ttl = key.deadline.unwrap_or(0).to_string();
        let command = [
            b"RESTORE",
            &key.name[..],
            ttl.as_bytes(),
            &payload,
            b"ABSTTL",
            b"REPLACE",
        ];
        let words = if self.replaces { 6 } else { 5 };
        let name = key.name.clone();
        self.push(&command[..words], Sent::Key { name, bytes })
    }

    /// Has all that follows go to this database, if the server has it.
    fn select(&mut self, database: u64) -> Result<(), Failure> {
        if database == self.database {
            return Ok(());
        }
        self.flush()?;
        let answer = self.client.call(&["SELECT", &database.to_string()]);
        self.no_database = match answer.map_err(|error| self.lost(&error))? {
            Answer::Error(text) => Some(format!("database {database}: {text}")),
            _ => None,
        };
        self.database = database;
        Ok(())
    }

    pub(super) fn lost(&self, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {error}", self.target))
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Failure> {
        let first = code.split(|byte| *byte == b'\n').next().unwrap_or(code);
        let sent = Sent::Library(first.to_vec());
        match self.replaces {
            true => self.push(&[b"FUNCTION", b"LOAD", b"REPLACE", code], sent),
            false => self.push(&[b"FUNCTION", b"LOAD", code], sent),
        }
    }

    pub(super) fn push(&mut self, words: &[&[u8]], sent: Sent) -> Result<(), Failure> {
        self.client.push(words);
        self.sent.push_back(sent);
        self.sent_bytes += words.iter().map(|word| word.len() as u64).sum::<u64>();
        match self.sent_bytes > BATCH_BYTES || self.sent.len() >= BATCH_COMMANDS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what was pushed, and looks at the replies. What has none stays in `sent`.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.client.send().map_err(|error| self.lost(&error))?;
        self.sent_bytes = 0;
        while !self.sent.is_empty() {
            let answer = self.client.reply().map_err(|error| self.lost(&error))?;
            let sent = self.sent.pop_front();
            match (sent.expect("there is one"), answer) {
                (Sent::Key { name, .. } | Sent::Library(name), Answer::Error(text)) => {
                    self.refuse(&name, &text);
                }
                (Sent::Key { bytes, .. }, _) => {
                    self.done.keys += 1;
                    self.done.bytes += bytes;
                }
                (Sent::Part, Answer::Error(text)) => {
                    self.part_refused.get_or_insert(text);
                }
                (Sent::Part, _) => {}
                (Sent::Library(_), _) => self.done.libraries += 1,
            }
        }
        Ok(())
    }

    pub(super) fn refuse(&mut self, name: &[u8], why: &str) {
        self.done.refused += 1;
        refused::tell(self.done.refused, name, why, "others are refused, too");
    }
}

/// Returns a string without compression, in the form of a file; `None` if it is too long.
fn plain_string(compressed: &[u8]) -> Option<Vec<u8>> {
    let string = rdb::string(compressed, usize::try_from(KEPT_BYTES_MAX).ok()?)?;
    let mut plain = Vec::with_capacity(string.len() + 9);
    rdb::put_length(&mut plain, string.len() as u64);
    plain.extend_from_slice(&string);
    Some(plain)
}
