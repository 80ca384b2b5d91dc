//! Histories of clients, judged by the isolation checker: transactions of PANDO BEGIN at each
//! level, EXECs, and single commands beside them.

use fastrand::Rng;
use pando_resp::Answer;
use pando_sim::isolation::{
    Bounds, Level, Operation, TableKey, Transaction as Record, TransactionHistory, check,
};
use pando_sync::atomic::{AtomicU64, Ordering};
use pando_sync::thread;

use crate::client::{Client, show};
use crate::fixture::{Fixture, open_small, options};

/// Keys of each kind in each database.
const KEYS: u8 = 8;
const CLIENTS: u64 = 6;
/// Transactions of each client.
const TURNS: u32 = 150;

/// What all clients share: the clock, and what names transactions, values and elements.
#[derive(Default)]
struct Shared {
    clock: AtomicU64,
    ids: AtomicU64,
}

impl Shared {
    fn now(&self) -> u64 {
        1 + self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn next(&self) -> u64 {
        1 + self.ids.fetch_add(1, Ordering::Relaxed)
    }
}

/// A transaction that has lost, or was rolled back by the server.
struct Lost;

struct Worker<'s> {
    client: Client,
    shared: &'s Shared,
    random: Rng,
}

impl Worker<'_> {
    /// Runs a command. Errors that end a transaction are told.
    fn run(&mut self, command: &str) -> Result<Answer, Lost> {
        let answer = self.client.run_raw(command);
        let Answer::Error(error) = &answer else {
            return Ok(answer);
        };
        let error = error.clone();
        let code = error.split(' ').next().unwrap();
        let expected = ["CONFLICT", "DEADLOCK", "LOCKTIMEOUT", "SNAPSHOTENDED"];
        assert!(expected.contains(&code), "{command}: {error}");
        Err(Lost)
    }

    fn key(&mut self, kind: char) -> (TableKey, String, String) {
        let database = self.random.u8(..2);
        let name = format!("{kind}{}", self.random.u8(..KEYS));
        let key = TableKey::new(database.to_string(), name.as_bytes());
        (key, name, format!("SELECT {database}"))
    }

    /// Makes one random step inside a transaction.
    fn step(&mut self, level: Level) -> Result<Option<Operation>, Lost> {
        let (key, name, select) = self.key('r');
        self.run(&select)?;
        Ok(Some(match self.random.u8(..10) {
            0..3 => Operation::Read(key, number(&self.run(&format!("GET {name}"))?)),
            3..5 => {
                let value = self.shared.next();
                self.run(&format!("SET {name} {value}"))?;
                Operation::Write(key, value)
            }
            5 => {
                match self.run(&format!("DEL {name}"))? {
                    Answer::Integer(1) => Operation::Delete(key),
                    // There was nothing to delete.
                    _ => Operation::Read(key, None),
                }
            }
            6 => {
                self.run(&format!("PANDO LOCK {name}"))?;
                return Ok(None);
            }
            // Two commands see one moment, and elements are not lost, at the other levels.
            _ if level == Level::ReadCommitted => return Ok(None),
            7 => {
                let all = self.run("KEYS r*")?;
                let mut names = texts(&all);
                names.sort();
                let values = match names.is_empty() {
                    true => Vec::new(),
                    false => numbers(&self.run(&format!("MGET {}", names.join(" ")))?),
                };
                let row = |(name, value): (&String, Option<u64>)| {
                    (
                        TableKey::new(key.table.clone(), name.as_bytes()),
                        value.unwrap(),
                    )
                };
                let bounds = Bounds {
                    table: key.table.clone(),
                    from: b"r".to_vec(),
                    to: Some(b"s".to_vec()),
                };
                Operation::ReadRange(bounds, names.iter().zip(values).map(row).collect())
            }
            8 => {
                let name = name.replace('r', "l");
                let key = TableKey::new(key.table, name.as_bytes());
                Operation::ReadList(key, elements(&self.run(&format!("GET {name}"))?))
            }
            _ => {
                let name = name.replace('r', "l");
                let key = TableKey::new(key.table, name.as_bytes());
                let element = self.shared.next();
                self.run(&format!("APPEND {name} {element},"))?;
                Operation::Append(key, element)
            }
        }))
    }

    /// One transaction of PANDO BEGIN.
    fn interactive(&mut self, record: &mut Record) -> Result<(), Lost> {
        let level = record.level.unwrap();
        let word = match level {
            Level::ReadCommitted => "READCOMMITTED",
            Level::Snapshot => "SNAPSHOT",
            Level::Serializable => "SERIALIZABLE",
        };
        self.run(&format!("PANDO BEGIN {word}"))?;
        let mut ended = Ok(());
        for _ in 0..self.random.u32(1..7) {
            match self.step(level) {
                Ok(operation) => record.operations.extend(operation),
                Err(lost) => ended = Err(lost),
            }
            if ended.is_err() {
                break;
            }
        }
        let commits = self.random.u8(..10) > 0;
        let ended = match ended {
            Ok(()) if commits => self.run("PANDO COMMIT").map(drop),
            other => other.and(Err(Lost)),
        };
        if ended.is_err() {
            assert_eq!(self.client.run("PANDO ROLLBACK"), "+OK");
        }
        ended
    }

    /// Reads and writes in one EXEC of one database.
    fn exec(&mut self, record: &mut Record) -> Result<(), Lost> {
        let (key, name, select) = self.key('r');
        let (_, other, _) = self.key('r');
        let other_key = TableKey::new(key.table.clone(), other.as_bytes());
        let value = self.shared.next();
        let script = [&select, "MULTI", &format!("MGET {name} {other}")];
        for command in script {
            self.client.run(command);
        }
        self.client.run(&format!("SET {name} {value}"));
        let Answer::Array(replies) = self.run("EXEC")? else {
            panic!("EXEC was refused");
        };
        let found = numbers(&replies[0]);
        record.operations = vec![
            Operation::Read(key.clone(), found[0]),
            Operation::Read(other_key, found[1]),
            Operation::Write(key, value),
        ];
        Ok(())
    }

    /// A single command: the values of all keys of a database, at one moment.
    fn read_all(&mut self, record: &mut Record) {
        let (key, _, select) = self.key('r');
        self.client.run(&select);
        let names: Vec<String> = (0..KEYS).map(|number| format!("r{number}")).collect();
        let values = numbers(&self.client.run_raw(&format!("MGET {}", names.join(" "))));
        let read = |(name, value): (&String, Option<u64>)| {
            Operation::Read(TableKey::new(key.table.clone(), name.as_bytes()), value)
        };
        record.operations = names.iter().zip(values).map(read).collect();
    }

    fn turn(&mut self, client: u64) -> Record {
        let level = match self.random.u8(..4) {
            0 => Level::ReadCommitted,
            1 => Level::Snapshot,
            _ => Level::Serializable,
        };
        let mut record = Record::new(self.shared.next()).client(client);
        record.invoked = self.shared.now();
        let ended = match self.random.u8(..10) {
            0 => {
                record = record.level(Level::Serializable);
                self.exec(&mut record)
            }
            1 => {
                record = record.level(Level::Serializable);
                self.read_all(&mut record);
                Ok(())
            }
            _ => {
                record = record.level(level);
                self.interactive(&mut record)
            }
        };
        record.completed = Some(self.shared.now());
        match ended {
            Ok(()) => record,
            Err(Lost) => record.aborted(),
        }
    }
}

