//! Single questions to a server: whether it is ready, what it is, what it has counted.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;

use pando_resp::{Answer, Client, ClientOptions};

use crate::error::{Error, Result};

/// A blocking connection.
#[derive(Debug)]
pub(super) struct Control {
    client: Client,
    address: SocketAddr,
}

/// The fields of INFO.
#[derive(Debug, Default, Clone)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// Returns the growth of `name` since `before`.
    pub(super) fn grown(&self, before: &Self, name: &str) -> Option<f64> {
        Some(self.number(name)? - before.number(name)?)
    }

    /// Returns the name and the version of the server.
    pub(super) fn server(&self) -> String {
        let known = [("pando", "pando_version"), ("redis", "redis_version")];
        let version = |(name, field)| Some(format!("{name} {}", self.text(field)?));
        known
            .into_iter()
            .find_map(version)
            .unwrap_or_else(|| "unknown".to_owned())
    }
}

fn failed(address: SocketAddr) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io {
        during: format!("talking to the server at {address}"),
        source,
    }
}

impl Control {
    pub(super) fn new(address: SocketAddr) -> Result<Self> {
        let client = Client::connect(&[address], ClientOptions::default());
        Ok(Self {
            client: client.map_err(failed(address))?,
            address,
        })
    }

    fn ask(&mut self, words: &[&str]) -> Result<Answer> {
        self.client.call(words).map_err(failed(self.address))
    }

    /// Returns true once the server has its data.
    ///
    /// # Errors
    /// The server refuses for any reason other than loading.
    pub(super) fn is_ready(&mut self) -> Result<bool> {
        match self.ask(&["PING"])? {
            Answer::Simple(text) if text == "PONG" => Ok(true),
            Answer::Error(text) if text.starts_with("LOADING") => Ok(false),
            other => Err(Error::Wrong {
                workload: "PING",
                what: format!("{other:?}"),
            }),
        }
    }

    /// Returns all sections of INFO.
    pub(super) fn info(&mut self) -> Result<Info> {
        let text = match self.ask(&["INFO", "everything"])? {
            Answer::Bulk(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Answer::Verbatim(text) => text,
            other => {
                let (workload, what) = ("INFO", format!("{other:?}"));
                return Err(Error::Wrong { workload, what });
            }
        };
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        let own = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
        Ok(Info(own.collect()))
    }
}
