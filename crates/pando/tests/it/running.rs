//! A running server for tests, and tests of how it starts and stops.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use pando_resp::{Answer, Client, ClientOptions};
use pando_sync::thread;
use pando_sync::time::Duration;

/// Returns a command that runs the binary in `directory`, without `PANDO_` variables of the
/// environment.
pub(crate) fn pando(directory: &Path) -> Command {
    alone(Command::new(env!("CARGO_BIN_EXE_pando")), directory)
}

fn alone(mut command: Command, directory: &Path) -> Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PANDO_")) {
        command.env_remove(name);
    }
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// Runs a command whose words are separated by blanks; returns its reply, which is no error.
pub(crate) fn call(client: &mut Client, command: &str) -> Answer {
    let words: Vec<&str> = command.split(' ').collect();
    match client.call(&words).unwrap() {
        Answer::Error(text) => panic!("{command}: {text}"),
        answer => answer,
    }
}

/// A server that is killed when the test ends.
pub(crate) struct Running {
    child: Child,
    log: PathBuf,
    pub(crate) report: Vec<String>,
    pub(crate) address: String,
}

impl Running {
    /// Starts `pando` with `arguments` in `directory` and waits for the end of its report.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut running = Self::spawn(directory, arguments);
        running.read_report();
        running
    }

    /// Starts `pando` as redis-server is started, on a port that was free a moment before.
    pub(crate) fn start_as_redis(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_as_redis_with(directory, arguments, Stdio::null())
    }

    /// Starts `pando` as [`Running::start_as_redis`] does, with its standard input from `input`.
    pub(crate) fn start_as_redis_with(directory: &Path, arguments: &[&str], input: Stdio) -> Self {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port().to_string();
        drop(free);
        // A `-` at the end has a meaning only there.
        let (arguments, last) = match arguments {
            [arguments @ .., "-"] if !arguments.is_empty() => (arguments, Some("-")),
            _ => (arguments, None),
        };
        let child = pando(directory)
            .args(arguments)
            .args(["--port", &port, "--maxmemory", "16mb"])
            .args(last)
            .stdin(input)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Self::of(child, directory);
        running.read_report();
        running
    }

    /// Starts the server as [`Running::start`] does; `limit` are the arguments of `ulimit` that it
    /// has to live with.
    pub(crate) fn start_limited(directory: &Path, limit: &str, arguments: &[&str]) -> Self {
        let limited = format!("ulimit {limit} && exec \"$0\" \"$@\"");
        let child = alone(Command::new("sh"), directory)
            .args(["-c", &limited, env!("CARGO_BIN_EXE_pando")])
            .args(["--listen", "127.0.0.1:0", "--max-memory", "16m"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut running = Self::of(child, directory);
        running.read_report();
        running
    }

    /// Starts the server as [`Running::start`] does, but does not wait.
    fn spawn(directory: &Path, arguments: &[&str]) -> Self {
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"));
        Self::spawn_with(directory, arguments, log.unwrap().into())
    }

    /// Starts the server as [`Running::start`] does, with its standard error redirected to
    /// `stderr`.
    pub(crate) fn start_with(directory: &Path, arguments: &[&str], stderr: Stdio) -> Self {
        let mut running = Self::spawn_with(directory, arguments, stderr);
        running.read_report();
        running
    }

    fn spawn_with(directory: &Path, arguments: &[&str], stderr: Stdio) -> Self {
        let child = pando(directory)
            .args(["--listen", "127.0.0.1:0", "--max-memory", "16m"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self::of(child, directory)
    }

    fn of(child: Child, directory: &Path) -> Self {
        Self {
            child,
            log: directory.join("log"),
            report: Vec::new(),
            address: String::new(),
        }
    }

    /// Returns whether the report ends with the words of redis-server that others wait for.
    fn is_ready(&self) -> bool {
        let ready = format!("{}:M * Ready to accept connections", self.child.id());
        self.report.last() == Some(&ready)
    }

    /// Reads the report up to its last line.
    fn read_report(&mut self) {
        let out = BufReader::new(self.child.stdout.take().unwrap());
        for line in out.lines() {
            self.report.push(line.unwrap());
            if self.is_ready() {
                break;
            }
        }
        let mut lines = self.report.iter();
        let address = lines.find_map(|line| line.trim().strip_prefix("address"));
        let address = address.expect("the server has started").trim();
        self.address = address.to_owned();
    }

    /// Connects.
    pub(crate) fn client(&self) -> Client {
        let address = self.address.parse().unwrap();
        Client::connect(&[address], ClientOptions::default()).unwrap()
    }

    /// Sends the words of `request`. Returns the reply.
    fn ask(&self, request: &str) -> Answer {
        let words: Vec<&str> = request.split(' ').collect();
        self.client().call(&words).unwrap()
    }

    /// Checks that the reply to the words of `request` is `reply`. Of an error, `reply` is the
    /// beginning.
    #[track_caller]
    pub(crate) fn expect(&self, request: &str, reply: &str) {
        match (self.ask(request), reply.strip_prefix('-')) {
            (Answer::Error(text), Some(begin)) => {
                assert!(text.starts_with(begin), "{request}: {text}");
            }
            (answer, _) => {
                let expected = Answer::parse(reply.as_bytes()).unwrap().unwrap().0;
                assert_eq!(answer, expected, "{request}");
            }
        }
    }

    /// Returns the lines of its standard error so far.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns how many files the process has open.
    pub(crate) fn open_files(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id()));
        files.unwrap().count()
    }

    /// Returns how much memory of the process is resident.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kilobytes.unwrap().parse::<u64>().unwrap() * 1024
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.unwrap().success());
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn stop(mut self, signal: &str) -> ExitStatus {
        self.signal(signal);
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A failed test leaves no process running. A test that has passed has waited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The server maps more than it uses.
#[test]
fn a_limit_of_addresses_is_named() {
    let directory = tempfile::tempdir().unwrap();
    // KiB: too few for the server, and for its store.
    for (limit, memory) in [("200000", "16m"), ("6000000", "8g")] {
        let served = format!("ulimit -v {limit} && exec \"$0\" --dir=store --max-memory={memory}");
        let mut command = alone(Command::new("sh"), directory.path());
        command.args(["-c", &served, env!("CARGO_BIN_EXE_pando")]);
        command.env("PANDO_LISTEN", "127.0.0.1:0");
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_ne!(output.status.code(), Some(0), "{text}");
        assert!(text.contains("no addresses for "), "{limit}: {text}");
        assert!(
            text.contains("limits of the process (ulimit -v"),
            "{limit}: {text}"
        );
    }
}

/// The signal that comes with it would end the process.
#[test]
fn a_limit_of_the_length_of_files_is_a_full_disk() {
    let directory = tempfile::tempdir().unwrap();
    // Blocks of 512 or 1,024 bytes, as the shell counts.
    let mut server = Running::start_limited(directory.path(), "-f 40000", &[]);
    let mut client = server.client();
    let value = "v".repeat(10_000);
    let mut written = 0;
    let refusal = loop {
        match client
            .call(&["SET", &format!("key{written}"), &value])
            .unwrap()
        {
            Answer::Error(text) => break text,
            answer => assert!(matches!(answer, Answer::Simple(_)), "{answer:?}"),
        }
        written += 1;
        assert!(written < 10_000, "nothing was refused");
    };
    assert!(refusal.contains("file"), "{refusal}");
    server.expect("EXISTS key0", ":1\r\n");
    server.signal("KILL");
    server.wait();
    let server = Running::start(directory.path(), &[]);
    server.expect("DBSIZE", &format!(":{written}\r\n"));
    server.expect("SET more 1", "+OK\r\n");
    assert_eq!(server.stop("TERM").code(), Some(0));
}

#[test]
fn a_stop_by_either_signal_keeps_every_write_at_every_durability() {
    for (durability, signal) in [("durable", "TERM"), ("periodic", "INT"), ("none", "TERM")] {
        let directory = tempfile::tempdir().unwrap();
        let flags = ["--durability", durability];
        let server = Running::start(directory.path(), &flags);
        server.expect("SET key value", "+OK\r\n");
        assert_eq!(server.stop(signal).code(), Some(0), "{durability}");
        let server = Running::start(directory.path(), &flags);
        server.expect("GET key", "$5\r\nvalue\r\n");
        assert_eq!(server.stop(signal).code(), Some(0));
    }
}

/// Counts the lines of the log that say that a signal was ignored.
fn ignored(server: &Running) -> usize {
    let says = |line: &String| line.contains("changes nothing") && line.contains("signal=1");
    server.log().into_iter().filter(says).count()
}

#[test]
fn a_hangup_changes_nothing_but_one_line_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let flags = ["--durability", "none"];
    let server = Running::start(directory.path(), &flags);
    server.expect("SET key value", "+OK\r\n");
    server.signal("HUP");
    while ignored(&server) == 0 {
        server.expect("PING", "+PONG\r\n");
    }
    server.expect("GET key", "$5\r\nvalue\r\n");
    assert_eq!(ignored(&server), 1);
    assert_eq!(server.stop("TERM").code(), Some(0));
    let server = Running::start(directory.path(), &flags);
    server.expect("GET key", "$5\r\nvalue\r\n");
}

#[test]
fn hangups_while_a_store_is_opened_and_closed_end_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("SET key value", "+OK\r\n");
    server.stop("KILL");
    // The first signal is sent when the second server has logged its first line.
    let starts = |log: &str| log.matches("the server starts").count() == 2;
    let mut server = Running::spawn(directory.path(), &[]);
    while !starts(&std::fs::read_to_string(&server.log).unwrap()) {}
    server.signal("HUP");
    server.read_report();
    server.expect("GET key", "$5\r\nvalue\r\n");
    assert!(ignored(&server) > 0);
    server.signal("TERM");
    let ended = loop {
        match server.child.try_wait().unwrap() {
            Some(status) => break status,
            None => server.signal("HUP"),
        }
    };
    assert_eq!(ended.code(), Some(0));
    let server = Running::start(directory.path(), &[]);
    server.expect("GET key", "$5\r\nvalue\r\n");
}

