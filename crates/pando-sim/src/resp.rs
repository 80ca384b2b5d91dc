//! A small blocking client of the server: requests as arrays, RESP2 replies.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use pando_sync::time::Duration;

/// A reply that takes longer is an error.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longest reply that is believed.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Simple(String),
    /// `-ERR ...`
    Error(String),
    /// `:1`
    Integer(i64),
    /// A value, or none.
    Bulk(Option<Vec<u8>>),
    /// Several replies, or none.
    Array(Option<Vec<Reply>>),
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    reader: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// Of the connection.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            reader: BufReader::new(stream),
            request: Vec::new(),
        })
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// Of the connection: nobody knows whether the command was done.
    pub fn call(&mut self, words: &[&[u8]]) -> io::Result<Reply> {
        self.push(words);
        self.send()?;
        self.reply()
    }

    /// Adds a command to what [`Client::send`] sends.
    pub fn push(&mut self, words: &[&[u8]]) {
        self.request
            .extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            self.request
                .extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            self.request.extend_from_slice(word);
            self.request.extend_from_slice(b"\r\n");
        }
    }

    /// Sends the commands that were pushed.
    ///
    /// # Errors
    /// Of the connection.
    pub fn send(&mut self) -> io::Result<()> {
        self.reader.get_mut().write_all(&self.request)?;
        self.request.clear();
        Ok(())
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// Of the connection, or of what came over it.
    pub fn reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).unwrap_or(("", ""));
        let number = || rest.parse::<i64>().map_err(|_| strange(line));
        Ok(match kind {
            "+" => Reply::Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Integer(number()?),
            "$" => match usize::try_from(number()?) {
                Err(_) => Reply::Bulk(None),
                Ok(bytes) if bytes > REPLY_BYTES_MAX => return Err(strange(line)),
                Ok(bytes) => {
                    let mut value = vec![0; bytes + 2];
                    self.reader.read_exact(&mut value)?;
                    value.truncate(bytes);
                    Reply::Bulk(Some(value))
                }
            },
            "*" => match usize::try_from(number()?) {
                Err(_) => Reply::Array(None),
                Ok(count) => {
                    let replies: io::Result<Vec<_>> = (0..count).map(|_| self.reply()).collect();
                    Reply::Array(Some(replies?))
                }
            },
            _ => return Err(strange(line)),
        })
    }
}

fn strange(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {line:?}"))
}
