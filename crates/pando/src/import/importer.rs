//! What an import has with the server.

use std::io::{self, Read};
use std::net::ToSocketAddrs as _;

use pando_resp::{Answer, Client, ClientOptions};
use pando_server::rdb;
use pando_sync::time::{Duration, unix_ms};

use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::target::Target;

use super::file::{KEPT_BYTES_MAX, Key, RdbFile};
use super::values::{OF_MODULE, PIECE_WEIGHT, STRING};

/// Commands are sent once they have so many bytes, or are so many.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_COMMANDS: usize = 256;
/// Keys that were refused and are shown.
const SHOWN: u64 = 10;
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
    /// What the replies are of that are to come, and the bytes of their commands.
    sent: Vec<Sent>,
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
    Library,
}

impl Importer {
    pub(super) fn open(target: &Target, replaces: bool, version: u16) -> Result<Self, Failure> {
        let lost = |error: io::Error| Failure::io(format!("{target}: {error}"));
        let addresses = (target.host.as_str(), target.port).to_socket_addrs();
        let addresses: Vec<_> = addresses.map_err(lost)?.collect();
        let mut client = Client::connect(&addresses, OPTIONS).map_err(lost)?;
        if let Some(password) = &target.password
            && let Answer::Error(text) = client.call(&["AUTH", password]).map_err(lost)?
        {
            return Err(Failure::usage(format!("{target}: {text}")));
        }
        if let Answer::Error(text) = client.call(&["PING"]).map_err(lost)? {
            return Err(Failure::usage(format!("{target}: {text}")));
        }
        Ok(Self {
            client,
            target: target.clone(),
            replaces,
            version,
            database: 0,
            sent: Vec::new(),
            sent_bytes: 0,
            part_refused: None,
            done: Imported::default(),
            progress: Progress::new(),
        })
    }

    /// Shows how much of the file was read.
    pub(super) fn show<R: Read>(&mut self, file: &RdbFile<R>) {
        self.progress.update("bytes imported", file.share());
    }

    /// Waits for the last replies.
    pub(super) fn finish(mut self) -> Result<Imported, Failure> {
        self.flush()?;
        self.progress.finish();
        Ok(self.done)
    }

    /// Sends a key, whose value is read here.
    pub(super) fn key<R: Read>(
        &mut self,
        file: &mut RdbFile<R>,
        mut key: Key,
    ) -> Result<(), Failure> {
        if key.deadline.is_some_and(|deadline| deadline <= unix_ms()) {
            self.done.expired += 1;
            return file.pass(&mut key.value).map(|_| ());
        }
        if key.value.kind == OF_MODULE {
            file.pass(&mut key.value)?;
            self.refuse(
                &key.name,
                "it belongs to a module, and PandoDB has no modules",
            );
            return Ok(());
        }
        let piece = file.piece(&mut key.value)?;
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

    /// Sends the value of a key, which is `value` in the form of a file, and takes so many bytes
    /// there.
    fn restore(&mut self, key: Key, value: &[u8], bytes: u64) -> Result<(), Failure> {
        self.select(key.database)?;
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

    /// Has all that follows go to this database.
    pub(super) fn select(&mut self, database: u64) -> Result<(), Failure> {
        if database == self.database {
            return Ok(());
        }
        self.flush()?;
        let answer = self.client.call(&["SELECT", &database.to_string()]);
        match answer.map_err(|error| self.lost(&error))? {
            Answer::Error(text) => Err(Failure::io(format!(
                "{}: database {database}: {text}",
                self.target
            ))),
            _ => {
                self.database = database;
                Ok(())
            }
        }
    }

    pub(super) fn lost(&self, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {error}", self.target))
    }

    pub(super) fn library(&mut self, code: &[u8]) -> Result<(), Failure> {
        match self.replaces {
            true => self.push(&[b"FUNCTION", b"LOAD", b"REPLACE", code], Sent::Library),
            false => self.push(&[b"FUNCTION", b"LOAD", code], Sent::Library),
        }
    }

    pub(super) fn push(&mut self, words: &[&[u8]], sent: Sent) -> Result<(), Failure> {
        self.client.push(words);
        self.sent.push(sent);
        self.sent_bytes += words.iter().map(|word| word.len() as u64).sum::<u64>();
        match self.sent_bytes > BATCH_BYTES || self.sent.len() >= BATCH_COMMANDS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what was pushed, and looks at the replies.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.client.send().map_err(|error| self.lost(&error))?;
        self.sent_bytes = 0;
        for sent in std::mem::take(&mut self.sent) {
            let answer = self.client.reply().map_err(|error| self.lost(&error))?;
            match (sent, answer) {
                (Sent::Key { name, .. }, Answer::Error(text)) => self.refuse(&name, &text),
                (Sent::Key { bytes, .. }, _) => {
                    self.done.keys += 1;
                    self.done.bytes += bytes;
                }
                (Sent::Part, Answer::Error(text)) => {
                    self.part_refused.get_or_insert(text);
                }
                (Sent::Part, _) => {}
                (Sent::Library, Answer::Error(text)) => self.refuse(b"a library", &text),
                (Sent::Library, _) => self.done.libraries += 1,
            }
        }
        Ok(())
    }

    pub(super) fn refuse(&mut self, name: &[u8], why: &str) {
        self.done.refused += 1;
        match self.done.refused {
            ..=SHOWN => output::note(format_args!("'{}': {why}", name.escape_ascii())),
            refused if refused == SHOWN + 1 => output::note("others are refused, too"),
            _ => {}
        }
    }
}

/// Returns a string without compression, in the form of a file; `None` if it is too long.
fn plain_string(compressed: &[u8]) -> Option<Vec<u8>> {
    let string = rdb::string(compressed, usize::try_from(KEPT_BYTES_MAX).ok()?)?;
    // A length of eight bytes.
    let mut plain = vec![0x81];
    plain.extend_from_slice(&(string.len() as u64).to_be_bytes());
    plain.extend_from_slice(&string);
    Some(plain)
}
