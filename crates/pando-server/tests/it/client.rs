//! A blocking client that shows replies as short text.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use pando_resp::client::write_command;
use pando_resp::{Answer, ClientOptions};

/// A connection to a server.
pub(crate) struct Client {
    replies: pando_resp::Client,
    /// The same socket, for anything that is not a command.
    pub(crate) stream: TcpStream,
}

/// Returns the bytes of a command.
pub(crate) fn encode<A: AsRef<[u8]>>(arguments: &[A]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_command(&mut bytes, arguments);
    bytes
}

/// Returns the words of a command. `''` is the empty word.
pub(crate) fn words(command: &str) -> Vec<&str> {
    let word = |word| if word == "''" { "" } else { word };
    command.split_whitespace().map(word).collect()
}

/// Returns a reply as text: `+OK`, `-ERR ...`, `:1`, `"bulk"`, `nil`, `[array]`, `{map}`, `~(set)`.
pub(crate) fn show(answer: &Answer) -> String {
    let list = |items: &[Answer]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match answer {
        Answer::Simple(text) => format!("+{text}"),
        Answer::Error(text) => format!("-{text}"),
        Answer::Integer(value) => format!(":{value}"),
        Answer::Bulk(bytes) => format!("\"{}\"", String::from_utf8_lossy(bytes)),
        Answer::Null => "nil".to_owned(),
        Answer::Array(items) => format!("[{}]", list(items)),
        Answer::Set(items) => format!("~({})", list(items)),
        Answer::Push(items) => format!(">({})", list(items)),
        Answer::Map(pairs) => {
            let mut text = String::new();
            for (key, value) in pairs {
                let _ = write!(text, "{}={} ", show(key), show(value));
            }
            format!("{{{}}}", text.trim_end())
        }
        Answer::Double(value) => format!(",{value}"),
        Answer::Boolean(value) => format!("#{value}"),
        Answer::BigNumber(digits) => format!("({digits}"),
        Answer::Verbatim(text) => format!("={text}"),
        other => format!("{other:?}"),
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let options = ClientOptions {
            // Under a sanitizer, beside other tests, an EXEC over long lists takes minutes.
            timeout: Duration::from_secs(240),
            reply_bytes_max: 1 << 30,
        };
        let replies = pando_resp::Client::connect(&[address], options).unwrap();
        let stream = replies.stream().try_clone().unwrap();
        stream.set_read_timeout(Some(options.timeout)).unwrap();
        Self { replies, stream }
    }

    /// Returns the number of bytes of all replies so far.
    pub(crate) fn received(&self) -> u64 {
        self.replies.received()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the next reply, or `None` if the server has closed the connection.
    pub(crate) fn try_answer(&mut self) -> Option<Answer> {
        match self.replies.reply() {
            Ok(answer) => Some(answer),
            Err(error) => match error.kind() {
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => None,
                _ => panic!("no reply: {error}"),
            },
        }
    }

    /// Returns true if bytes have come that no reply was made of.
    pub(crate) fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        match peeked {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("the connection is broken: {error}"),
        }
    }

    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer()
            .expect("the server has closed the connection")
    }

    pub(crate) fn call<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Answer {
        self.send(&encode(arguments));
        self.answer()
    }

    /// Sends the words of `command`. Returns the reply as text.
    pub(crate) fn run(&mut self, command: &str) -> String {
        show(&self.call(&words(command)))
    }

    /// Sends the words of `command`. Returns the reply as it is.
    pub(crate) fn run_raw(&mut self, command: &str) -> Answer {
        self.call(&words(command))
    }

    /// Sends `command`, whose reply is a pair. Returns the value of the pair.
    pub(crate) fn text_of(&mut self, command: &str) -> String {
        match self.run_raw(command) {
            Answer::Array(mut pair) => match pair.pop() {
                Some(Answer::Bulk(bytes)) => String::from_utf8(bytes).unwrap(),
                other => panic!("{command}: {other:?}"),
            },
            other => panic!("{command}: {other:?}"),
        }
    }

    /// Runs each command, and checks that it has the reply next to it.
    #[track_caller]
    pub(crate) fn check(&mut self, script: &[(&str, &str)]) {
        for (command, expected) in script {
            assert_eq!(self.run(command), *expected, "{command}");
        }
    }

    /// Returns true if the server has closed the connection without further replies.
    pub(crate) fn is_closed(&mut self) -> bool {
        self.try_answer().is_none()
    }

    /// Sends `command`, whose reply is an integer. Returns the integer.
    pub(crate) fn integer(&mut self, command: &str) -> i64 {
        match self.call(&words(command)) {
            Answer::Integer(value) => value,
            other => panic!("{command}: {other:?}"),
        }
    }

    /// Sends `command`, whose reply is text. Returns the text.
    pub(crate) fn text(&mut self, command: &str) -> String {
        match self.call(&words(command)) {
            Answer::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            Answer::Verbatim(text) => text,
            other => panic!("{command}: {other:?}"),
        }
    }
}

impl Client {
    /// Returns the reply to PING, or `None` if the server refuses this client.
    pub(crate) fn try_answer_to_ping(&mut self) -> Option<String> {
        self.try_answer_to("PING")
    }

    /// Returns the reply to `command`, or `None` if the server has closed the connection.
    pub(crate) fn try_answer_to(&mut self, command: &str) -> Option<String> {
        self.stream
            .write_all(format!("{command}\r\n").as_bytes())
            .ok()?;
        self.try_answer().map(|answer| show(&answer))
    }
}