/// A process that was stopped reads what has come meanwhile before it closes who was silent.
#[test]
fn who_has_sent_while_the_server_was_stopped_stays() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(
        directory.path(),
        &["--stall-timeout", "1", "--threads", "1"],
    );
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .write_all(b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nab")
        .unwrap();
    thread::sleep(Duration::from_millis(200));
    server.signal("STOP");
    stream.write_all(b"cd\r\n").unwrap();
    thread::sleep(Duration::from_secs(4));
    server.signal("CONT");
    let mut reply = [0; 5];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"+OK\r\n");
    // Who sends nothing more is closed as before.
    stream.write_all(b"*1\r\n").unwrap();
    assert_eq!(stream.read(&mut reply).unwrap(), 0);
}

#[test]
fn a_killed_server_starts_again_with_what_it_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("SET key value", "+OK\r\n");
    server.stop("KILL");
    let server = Running::start(directory.path(), &[]);
    server.expect("GET key", "$5\r\nvalue\r\n");
}

#[test]
fn the_report_says_where_how_and_what_was_recovered() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &["--io-backend", "pread"]);
    let report = server.report.join("\n");
    let store = directory.path().canonicalize().unwrap().join("pando-data");
    for part in [
        "ready",
        &server.address,
        &store.display().to_string(),
        "16.0 MiB",
        "I/O         pread, ",
        "128 reads in flight",
        "durable: a reply means on disk",
        "recovery    in ",
        "redis-cli -h 127.0.0.1 -p ",
    ] {
        assert!(report.contains(part), "{part} is not in\n{report}");
    }
}

