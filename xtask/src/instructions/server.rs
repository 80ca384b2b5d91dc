//! Commands of a server with one event loop, in pipelines of 16 from one client. The client's own
//! instructions are not counted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use super::valgrind::Valgrind;
use crate::run::Result;

const PIPELINE: usize = 16;
const KEYS: u64 = 5_000;
/// Fields of a hash.
const FIELDS: usize = 5;
/// A limit of requests for each minute.
const SCRIPT: &str = "local n = redis.call('INCR', KEYS[1]) \
    if n == 1 then redis.call('EXPIRE', KEYS[1], 60) end return n";
/// A program starts slowly under valgrind.
const START: Duration = Duration::from_secs(120);

/// Returns the instructions of a run of `program` in which it answers `command` (`GET`, `SET`,
/// `INCR`, `MSET` of ten keys, `EVALSHA` of [`SCRIPT`], `HGETALL` of a small hash, `ZRANK` in a
/// sorted set of [`KEYS`] members, or `PUBLISH` to nobody) `operations` times.
pub(super) fn count(
    valgrind: &Valgrind,
    program: &Path,
    command: &str,
    operations: u64,
) -> Result<u64> {
    let folder = valgrind.empty_folder()?;
    let port = free_port().map_err(|error| format!("looking for a port: {error}"))?;
    let address = format!("127.0.0.1:{port}");
    let mut server = valgrind.command(program);
    server.args(["serve", "--dir"]).arg(&folder).args([
        "--listen",
        &address,
        "--threads",
        "1",
        "--max-memory",
        "64m",
        "--io-backend",
        "pread",
        "--durability",
        "none",
        "--log-level",
        "off",
    ]);
    let child = server
        .spawn()
        .map_err(|error| format!("{server:?}: {error} (is valgrind installed?)"))?;
    let mut running = Running(child);
    let talked = talk(&address, command, operations);
    let talked = talked.map_err(|error| format!("{server:?}, {command}: {error}"));
    running.stop()?;
    talked?;
    valgrind.total()
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    /// Terminates it as a service manager does, and waits for its end.
    fn stop(&mut self) -> Result<()> {
        let pid = self.0.id().to_string();
        crate::run::run(std::process::Command::new("kill").arg(pid))?;
        let status = self.0.wait().map_err(|error| error.to_string())?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the server ended with {status}")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Err(error) if began.elapsed() > START => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(50)),
            Ok(stream) => return Ok(stream),
        }
    }
}

fn talk(address: &str, command: &str, operations: u64) -> std::io::Result<()> {
    let mut stream = connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(START))?;
    // Until it has opened its store, it accepts connections and answers with an error.
    let began = Instant::now();
    while ask(&mut stream, &[vec!["GET".into(), "none".into()]], 1)?.starts_with(b"-") {
        if began.elapsed() > START {
            return Err(std::io::Error::other("it never became ready"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    let value = "v".repeat(100);
    for part in filling(command, &value).chunks(PIPELINE) {
        ask(&mut stream, part, part.len())?;
    }
    let load = ["SCRIPT", "LOAD", SCRIPT].map(str::to_owned).to_vec();
    let loaded = ask(&mut stream, &[load], 2)?;
    let digest = String::from_utf8_lossy(&loaded)
        .lines()
        .last()
        .map(str::to_owned);
    let digest = digest.unwrap_or_default();
    let lines_of_one = match command {
        "GET" => 2,
        "HGETALL" => 1 + 4 * FIELDS,
        _ => 1,
    };
    // Keys in an order that looks random: the step and the number of keys have no common factor.
    let mut number = 0;
    for _ in 0..operations / PIPELINE as u64 {
        let requests: Vec<_> = (0..PIPELINE)
            .map(|_| {
                number = (number + 3_467) % KEYS;
                request(command, number, (&value, &digest))
            })
            .collect();
        let replies = ask(&mut stream, &requests, requests.len() * lines_of_one)?;
        if replies.starts_with(b"-") || replies.starts_with(b"$-1") {
            let text = String::from_utf8_lossy(&replies).into_owned();
            return Err(std::io::Error::other(text));
        }
    }
    Ok(())
}

fn name(kind: &str, number: u64) -> String {
    format!("{kind}:{number:012}")
}

/// Returns the requests that put what `command` uses. Each has a reply of one line.
fn filling(command: &str, value: &str) -> Vec<Vec<String>> {
    let mut requests = Vec::new();
    for number in 0..KEYS {
        requests.push(vec!["SET".into(), name("key", number), value.into()]);
        requests.push(vec!["SET".into(), name("counter", number), "100000".into()]);
        match command {
            "HGETALL" => {
                let mut words = vec!["HSET".into(), name("hash", number)];
                for field in 0..FIELDS {
                    words.extend([format!("field{field}"), format!("value{field:05}")]);
                }
                requests.push(words);
            }
            "ZRANK" => requests.push(vec![
                "ZADD".into(),
                "scores".into(),
                number.to_string(),
                name("member", number),
            ]),
            _ => {}
        }
    }
    requests
}

/// Returns the call of `command` about what has this number.
fn request(command: &str, number: u64, (value, digest): (&str, &str)) -> Vec<String> {
    let of = |kind| name(kind, number);
    let mut words = vec![command.to_owned()];
    match command {
        "GET" => words.push(of("key")),
        "SET" => words.extend([of("key"), value.into()]),
        "INCR" => words.push(of("counter")),
        "EVALSHA" => words.extend([digest.into(), "1".into(), of("counter")]),
        "HGETALL" => words.push(of("hash")),
        "ZRANK" => words.extend(["scores".into(), of("member")]),
        "PUBLISH" => words.extend(["channel".into(), of("key")]),
        "MSET" => {
            for step in 0..10 {
                // Keys that lie nowhere near each other.
                words.extend([name("key", (number + step * 487) % KEYS), value.into()]);
            }
        }
        other => panic!("{other}: not among the commands"),
    }
    words
}

/// Sends `requests` together, and reads replies with `lines` lines.
fn ask(stream: &mut TcpStream, requests: &[Vec<String>], lines: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for words in requests {
        write!(bytes, "*{}\r\n", words.len())?;
        for word in words {
            write!(bytes, "${}\r\n{word}\r\n", word.len())?;
        }
    }
    stream.write_all(&bytes)?;
    let (mut replies, mut buffer) = (Vec::new(), [0; 16 << 10]);
    while replies.iter().filter(|byte| **byte == b'\n').count() < lines {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        replies.extend_from_slice(&buffer[..count]);
    }
    Ok(replies)
}
