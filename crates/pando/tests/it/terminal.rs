//! What a terminal shows while long work runs. Such work may be killed.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use pando_resp::Answer;
use pando_sync::{thread, time};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::running::{Running, pando};
use crate::tools::store;

/// The program on a terminal of its own: as standard error, and of a view also as standard input
/// and output.
struct OnTerminal {
    child: Child,
    controller: File,
    seen: String,
}

/// Returns the two ends of a terminal: the controller, which reads what is shown, and the terminal.
fn terminal() -> (File, OwnedFd) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let controller = openpt(flags).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let terminal = ioctl_tiocgptpeer(&controller, flags).unwrap();
    (File::from(controller), terminal)
}

impl OnTerminal {
    fn start(directory: &Path, arguments: &[&str]) -> Self {
        let (controller, terminal) = terminal();
        let child = pando(directory)
            .args(arguments)
            .env("TERM", "xterm")
            .stdout(std::process::Stdio::null())
            .stderr(terminal)
            .spawn()
            .unwrap();
        Self {
            child,
            controller,
            seen: String::new(),
        }
    }

    /// Starts a view of the server at `port`.
    fn view(directory: &Path, port: &str) -> Self {
        let (controller, terminal) = terminal();
        let child = pando(directory)
            .args(["top", "--port", port])
            .env("TERM", "xterm")
            .stdin(terminal.try_clone().unwrap())
            .stderr(terminal.try_clone().unwrap())
            .stdout(terminal)
            .spawn()
            .unwrap();
        Self {
            child,
            controller,
            seen: String::new(),
        }
    }

    /// Reads what is shown next. Returns false when the program has ended.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        // The read fails once the program has ended.
        let count = self.controller.read(&mut bytes).unwrap_or(0);
        self.seen += &String::from_utf8_lossy(&bytes[..count]);
        count > 0
    }

    /// Reads until `text` was shown. Returns false if the program ends before that.
    fn shows(&mut self, text: &str) -> bool {
        while !self.seen.contains(text) {
            if !self.read() {
                return false;
            }
        }
        true
    }

    /// Reads to the end. Returns the exit code and all that was shown.
    fn finish(mut self) -> (Option<i32>, String) {
        while self.read() {}
        let status = self.child.wait().unwrap();
        (status.code(), std::mem::take(&mut self.seen))
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // The test may have waited for the child already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const VALUE_BYTES: usize = 1000;
/// These make about 13 MiB of log: too little for a checkpoint.
const KEYS: usize = 13_000;
const PIPELINE: usize = 500;
const SERVE: [&str; 5] = ["serve", "--listen", "127.0.0.1:0", "--max-memory", "16m"];

fn value_of(key: usize, round: usize) -> String {
    format!("{key}:{round}:").repeat(VALUE_BYTES / 4)[..VALUE_BYTES].to_owned()
}

/// Sets all keys, waits until all writes are acknowledged, and kills the server.
fn fill_and_kill(directory: &Path, round: usize) {
    let server = Running::start(directory, &["--durability", "durable"]);
    let mut client = server.client();
    for first in (0..KEYS).step_by(PIPELINE) {
        // The keys are not in order, so that replay descends to another leaf each time.
        for key in (first..first + PIPELINE).map(|at| at * 7919 % KEYS) {
            client.push(&["SET", &format!("key:{key}"), &value_of(key, round)]);
        }
        client.send().unwrap();
        for _ in 0..PIPELINE {
            assert_eq!(client.reply().unwrap(), Answer::Simple("OK".to_owned()));
        }
    }
    server.stop("KILL");
}

/// Returns the number of batches that the server says it has replayed.
fn replayed(server: &Running) -> u64 {
    let line = server.report.iter().find(|line| line.contains("recovery"));
    let words: Vec<&str> = line.unwrap().split_whitespace().collect();
    let at = words.iter().position(|word| *word == "batches").unwrap();
    words[at - 1].parse().unwrap()
}

#[test]
fn a_recovery_that_is_shown_and_killed_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    for round in 0..5 {
        fill_and_kill(here, round);
        for _ in 0..3 {
            let mut server = OnTerminal::start(here, &SERVE);
            let shown = server.shows("log replayed: ");
            assert!(shown, "{}", server.seen);
            server.kill();
        }
        let server = Running::start(here, &[]);
        for key in (0..KEYS).step_by(7) {
            let value = value_of(key, round);
            let reply = format!("${VALUE_BYTES}\r\n{value}\r\n");
            server.expect(&format!("GET key:{key}"), &reply);
        }
        server.expect("DBSIZE", &format!(":{KEYS}\r\n"));
        let batches = replayed(&server);
        server.stop("TERM");
        // A recovery that finished before it was killed has left nothing to replay.
        if batches > 0 {
            return;
        }
    }
    panic!("all recoveries were quicker than their kills");
}

#[test]
fn tools_show_a_bar_on_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    let here = directory.path();
    store(here);
    for (tool, doing) in [("verify", "pages checked"), ("stat", "pages read")] {
        let (code, seen) = OnTerminal::start(here, &[tool, "store"]).finish();
        assert_eq!(code, Some(0), "{seen}");
        assert!(seen.contains(doing) && seen.contains('%'), "{seen}");
        let output = pando(here).args([tool, "store"]).output().unwrap();
        assert!(
            output.stderr.is_empty(),
            "without a terminal, no line is printed in the first ten seconds"
        );
    }
}

#[test]
fn a_view_ends_when_its_terminal_goes_away() {
    let place = tempfile::tempdir().unwrap();
    let server = Running::start(place.path(), &[]);
    let port = server.address.rsplit(':').next().unwrap();
    // Each signal finds the view in another state.
    for _ in 0..6 {
        let mut view = OnTerminal::view(place.path(), port);
        assert!(view.shows("\u{1b}[?1049h"), "{}", view.seen);
        // No signal is sent, since this is not the controlling terminal of a session.
        view.controller = File::open("/dev/null").unwrap();
        let started = time::now();
        while view.child.try_wait().unwrap().is_none() {
            assert!(
                time::now() - started < Duration::from_secs(30),
                "the view keeps running"
            );
            thread::yield_now();
        }
    }
}

#[test]
fn part_of_a_character_keeps_nothing_waiting() {
    let place = tempfile::tempdir().unwrap();
    let server = Running::start(place.path(), &[]);
    let port = server.address.rsplit(':').next().unwrap();
    for part in [&b"\xc3"[..], b"\x1b["] {
        let mut view = OnTerminal::view(place.path(), port);
        assert!(view.shows("\u{1b}[?1049h"), "{}", view.seen);
        view.controller.write_all(part).unwrap();
        // The view waits in a loop that polls from time to time.
        thread::sleep(Duration::from_millis(300));
        let pid = view.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
        assert!(told.success());
        let started = time::now();
        while view.child.try_wait().unwrap().is_none() {
            let since = time::now() - started;
            assert!(since < Duration::from_secs(30), "{part:?}: it waits");
            thread::yield_now();
        }
    }
}
