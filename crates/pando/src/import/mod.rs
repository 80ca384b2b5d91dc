//! `pando import`: what an RDB file of Redis has goes to a running server, each value as it is, by
//! RESTORE.

mod file;
mod reader;
mod values;

use std::fs::File;
use std::io::{self, Read};
use std::net::ToSocketAddrs as _;
use std::path::Path;

use pando_resp::{Answer, Client, ClientOptions};
use pando_server::rdb;
use pando_sync::time::{Duration, unix_ms};
use serde_json::json;

use crate::command_line::ImportFlags;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::quantity::show_size;
use crate::target::Target;
use file::{Key, OF_MODULE, RdbFile, Record};
use reader::Fault;

/// The name of a file that stands for standard input.
const STANDARD: &str = "-";
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
struct Imported {
    keys: u64,
    libraries: u64,
    /// Keys whose deadline had passed.
    expired: u64,
    /// Keys and libraries that the server, or this program, has refused.
    refused: u64,
    bytes: u64,
}

/// Sends the contents of a file to a server.
pub(crate) fn run(flags: &ImportFlags) -> Result<(), Failure> {
    let target = Target::of(&flags.target);
    let of_file = |error: io::Error| Failure::usage(format!("{}: {error}", flags.file.display()));
    let (input, length): (Box<dyn Read>, _) = match flags.file == Path::new(STANDARD) {
        true => (Box::new(io::stdin().lock()), None),
        false => {
            let file = File::open(&flags.file).map_err(of_file)?;
            let length = file.metadata().map_err(of_file)?.len();
            (Box::new(file), Some(length))
        }
    };
    let shown = flags.file.display();
    let of_content = |fault| match fault {
        Fault::Io(error) => Failure::io(format!("{shown}: {error}")),
        Fault::Content(text) => Failure::damage(format!("{shown}: {text}")),
    };
    let mut file = RdbFile::open(input).map_err(of_content)?;
    let mut import = Import::open(&target, flags.replace, file.version)?;
    let mut progress = Progress::new();
    loop {
        match file.next().map_err(of_content)? {
            Some(Record::Key(key)) => import.key(key)?,
            Some(Record::Library(code)) => import.library(&code)?,
            None => break,
        }
        let length = length.unwrap_or(u64::MAX).max(1);
        progress.update("bytes imported", file.place() as f64 / length as f64);
    }
    import.flush()?;
    progress.finish();
    report(&import.done, flags.json)
}

fn report(done: &Imported, is_json: bool) -> Result<(), Failure> {
    match is_json {
        true => output::line(json!({
            "keys": done.keys,
            "libraries": done.libraries,
            "expired": done.expired,
            "refused": done.refused,
            "bytes": done.bytes,
        })),
        false => output::line(format_args!(
            "{} keys and {} libraries of functions, {}; {} keys had expired",
            done.keys,
            done.libraries,
            show_size(done.bytes),
            done.expired
        )),
    }
    match done.refused {
        0 => Ok(()),
        refused => Err(Failure::io(format!(
            "{refused} keys or libraries were refused; all others are there"
        ))),
    }
}

/// An import into a server.
struct Import {
    client: Client,
    target: Target,
    replaces: bool,
    version: u16,
    database: u64,
    /// What the replies are of that are to come, and the bytes of their commands.
    sent: Vec<Sent>,
    sent_bytes: u64,
    done: Imported,
}

/// What a command is of.
enum Sent {
    Key { name: Vec<u8>, bytes: u64 },
    Library,
}

impl Import {
    fn open(target: &Target, replaces: bool, version: u16) -> Result<Self, Failure> {
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
            done: Imported::default(),
        })
    }

    fn key(&mut self, key: Key) -> Result<(), Failure> {
        if key.deadline.is_some_and(|deadline| deadline <= unix_ms()) {
            self.done.expired += 1;
            return Ok(());
        }
        let Some(mut payload) = key.value.filter(|_| key.kind != OF_MODULE) else {
            let why = match key.kind {
                OF_MODULE => "it belongs to a module, and PandoDB has no modules".to_owned(),
                _ => format!("{} in one command", show_size(key.bytes)),
            };
            self.refuse(&key.name, &why);
            return Ok(());
        };
        self.select(key.database)?;
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
        let (name, bytes) = (key.name.clone(), key.bytes);
        self.push(&command[..words], Sent::Key { name, bytes })
    }

    /// Has all that follows go to this database.
    fn select(&mut self, database: u64) -> Result<(), Failure> {
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

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::io(format!("{}: {error}", self.target))
    }

    fn library(&mut self, code: &[u8]) -> Result<(), Failure> {
        match self.replaces {
            true => self.push(&[b"FUNCTION", b"LOAD", b"REPLACE", code], Sent::Library),
            false => self.push(&[b"FUNCTION", b"LOAD", code], Sent::Library),
        }
    }

    fn push(&mut self, words: &[&[u8]], sent: Sent) -> Result<(), Failure> {
        self.client.push(words);
        self.sent.push(sent);
        self.sent_bytes += words.iter().map(|word| word.len() as u64).sum::<u64>();
        match self.sent_bytes > BATCH_BYTES || self.sent.len() >= BATCH_COMMANDS {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Sends what was pushed, and looks at the replies.
    fn flush(&mut self) -> Result<(), Failure> {
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
                (Sent::Library, Answer::Error(text)) => self.refuse(b"a library", &text),
                (Sent::Library, _) => self.done.libraries += 1,
            }
        }
        Ok(())
    }

    fn refuse(&mut self, name: &[u8], why: &str) {
        self.done.refused += 1;
        match self.done.refused {
            ..=SHOWN => output::note(format_args!("'{}': {why}", name.escape_ascii())),
            refused if refused == SHOWN + 1 => output::note("others are refused, too"),
            _ => {}
        }
    }
}
