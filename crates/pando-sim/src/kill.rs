//! Kills the server's process at random moments while clients use it, again and again.
//!
//! Every client writes keys of its own (single writes, counters, batches of several keys) and, with
//! the others, a few shared keys. After each restart, what was acknowledged exists, no batch exists
//! in part, of each client's writes a prefix exists, and the shared keys have a history that is
//! linearizable: a call in flight at the kill may have happened or not, unless another client has
//! seen its effect.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pando_device::faulty::Random;
use pando_resp::{Answer as Reply, Client, ClientOptions};
use pando_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use pando_sync::time::{self, Duration};
use pando_sync::{Mutex, Rank, thread};

use crate::failure::{Failure, Result, fail};
use crate::history::{self, History, Step};
use crate::linear::{self, Action, Call, Key, Value};
use crate::state::{Effect, Place, State, own_table};
use crate::watchdog::Watchdog;

/// Maximum time from a start until PING is answered.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Number of registers that all clients write; [`COUNTERS`] counters come after them.
const SHARED_KEYS: Key = 4;
const COUNTERS: Key = 2;
/// Number of keys of each client.
const OWN_KEYS: u64 = 60;

/// What to do.
#[derive(Debug, Clone)]
pub struct KillPlan {
    /// The server's binary.
    pub server: PathBuf,
    /// Directory of its store; created if absent.
    pub directory: PathBuf,
    /// Number of kills.
    pub rounds: u64,
    /// Number of concurrent clients.
    pub clients: usize,
    /// Decides what clients do, and when the kills come.
    pub seed: u64,
}

/// Counts of what was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KillCounts {
    /// Kills.
    pub rounds: u64,
    /// Writes that were acknowledged.
    pub acknowledged: u64,
    /// Calls on shared keys whose linearizability was checked.
    pub calls: u64,
    /// The longest start, in milliseconds.
    pub start_ms_max: u64,
}

