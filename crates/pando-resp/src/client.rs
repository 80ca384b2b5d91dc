//! A blocking client: commands are sent, and their replies are read one after the other. For tools,
//! tests and benchmarks; the only part of this crate with a socket.
//!
//! A server is trusted as little as a client. [`ClientOptions`] bounds the length of a reply and
//! the time until it is complete, and memory is used only for bytes that have arrived, whatever
//! length a reply declares.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use pando_sync::time::{Duration, now};

use crate::answer::Answer;

const CHUNK_BYTES: usize = 64 << 10;

/// Limits of a [`Client`].
#[derive(Debug, Clone, Copy)]
pub struct ClientOptions {
    /// Maximum time to connect, to send a request, and to wait for a reply.
    pub timeout: Duration,
    /// Maximum length of a reply on the wire, in bytes.
    pub reply_bytes_max: usize,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            reply_bytes_max: 64 << 20,
        }
    }
}

/// Appends an encoded command to `out`.
pub fn write_command<W: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[W]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// A connection to a server. It cannot be used after an error.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    options: ClientOptions,
    request: Vec<u8>,
    input: Vec<u8>,
    received: u64,
}

impl Client {
    /// Connects to the first of `addresses` that accepts the connection.
    ///
    /// # Errors
    /// None of them accepts it, or there are no addresses.
    pub fn connect(addresses: &[SocketAddr], options: ClientOptions) -> io::Result<Self> {
        let mut result = Err(io::Error::new(ErrorKind::NotFound, "no address"));
        for address in addresses {
            result = TcpStream::connect_timeout(address, options.timeout);
            if result.is_ok() {
                break;
            }
        }
        let stream = result?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(options.timeout))?;
        Ok(Self {
            stream,
            options,
            request: Vec::new(),
            input: Vec::new(),
            received: 0,
        })
    }

    /// Returns the socket, for everything that is not a command.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the number of bytes of all replies so far.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Adds a command to the request that [`Client::send`] sends.
    pub fn push<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        write_command(&mut self.request, words);
    }

    /// Sends the commands that were pushed.
    ///
    /// # Errors
    /// Those of the connection; `TimedOut` if the server accepts nothing for the time in the
    /// options.
    pub fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.write_all(&self.request).map_err(timed);
        self.request.clear();
        sent
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// Those of [`Client::send`] and [`Client::reply`]. After an error it is unknown whether the
    /// command was executed.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Answer> {
        self.push(words);
        self.send()?;
        self.reply()
    }

    /// Blocks until the next reply is complete, and returns it.
    ///
    /// # Errors
    /// `UnexpectedEof` if the server has closed the connection, `TimedOut` if the reply is not
    /// complete in time, `InvalidData` if it is malformed or too long; and those of the connection.
    pub fn reply(&mut self) -> io::Result<Answer> {
        let deadline = now() + self.options.timeout;
        loop {
            // Nothing is built until the reply is complete.
            if let Some(length) = Answer::length(&self.input).map_err(invalid)? {
                let reply = Answer::parse(&self.input[..length]).map_err(invalid)?;
                self.input.drain(..length);
                self.received += length as u64;
                let whole = reply.map(|(answer, _)| answer);
                return whole.ok_or_else(|| invalid("a reply that is not whole"));
            }
            let longest = self.options.reply_bytes_max;
            if self.input.len() > longest {
                return Err(invalid(format!("a reply of more than {longest} bytes")));
            }
            let left = deadline.saturating_duration_since(now());
            if left.is_zero() {
                return Err(timed(ErrorKind::WouldBlock.into()));
            }
            self.stream.set_read_timeout(Some(left))?;
            self.fill()?;
        }
    }

    /// Reads from the socket once.
    fn fill(&mut self) -> io::Result<()> {
        let end = self.input.len();
        self.input.resize(end + CHUNK_BYTES, 0);
        let read = self.stream.read(&mut self.input[end..]);
        self.input.truncate(end + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(io::Error::new(
                ErrorKind::UnexpectedEof,
                "the server has hung up",
            )),
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) => Err(timed(error)),
        }
    }
}

fn invalid(error: impl ToString) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}

