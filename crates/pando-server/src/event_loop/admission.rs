//! Messages from other threads: new connections, the opened engine, the end of the server.

use std::io;
use std::os::fd::AsRawFd as _;
use std::task::Waker;

use mio::Interest;
use mio::unix::SourceFd;
use pando_sync::Arc;
use pando_sync::atomic::Ordering;
use pando_sync::time::now;

use super::{EventLoop, WAKER};
use crate::client::record::ClientRecord;
use crate::connection::Connection;
use crate::connection::loop_data::LoopData;
use crate::data::cleaner::Cleaner;
use crate::data::keyspace::DATABASES;
use crate::event_loop::keepalive::keep_alive;
use crate::loop_handle::{Message, Token, TokenWake};
use crate::socket::{Address, Stream};

impl EventLoop {
    pub(super) fn take_message(&mut self, message: Message) {
        match message {
            Message::Accept(stream, address) => {
                if self.stop_at.is_none() && self.accept(stream, address).is_ok() {
                    return;
                }
                self.handle.connections.fetch_sub(1, Ordering::Relaxed);
            }
            Message::Touch(token) => self.look_at(token),
            // Nothing of a connection runs while messages are taken, and it looks whether it is
            // killed before it begins or resumes a command.
            Message::Kill(token, arrival) => {
                // Also one that closes once its replies are sent, which its peer does not read.
                if let Some(connection) = self.connections.get(token) {
                    connection.broken = true;
                }
                self.touch(token);
                self.kill_away(token, arrival);
            }
            Message::Returned => self.take_returned(),
            // The round that it has is all.
            Message::Turn => {}
            Message::EngineReady => self.engine_ready(),
            Message::Stop => {
                self.stop_at = Some(now() + self.shared.options.shutdown_timeout);
                for token in self.connections.tokens() {
                    // A command that waits for an event that may never come is not waited for.
                    if let Some(connection) = self.connections.get(token)
                        && connection.may_wait_for_ever()
                    {
                        connection.broken = true;
                    }
                    self.touch(token);
                }
            }
        }
    }

    /// Gives a turn to a connection whose record has changed; one that was killed is only closed.
    fn look_at(&mut self, token: Token) {
        let connection = self.connections.get(token);
        let is_killed = connection.is_some_and(|of| of.record.is_killed());
        match is_killed {
            true => self.touch(token),
            false => self.enqueue(token),
        }
    }

    /// Registers a new connection with this loop and in the registry of clients.
    ///
    /// # Errors
    /// The socket refuses; it is closed.
    pub(super) fn accept(&mut self, mut stream: Stream, address: Address) -> io::Result<()> {
        let local_address = match &stream {
            Stream::Tcp(stream) => {
                stream.set_nodelay(true)?;
                // If the option cannot be set, the connection is served all the same.
                let _: io::Result<()> = keep_alive(stream, self.shared.settings.tcp_keepalive_s());
                Address::Tcp(stream.local_addr()?)
            }
            Stream::Unix(_) => address.clone(),
        };
        let (shared, handle, loop_index) = (&self.shared, &self.handle, self.index);
        let registry = self.poll.registry();
        let mut registered = Ok(());
        let token = self.connections.insert(|token| {
            if let Token::Connection { index, .. } = token {
                let interest = Interest::READABLE | Interest::WRITABLE;
                let mio_token = mio::Token(index as usize + 1);
                registered = registry.register(&mut stream, mio_token, interest);
            }
            let id = shared.clients.next_id();
            let addresses = (address, local_address);
            let file = stream.as_raw_fd();
            let record = Arc::new(ClientRecord::new(id, addresses, file, loop_index, token));
            shared.clients.insert(record.clone());
            let wake = TokenWake::new(token, handle.clone());
            let authenticated = !shared.settings.has_password();
            Connection::new(stream, record, wake, now(), authenticated)
        });
        if let Err(error) = registered {
            if let Some(connection) = self.connections.remove(token) {
                self.shared.clients.remove(connection.record.id);
            }
            return Err(error);
        }
        // Its first turn comes with the event that the registration raises: behind the events of
        // those that were closed before it was opened.
        Ok(())
    }

    /// Creates the engine's side of this loop, and lets commands that need data run.
    pub(super) fn engine_ready(&mut self) {
        let Some(engine) = self.shared.engine() else {
            return;
        };
        let loops = self.shared.loops.len();
        let databases = (0..DATABASES)
            .filter(|number| number % loops == self.index)
            .collect();
        let waker = Waker::from(self.cleaner_wake.clone());
        self.cleaner = Some(Cleaner::new(&engine, databases, waker));
        match LoopData::new(engine, Waker::from(self.reactor_wake.clone())) {
            Ok(data) => {
                // It shares the waker's token: its event only ends the sleep, and every round polls
                // the engine.
                if let Some(fd) = data.reactor.completion_fd()
                    && let Err(source) =
                        self.poll
                            .registry()
                            .register(&mut SourceFd(&fd), WAKER, Interest::READABLE)
                {
                    self.shared.fail(pandodb::Error::Poisoned {
                        cause: format!("waiting for the device: {source}"),
                    });
                    return;
                }
                self.data = Some(data);
                self.shared.loop_is_ready();
            }
            Err(error) => self.shared.fail(error),
        }
    }
}