struct Server {
    process: Child,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn told(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::new(format!("{what}: {error}"))
}

impl Server {
    fn start(plan: &KillPlan, log: &Path) -> Result<Self> {
        let probe = TcpListener::bind("127.0.0.1:0").map_err(told("finding a port"))?;
        let address = probe.local_addr().map_err(told("finding a port"))?;
        drop(probe);
        let errors = std::fs::File::create(log).map_err(told("making a log"))?;
        let process = Command::new(&plan.server)
            .args([
                "serve",
                "--max-memory",
                "16m",
                "--durability",
                "durable",
                "--dir",
            ])
            .arg(&plan.directory)
            .args(["--listen", &address.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(told("starting the server"))?;
        let mut server = Self { process, address };
        server.wait(log)?;
        Ok(server)
    }

    /// Blocks until PING is answered.
    fn wait(&mut self, log: &Path) -> Result<()> {
        let began = time::now();
        loop {
            let pong = Client::connect(&[self.address], ClientOptions::default())
                .and_then(|mut client| client.call(&[b"PING"]));
            match pong {
                Ok(Reply::Simple(pong)) if pong == "PONG" => return Ok(()),
                _ if began.elapsed() > START_LIMIT => return fail(format!("no PONG: {pong:?}")),
                _ => {}
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                let words = std::fs::read_to_string(log).unwrap_or_default();
                return fail(format!("the server ended ({status}): {words}"));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns a connection whose event loop has the store: each loop learns of the store on its own.
fn connect(address: SocketAddr) -> Result<Client> {
    let mut client =
        Client::connect(&[address], ClientOptions::default()).map_err(told("connecting"))?;
    loop {
        match client.call(&[b"PING"]).map_err(told("PING"))? {
            Reply::Simple(_) => return Ok(client),
            Reply::Error(loading) if loading.starts_with("LOADING") => {
                thread::sleep(Duration::from_millis(1));
            }
            other => return fail(format!("PING: {other:?}")),
        }
    }
}

/// State that all clients of a round share.
struct Round {
    address: SocketAddr,
    clock: AtomicU64,
    calls: Mutex<Vec<Call>>,
    killed: AtomicBool,
}

impl Round {
    fn stamp(&self) -> u64 {
        // AcqRel: stamps order calls of different clients.
        self.clock.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Runs the rounds.
///
/// # Errors
/// What is wrong, with the seed.
pub fn run(plan: &KillPlan) -> Result<KillCounts> {
    std::fs::create_dir_all(&plan.directory).map_err(told("making the directory"))?;
    let mut counts = KillCounts::default();
    let mut states = vec![State::default(); plan.clients];
    let mut shared = BTreeMap::new();
    let mut random = Random::new(plan.seed);
    for round in 0..plan.rounds {
        let command = format!(
            "pando-sim kill --server {} --seed {} --rounds {} (in round {round})",
            plan.server.display(),
            plan.seed,
            plan.rounds
        );
        let _watchdog = Watchdog::new(3 * START_LIMIT, command.clone());
        (states, shared) = kill_once(plan, round, &states, &shared, &mut random, &mut counts)
            .map_err(|failure| failure.within(command))?;
    }
    Ok(counts)
}

type StatesFound = (Vec<State>, BTreeMap<Key, u64>);

fn kill_once(
    plan: &KillPlan,
    number: u64,
    states: &[State],
    shared: &BTreeMap<Key, u64>,
    random: &mut Random,
    counts: &mut KillCounts,
) -> Result<StatesFound> {
    let log = plan.directory.with_extension("stderr");
    let began = time::now();
    let mut server = Server::start(plan, &log)?;
    counts.note_start(began.elapsed());
    let round = Round {
        address: server.address,
        clock: AtomicU64::new(0),
        calls: Mutex::new(Rank::Leaf, Vec::new()),
        killed: AtomicBool::new(false),
    };
    let histories: Vec<History> = thread::scope(|scope| {
        let workers: Vec<_> = states
            .iter()
            .enumerate()
            .map(|(thread, state)| {
                let random = Random::new(plan.seed).part(number * 1000 + thread as u64);
                let history = History::new(thread, state.clone());
                let round = &round;
                scope.spawn(move || RoundClient::new(round, history, random)?.work())
            })
            .collect();
        thread::sleep(Duration::from_millis(30 + random.below(700)));
        let alive = matches!(server.process.try_wait(), Ok(None));
        // Release: pairs with the Acquire in RoundClient::work.
        round.killed.store(true, Ordering::Release);
        let killed = server.process.kill();
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        if !alive || killed.is_err() {
            let words = std::fs::read_to_string(&log).unwrap_or_default();
            return fail(format!("the server ended by itself: {words}"));
        }
        let panicked = |_| Failure::new("a client panicked");
        let ended = ended.into_iter().map(|end| end.map_err(panicked)?);
        ended.collect::<Result<_>>()
    })?;
    drop(server);
    check_words(&log)?;
    verify(plan, &log, round, &histories, shared, counts)
}

impl KillCounts {
    fn note_start(&mut self, took: Duration) {
        let took = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        self.start_ms_max = self.start_ms_max.max(took);
    }
}

/// Starts the server again and checks its contents.
fn verify(
    plan: &KillPlan,
    log: &Path,
    round: Round,
    histories: &[History],
    shared: &BTreeMap<Key, u64>,
    counts: &mut KillCounts,
) -> Result<StatesFound> {
    let began = time::now();
    let server = Server::start(plan, log)?;
    counts.note_start(began.elapsed());
    counts.rounds += 1;
    let mut client = connect(server.address)?;
    let mut found = Vec::new();
    for history in histories {
        found.push(read_own(&mut client, history.thread)?);
        let acknowledged = history.steps().iter().filter(|step| step.durable).count();
        counts.acknowledged += acknowledged as u64;
    }
    history::check(histories, &[], &found)?;
    let calls = std::mem::take(&mut *round.calls.lock());
    let mut reads = Vec::new();
    let mut now = BTreeMap::new();
    for key in 0..SHARED_KEYS + COUNTERS {
        let start = round.stamp();
        let value = read_number(&mut client, &shared_key(key))?;
        let end = Some(round.stamp());
        reads.push(Call {
            action: Action::Read(vec![(key, value)]),
            start,
            end,
        });
        now.extend(value.map(|value| (key, value)));
    }
    counts.calls += calls.len() as u64;
    check_calls(calls, reads, shared)?;
    drop(server);
    check_words(log)?;
    Ok((found, now))
}

/// Checks that no thread of the server has panicked: it may have gone on without it.
fn check_words(log: &Path) -> Result<()> {
    let words = std::fs::read_to_string(log).map_err(told("reading the log"))?;
    match words.contains("panicked at") {
        true => fail(format!("the server panicked: {words}")),
        false => Ok(()),
    }
}

/// Checks the calls of a round together with `reads`, which were made after the restart: whatever
/// any client has seen, of its own writes or of others, must still hold.
fn check_calls(mut calls: Vec<Call>, reads: Vec<Call>, shared: &BTreeMap<Key, u64>) -> Result<()> {
    calls.extend(reads);
    linear::check(&calls, shared).map_err(|violation| {
        let last: Vec<_> = calls.iter().rev().take(40).collect();
        let what = format!("not linearizable: {violation}\n  the last calls: {last:#?}");
        Failure::new(what)
    })
}

fn shared_key(key: Key) -> Vec<u8> {
    format!("shared:{key}").into_bytes()
}

fn own_place(thread: usize, number: u64) -> Place {
    (
        own_table(thread, 0),
        format!("own:{thread}:{number}").into_bytes(),
    )
}

fn number_of(reply: &Reply) -> Result<Value> {
    match reply {
        Reply::Null => Ok(None),
        Reply::Bulk(bytes) => {
            let number = str::from_utf8(bytes)
                .ok()
                .and_then(|text| text.parse().ok());
            let what = || Failure::new(format!("not a number: {reply:?}"));
            number.map(Some).ok_or_else(what)
        }
        other => fail(format!("not a value: {other:?}")),
    }
}

fn read_number(client: &mut Client, key: &[u8]) -> Result<Value> {
    number_of(&client.call(&[&b"GET"[..], key]).map_err(told("GET"))?)
}

fn read_own(client: &mut Client, thread: usize) -> Result<State> {
    let mut state = State::default();
    for number in 0..OWN_KEYS {
        let place = own_place(thread, number);
        match client.call(&[&b"GET"[..], &place.1]).map_err(told("GET"))? {
            Reply::Bulk(value) => state.apply(&Effect::Put(place, value)),
            Reply::Null => {}
            other => return fail(format!("GET: {other:?}")),
        }
    }
    Ok(state)
}

/// One client of a round.
struct RoundClient<'r> {
    round: &'r Round,
    client: Client,
    history: History,
    random: Random,
    written: u64,
}

/// A reply, or `None` if the connection has ended.
type Answer<T> = Result<Option<T>>;

impl<'r> RoundClient<'r> {
    fn new(round: &'r Round, history: History, random: Random) -> Result<Self> {
        Ok(Self {
            round,
            client: connect(round.address)?,
            history,
            random,
            written: 0,
        })
    }

    fn work(mut self) -> Result<History> {
        loop {
            let went_on = match self.random.below(8) {
                0..2 => self.set(),
                2 => self.count(),
                3..5 => self.batch(),
                _ => self.shared(),
            }?;
            if went_on.is_some() {
                continue;
            }
            // Acquire: pairs with the Release in kill_once. The kill itself comes a little later.
            if !self.round.killed.load(Ordering::Acquire) {
                return fail("the server closed a connection");
            }
            return Ok(self.history);
        }
    }

    /// A broken connection ends the client, and is not a failure.
    fn answered<T>(answer: io::Result<T>) -> Answer<T> {
        match answer {
            Ok(reply) => Ok(Some(reply)),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                fail(format!("protocol: {error}"))
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                fail("no reply within the limit")
            }
            Err(_) => Ok(None),
        }
    }

    fn own_number(&mut self) -> u64 {
        // The first numbers are counters.
        4 + self.random.below(OWN_KEYS - 4)
    }

    fn value(&mut self) -> Vec<u8> {
        self.written += 1;
        let stamp = format!("{}/{}/", self.written, self.random.below(1 << 40));
        let bytes = match self.random.below(16) {
            0 => 5000 + self.random.below(20_000),
            _ => 20 + self.random.below(300),
        };
        stamp
            .bytes()
            .cycle()
            .take(usize::try_from(bytes).expect("short values"))
            .collect()
    }

    /// Records writes around the call that makes them.
    fn write<T>(
        &mut self,
        effects: Vec<Effect>,
        call: impl FnOnce(&mut Client) -> io::Result<T>,
    ) -> Answer<T> {
        let start = self.round.stamp();
        let answer = Self::answered(call(&mut self.client))?;
        let end = answer.is_some().then(|| self.round.stamp());
        let durable = end.is_some();
        self.history.push(Step {
            effects,
            start,
            end,
            durable,
        });
        Ok(answer)
    }

    fn set(&mut self) -> Answer<()> {
        let number = self.own_number();
        let place = own_place(self.history.thread, number);
        let value = self.value();
        let effects = vec![Effect::Put(place.clone(), value.clone())];
        match self.write(effects, |client| {
            client.call(&[&b"SET"[..], &place.1, &value])
        })? {
            Some(Reply::Simple(ok)) if ok == "OK" => Ok(Some(())),
            None => Ok(None),
            Some(other) => fail(format!("SET: {other:?}")),
        }
    }

    fn count(&mut self) -> Answer<()> {
        let number = self.random.below(4);
        let place = own_place(self.history.thread, number);
        let old = self.history.now().get(&place);
        let old = old.and_then(|value| str::from_utf8(value).ok()?.parse::<i64>().ok());
        let sum = old.unwrap_or(0) + 1;
        let effects = vec![Effect::Put(place.clone(), sum.to_string().into_bytes())];
        match self.write(effects, |client| client.call(&[&b"INCR"[..], &place.1]))? {
            Some(Reply::Integer(found)) if found == sum => Ok(Some(())),
            None => Ok(None),
            Some(other) => fail(format!("INCR of {old:?}: {other:?}")),
        }
    }

    fn batch(&mut self) -> Answer<()> {
        let mut writes = BTreeMap::new();
        for _ in 0..2 + self.random.below(6) {
            let number = self.own_number();
            let value = (!self.random.once_in(4)).then(|| self.value());
            writes.insert(own_place(self.history.thread, number), value);
        }
        let effects = writes.iter().map(|(place, value)| match value {
            Some(value) => Effect::Put(place.clone(), value.clone()),
            None => Effect::Delete(place.clone()),
        });
        let effects = effects.collect();
        let count = writes.len();
        let answer = self.write(effects, |client| {
            client.push(&[b"MULTI"]);
            for (place, value) in &writes {
                match value {
                    Some(value) => client.push(&[&b"SET"[..], &place.1, value]),
                    None => client.push(&[&b"DEL"[..], &place.1]),
                }
            }
            client.push(&[b"EXEC"]);
            client.send()?;
            exec_reply(client, count)
        })?;
        match answer {
            Some(Reply::Array(replies)) if replies.len() == count => Ok(Some(())),
            None => Ok(None),
            Some(other) => fail(format!("EXEC: {other:?}")),
        }
    }

    /// Returns the number of a shared key below `end`.
    fn shared_number(&mut self, end: Key) -> Key {
        let number = self.random.below(end.into());
        Key::try_from(number).expect("below a key")
    }

    /// Makes a call on shared keys, for the check of linearizability.
    fn shared(&mut self) -> Answer<()> {
        let mut key = self.shared_number(SHARED_KEYS);
        let start = self.round.stamp();
        let (action, reply) = match self.random.below(5) {
            0 => {
                key = self.shared_number(SHARED_KEYS + COUNTERS);
                (None, self.client.call(&[&b"GET"[..], &shared_key(key)]))
            }
            1 => {
                let keys: Vec<_> = (0..SHARED_KEYS).map(shared_key).collect();
                let words: Vec<&[u8]> = std::iter::once(&b"MGET"[..])
                    .chain(keys.iter().map(Vec::as_slice))
                    .collect();
                (None, self.client.call(&words))
            }
            2 => {
                let key = SHARED_KEYS + key % COUNTERS;
                let reply = self.client.call(&[&b"INCR"[..], &shared_key(key)]);
                (Some(Action::Add(key, None)), reply)
            }
            3 => self.shared_batch(key),
            _ => {
                let value = self.random.below(1 << 40);
                let text = value.to_string();
                let reply = self
                    .client
                    .call(&[&b"SET"[..], &shared_key(key), text.as_bytes()]);
                (Some(Action::Write(vec![(key, Some(value))])), reply)
            }
        };
        let reply = Self::answered(reply)?;
        let end = reply.is_some().then(|| self.round.stamp());
        let seen = reply
            .as_ref()
            .map(|reply| observe(action.as_ref(), key, reply));
        let action = seen.transpose()?.or(action);
        if let Some(action) = action {
            self.round.calls.lock().push(Call { action, start, end });
        }
        Ok(reply.map(drop))
    }

    fn shared_batch(&mut self, key: Key) -> (Option<Action>, io::Result<Reply>) {
        let value = self.random.below(1 << 40);
        let other = (key + 1) % SHARED_KEYS;
        let text = value.to_string();
        self.client.push(&[b"MULTI"]);
        for key in [key, other] {
            self.client
                .push(&[&b"SET"[..], &shared_key(key), text.as_bytes()]);
        }
        self.client.push(&[b"EXEC"]);
        let sent = self.client.send();
        let reply = sent.and_then(|()| exec_reply(&mut self.client, 2));
        let pairs = vec![(key, Some(value)), (other, Some(value))];
        (Some(Action::Write(pairs)), reply)
    }
}

/// Returns the reply of EXEC after MULTI and `count` commands, or that of the first command that
/// was refused.
fn exec_reply(client: &mut Client, count: usize) -> io::Result<Reply> {
    let mut refused = None;
    for _ in 0..=count {
        let queued = client.reply()?;
        if matches!(queued, Reply::Error(_)) {
            refused.get_or_insert(queued);
        }
    }
    let reply = client.reply()?;
    Ok(refused.unwrap_or(reply))
}

/// Returns what a call did, given its reply.
fn observe(action: Option<&Action>, key: Key, reply: &Reply) -> Result<Action> {
    match (action, reply) {
        (None, Reply::Array(values)) => {
            let values: Result<Vec<Value>> = values.iter().map(number_of).collect();
            Ok(Action::Read((0..SHARED_KEYS).zip(values?).collect()))
        }
        (None, value) => Ok(Action::Read(vec![(key, number_of(value)?)])),
        (Some(Action::Add(key, _)), Reply::Integer(sum)) => {
            Ok(Action::Add(*key, u64::try_from(*sum).ok()))
        }
        (Some(write @ Action::Write(_)), Reply::Simple(_) | Reply::Array(_)) => Ok(write.clone()),
        (action, reply) => fail(format!("{action:?}: {reply:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_server_is_found_in_its_words() {
        let name = format!("pando-sim-words-{}", std::process::id());
        let log = std::env::temp_dir().join(name);
        let look = |words: &str| {
            std::fs::write(&log, words).expect("the log is written");
            check_words(&log)
        };
        let ready = look("listening\n");
        let panic = look("listening\nthread 'pando-log' panicked at a place\n");
        std::fs::remove_file(&log).expect("the log is there");
        ready.expect("nothing is wrong");
        let told = panic.expect_err("it panicked").to_string();
        assert!(told.contains("pando-log"), "{told}");
    }
}