#[test]
fn every_way_to_the_disk_serves_and_is_named_at_the_start_and_in_info() {
    for name in ["auto", "uring", "libaio", "pread"] {
        let directory = tempfile::tempdir().unwrap();
        let server = Running::start(directory.path(), &["--io-backend", name]);
        let report = server.report.join("\n");
        server.expect("SET key value", "+OK\r\n");
        server.expect("GET key", "$5\r\nvalue\r\n");
        let line = server.report.iter().find(|line| line.contains("I/O"));
        let used = line.and_then(|line| line.split_whitespace().nth(1));
        let used = used.unwrap().trim_end_matches(',');
        // If another way was used than the one asked for, the report says why.
        let told = used == name || name == "auto" || report.contains(&format!("not {name}: "));
        assert!(told, "{name}: {report}");
        let Answer::Bulk(info) = server.ask("INFO pando") else {
            panic!("no text");
        };
        let info = String::from_utf8(info).unwrap();
        assert!(info.contains(&format!("io_backend:{used}\r\n")), "{info}");
    }
}

#[test]
fn a_port_or_a_directory_in_use_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("PING", "+PONG\r\n");
    let other = tempfile::tempdir().unwrap();
    let port = pando(other.path())
        .args(["serve", "--listen", &server.address])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&port.stderr).into_owned();
    assert_eq!(port.status.code(), Some(2), "{text}");
    assert!(
        text.contains("--listen") && text.contains(&server.address),
        "{text}"
    );
    for command in ["serve", "stat", "verify"] {
        let mut second = pando(directory.path());
        second.arg(command);
        match command {
            "serve" => second.args(["--listen", "127.0.0.1:0", "--max-memory", "16m"]),
            _ => second.arg("pando-data"),
        };
        let output = second.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{command}: {text}");
        assert!(text.contains("in use"), "{text}");
    }
}

#[test]
fn a_password_from_the_file_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(
        directory.path().join("pando.toml"),
        "requirepass = 'secret'\n",
    )
    .unwrap();
    let server = Running::start(directory.path(), &[]);
    server.expect("GET key", "-NOAUTH");
    let mut report = server.report.iter();
    assert!(report.any(|line| line.ends_with("--askpass")));
}