fn text(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Bulk(bytes) => Some(String::from_utf8(bytes.clone()).unwrap()),
        Answer::Null => None,
        other => panic!("{}", show(other)),
    }
}

fn number(answer: &Answer) -> Option<u64> {
    text(answer).map(|text| text.parse().unwrap())
}

fn numbers(answer: &Answer) -> Vec<Option<u64>> {
    match answer {
        Answer::Array(all) => all.iter().map(number).collect(),
        other => panic!("{}", show(other)),
    }
}

fn texts(answer: &Answer) -> Vec<String> {
    match answer {
        Answer::Array(all) => all.iter().filter_map(text).collect(),
        other => panic!("{}", show(other)),
    }
}

fn elements(answer: &Answer) -> Vec<u64> {
    let list = text(answer).unwrap_or_default();
    let elements = list.split(',').filter(|element| !element.is_empty());
    elements.map(|element| element.parse().unwrap()).collect()
}

#[test]
fn clients_get_what_their_levels_promise() {
    let seeds = std::env::var("PANDO_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let server = Fixture::opened_by(options(), open_small);
        let shared = Shared::default();
        let transactions: Vec<Record> = thread::scope(|scope| {
            let run = |client: u64| {
                let mut worker = Worker {
                    client: server.client(),
                    shared: &shared,
                    random: Rng::with_seed(seed * 100 + client),
                };
                move || (0..TURNS).map(|_| worker.turn(client)).collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..CLIENTS)
                .map(|client| scope.spawn(run(client)))
                .collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.flatten().collect()
        });
        let history = TransactionHistory { transactions };
        let judged = check(&history, Level::Serializable);
        let report = judged.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
        let all = usize::try_from(CLIENTS).unwrap() * usize::try_from(TURNS).unwrap();
        let committed = report.committed;
        assert!(
            committed > all / 3 && committed < all,
            "{committed} of {all}"
        );
    }
}