/// Translates an error: a socket with a deadline reports that it would block.
fn timed(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no reply in time"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use pando_sync::thread;
    use proptest::prelude::*;

    use super::*;
    use crate::reply::{Version, Writer};

    fn quick() -> ClientOptions {
        ClientOptions {
            timeout: Duration::from_secs(20),
            reply_bytes_max: 1 << 20,
        }
    }

    /// Runs `run` with a client whose server is `serve`. Returns the result.
    fn served<T>(
        options: ClientOptions,
        serve: impl FnOnce(TcpStream) + Send,
        run: impl FnOnce(Client) -> T,
    ) -> T {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| serve(listener.accept().unwrap().0));
            run(Client::connect(&[address], options).unwrap())
        })
    }

    /// Returns the error for a reply that begins with `bytes` and continues with `more` until the
    /// client has closed the connection.
    fn error_of(options: ClientOptions, bytes: &[u8], more: &[u8]) -> ErrorKind {
        let serve = |mut stream: TcpStream| {
            let mut sent = stream.write_all(bytes);
            while sent.is_ok() && !more.is_empty() {
                sent = stream.write_all(more);
            }
        };
        served(options, serve, |mut client| {
            client.reply().unwrap_err().kind()
        })
    }

    #[test]
    fn what_is_no_reply_is_an_error_whatever_it_says_of_its_length() {
        let huge = b"$9223372036854775807\r\n";
        let cases: [(&[u8], &[u8], ErrorKind); 8] = [
            (b"HTTP/1.1 400 Bad Request\r\n", b"", ErrorKind::InvalidData),
            (b"$3\r\nabcd\r\n", b"", ErrorKind::InvalidData),
            (&b"*1\r\n".repeat(1000), b":1\r\n", ErrorKind::InvalidData),
            // These replies never end: a line, a value, and an array.
            (b"+", &[b'a'; 10_000], ErrorKind::InvalidData),
            (huge, &[b'a'; 10_000], ErrorKind::InvalidData),
            (
                b"*9223372036854775807\r\n",
                &b":1\r\n".repeat(1000),
                ErrorKind::InvalidData,
            ),
            (huge, b"", ErrorKind::UnexpectedEof),
            (b"", b"", ErrorKind::UnexpectedEof),
        ];
        for (bytes, more, kind) in cases {
            let begin = String::from_utf8_lossy(&bytes[..bytes.len().min(30)]).into_owned();
            assert_eq!(error_of(quick(), bytes, more), kind, "{begin}");
        }
    }

    #[test]
    fn a_reply_that_never_ends_is_given_up_however_often_a_part_of_it_comes() {
        let options = ClientOptions {
            timeout: Duration::from_millis(50),
            reply_bytes_max: usize::MAX,
        };
        let serve = |mut stream: TcpStream| {
            let _ = stream.write_all(b"+");
            // This takes several hundred times as long as the client waits.
            for _ in 0..300_000 {
                if stream.write_all(b"a").is_err() {
                    break;
                }
            }
        };
        let kind = served(options, serve, |mut client| {
            client.push(&["PING"]);
            client.send().unwrap();
            client.reply().unwrap_err().kind()
        });
        assert_eq!(kind, ErrorKind::TimedOut);
    }

    #[test]
    fn commands_are_what_the_parser_of_the_server_reads() {
        let mut bytes = Vec::new();
        write_command(&mut bytes, &[&b"SET"[..], b"", b"\r\n\0"]);
        assert_eq!(bytes, b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\n\r\n\0\r\n");
        assert!(Client::connect(&[], quick()).is_err());
    }

    fn answers() -> impl Strategy<Value = Answer> {
        let text = "[a-zA-Z ]{0,20}";
        let leaf = prop_oneof![
            text.prop_map(Answer::Simple),
            text.prop_map(Answer::Error),
            any::<i64>().prop_map(Answer::Integer),
            prop::collection::vec(any::<u8>(), 0..3000).prop_map(Answer::Bulk),
            Just(Answer::Null),
            any::<bool>().prop_map(Answer::Boolean),
            (-1e9..1e9).prop_map(Answer::Double),
            "[0-9]{1,40}".prop_map(Answer::BigNumber),
            "[a-z\r\n]{0,40}".prop_map(Answer::Verbatim),
        ];
        leaf.prop_recursive(4, 40, 6, |inner| {
            let list = prop::collection::vec(inner.clone(), 0..6);
            prop_oneof![
                list.clone().prop_map(Answer::Array),
                list.clone().prop_map(Answer::Set),
                list.prop_map(Answer::Push),
                prop::collection::vec((inner.clone(), inner), 0..4).prop_map(Answer::Map),
            ]
        })
    }

    fn write(answer: &Answer, to: &mut Writer<'_>) {
        let list = match answer {
            Answer::Simple(text) => return to.simple(text),
            Answer::Error(text) => return to.error(text),
            Answer::Integer(value) => return to.integer(*value),
            Answer::Bulk(bytes) => return to.bulk(bytes),
            Answer::Null => return to.null(),
            Answer::Boolean(value) => return to.boolean(*value),
            Answer::Double(value) => return to.double(*value),
            Answer::BigNumber(digits) => return to.big_number(digits.as_bytes()),
            Answer::Verbatim(text) => return to.verbatim(text),
            Answer::Array(list) => {
                to.array(list.len());
                list
            }
            Answer::Set(list) => {
                to.set(list.len());
                list
            }
            Answer::Push(list) => {
                to.push(list.len());
                list
            }
            Answer::Map(pairs) => {
                to.map(pairs.len());
                pairs.iter().for_each(|(key, value)| {
                    write(key, to);
                    write(value, to);
                });
                return;
            }
        };
        list.iter().for_each(|answer| write(answer, to));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn replies_arrive_as_the_server_writes_them_in_whatever_pieces(
            answers in prop::collection::vec(answers(), 1..5),
            piece in 1_usize..5000,
        ) {
            let mut bytes = Vec::new();
            let mut writer = Writer::new(&mut bytes, Version::Resp3);
            answers.iter().for_each(|answer| write(answer, &mut writer));
            let serve = |mut stream: TcpStream| {
                stream.set_nodelay(true).unwrap();
                bytes.chunks(piece).for_each(|piece| stream.write_all(piece).unwrap());
            };
            let (read, received, after) = served(quick(), serve, |mut client| {
                let read: Vec<_> = answers.iter().map(|_| client.reply().unwrap()).collect();
                (read, client.received(), client.reply().unwrap_err().kind())
            });
            prop_assert_eq!(read, answers);
            prop_assert_eq!(received, bytes.len() as u64);
            prop_assert_eq!(after, ErrorKind::UnexpectedEof);
        }
    }
}
