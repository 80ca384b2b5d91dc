//! Starting and stopping the server.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use mio::Poll;
use mio::net::TcpListener;
use pando_sync::{Arc, thread};
use pandodb::Db;

use crate::acceptor;
use crate::commands::{FAMILIES, start_parameters};
use crate::context::CommandIndex;
use crate::data::engine::Engine;
use crate::error::Error;
use crate::event_loop::{EventLoop, WAKER};
use crate::figures::statistics::ServerStatistics;
use crate::http::HttpEndpoint;
use crate::loop_handle::{LoopHandle, Message};
use crate::options::ServerOptions;
use crate::script_threads::ScriptThreads;
use crate::settings::{Settings, allowed_clients};
use crate::shared::Shared;
use crate::socket::{Listener, UnixSocket};

/// What fails when there are no addresses: much more is mapped than is used.
const NO_ADDRESSES: &str = "no addresses for statistics; raise the limits of the process (ulimit -v \
                            and -d) or of the system (vm.overcommit_memory)";

/// A server that listens but does not serve yet.
pub struct Server {
    shared: Arc<Shared>,
    commands: Arc<CommandIndex>,
    polls: Vec<Poll>,
    acceptor: Poll,
    listeners: Vec<Listener>,
    metrics: HttpEndpoint,
    /// Wakes the metrics endpoint from its wait, so that it sees the end of the server.
    metrics_waker: mio::Waker,
}

/// A handle to a running server; usable from any thread.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
}

impl Handle {
    /// Begins a graceful shutdown: no connections are accepted and no commands begin; running
    /// commands finish, their replies are sent, and the store is closed. Returns at once.
    pub fn shutdown(&self) {
        self.shared.stop();
    }

    /// Returns the text of INFO with all sections.
    pub fn info(&self) -> String {
        crate::commands::info_all(&self.shared)
    }

    /// Returns true once recovery is done, until the server begins to stop.
    pub fn is_serving(&self) -> bool {
        self.shared.stage() == crate::shared::Stage::Serving
    }
}

impl Server {
    /// Listens on all addresses of `options`. Clients that connect wait until [`Server::serve`].
    ///
    /// # Errors
    /// An address is taken or does not belong to this machine, a parameter is refused, or the
    /// system is out of resources.
    pub fn bind(options: ServerOptions) -> Result<Self, Error> {
        check_addresses(&options)?;
        let io = |operation| move |source| Error::Io { operation, source };
        let acceptor = Poll::new().map_err(io("waiting for connections"))?;
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for address in &options.listen {
            let (listener, address) = listen(&acceptor, *address, listeners.len() + 1)?;
            listeners.push(listener);
            addresses.push(address);
        }
        if let Some(path) = &options.unix_socket {
            let token = listeners.len() + 1;
            let listening = listen_unix(&acceptor, (path, options.unix_socket_mode), token);
            let failed = |source| Error::Socket {
                path: path.clone(),
                source,
            };
            listeners.push(listening.map_err(failed)?);
        }
        let (metrics, metrics_waker) = HttpEndpoint::bind(&options.metrics_listen)?;
        let threads = match options.threads {
            0 => pando_sync::core_count(),
            threads => threads,
        };
        let commands = Arc::new(CommandIndex::new(FAMILIES));
        let (mut polls, mut loops) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let poll = Poll::new().map_err(io("waiting for events"))?;
            let waker = mio::Waker::new(poll.registry(), WAKER).map_err(io("making a waker"))?;
            loops.push(Arc::new(LoopHandle::new(waker)));
            polls.push(poll);
        }
        let waker = mio::Waker::new(acceptor.registry(), WAKER).map_err(io("making a waker"))?;
        let statistics = ServerStatistics::new(commands.names()).map_err(io(NO_ADDRESSES))?;
        let settings = Settings::new(&options, allowed_clients(options.maxclients, threads));
        let shared = Shared::new(options, settings, addresses, loops, statistics, waker);
        start_parameters(&shared).map_err(|(name, reason)| Error::Parameter { name, reason })?;
        Ok(Self {
            shared: Arc::new(shared),
            commands,
            polls,
            acceptor,
            listeners,
            metrics,
            metrics_waker,
        })
    }

    /// Returns the addresses it listens on, in the order of the options; each port 0 is replaced by
    /// the port that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses
    }

    /// Returns the addresses on which metrics are served, in the same way.
    pub fn metrics_addresses(&self) -> &[SocketAddr] {
        &self.metrics.addresses
    }

    /// Returns a handle that can stop the server.
    pub fn handle(&self) -> Handle {
        Handle {
            shared: self.shared.clone(),
        }
    }

    /// Starts a thread for each event loop.
    fn start_loops(
        &mut self,
        script_threads: &Arc<ScriptThreads>,
    ) -> Result<Vec<thread::JoinHandle<io::Result<()>>>, Error> {
        let mut threads = Vec::new();
        for (index, poll) in self.polls.drain(..).enumerate() {
            let handle = self.shared.loops[index].clone();
            let (shared, commands) = (self.shared.clone(), self.commands.clone());
            let of_server = (shared, commands, script_threads.clone());
            let run = move || EventLoop::new(index, poll, handle, of_server).run();
            threads.push(spawn("pando-loop", run)?);
        }
        Ok(threads)
    }

    /// Serves until a [`Handle`] or SHUTDOWN stops it; blocks. `opener` opens the store on a thread
    /// of its own; until it returns, commands that need the store are answered with `-LOADING`.
    ///
    /// # Errors
    /// The store did not open or did not close, or a thread could not be started.
    pub fn serve(
        mut self,
        opener: impl FnOnce() -> pandodb::Result<Db> + Send + 'static,
    ) -> Result<(), Error> {
        let addresses = &self.shared.addresses;
        let (metrics, unix_socket) = (&self.metrics.addresses, &self.shared.options.unix_socket);
        tracing::info!(?addresses, ?unix_socket, ?metrics, "listening");
        let script_threads = ScriptThreads::new(self.shared.clone(), self.commands.clone());
        let threads = self.start_loops(&script_threads)?;
        let metrics = match self.metrics.addresses.is_empty() {
            true => None,
            false => {
                let (metrics, shared) = (self.metrics, self.shared.clone());
                Some(spawn("pando-metrics", move || metrics.run(&shared))?)
            }
        };
        let shared = self.shared.clone();
        let opening = spawn("pando-open", move || match opener().and_then(Engine::new) {
            Ok(engine) => shared.set_engine(engine),
            Err(error) => shared.fail(error),
        })?;
        let accepted = acceptor::run(&mut self.acceptor, &self.listeners, &self.shared);
        // No client is left waiting in the backlog of a server that stops.
        self.listeners.clear();
        self.shared.stop();
        for handle in &self.shared.loops {
            handle.send(Message::Stop);
        }
        let mut result = accepted.map_err(|source| Error::Io {
            operation: "waiting for connections",
            source,
        });
        // If the wake fails, the endpoint is awake already.
        let _: io::Result<()> = self.metrics_waker.wake();
        for thread in threads.into_iter().chain(metrics) {
            let ended = thread.join().map_err(|_| Error::Panicked {
                thread: "loop or metrics",
            });
            let ended = ended.and_then(|ended| {
                ended.map_err(|source| Error::Io {
                    operation: "waiting for events",
                    source,
                })
            });
            result = result.and(ended);
        }
        script_threads.stop();
        // A recovery that still runs is not waited for: it ends with the process.
        if opening.is_finished() {
            let joined = opening
                .join()
                .map_err(|_| Error::Panicked { thread: "opening" });
            result = result.and(joined);
        }
        if let Some(error) = self.shared.take_failure() {
            result = result.and(Err(Error::Engine(error)));
        }
        self.shared.compaction.end();
        self.shared.store_dump.work.end();
        if let Some(engine) = self.shared.take_engine() {
            let db = engine.db.clone();
            drop(engine);
            let closed = db.close().map_err(Error::Engine);
            result = result.and(closed);
        }
        match &result {
            Ok(()) => tracing::info!("the server has stopped"),
            Err(error) => tracing::error!(%error, "the server has stopped"),
        }
        result
    }
}

/// Refuses an address that is given twice: the system would say that it is in use, which sounds as
/// if another process listened there.
fn check_addresses(options: &ServerOptions) -> Result<(), Error> {
    let of_clients = options.listen.iter().map(|address| ("listen", *address));
    let of_metrics = options.metrics_listen.iter();
    let of_metrics = of_metrics.map(|address| ("metrics-listen", *address));
    let mut known = Vec::new();
    for (name, address) in of_clients.chain(of_metrics) {
        let same = known.iter().find(|(_, of)| overlap(*of, address));
        if let Some((of, other)) = same {
            let reason = match *other == address {
                true => format!("{address} is given twice, here and as {of}: leave one out"),
                false => format!("{address} and {other}, given as {of}, overlap: leave one out"),
            };
            return Err(Error::Parameter {
                name: name.to_owned(),
                reason,
            });
        }
        known.push((name, address));
    }
    Ok(())
}

/// Returns true if nobody can listen on both addresses.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let is_all = |address: SocketAddr| address.ip().is_unspecified();
    let is_same = a.ip() == b.ip() || a.is_ipv4() == b.is_ipv4() && (is_all(a) || is_all(b));
    // Port 0 is another one each time.
    a.port() != 0 && a.port() == b.port() && is_same
}

fn listen(
    acceptor: &Poll,
    address: SocketAddr,
    token: usize,
) -> Result<(Listener, SocketAddr), Error> {
    let failed = |source| Error::Listen { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let mut listener = Listener::Tcp(listener);
    listener
        .register(acceptor.registry(), mio::Token(token))
        .map_err(failed)?;
    Ok((listener, bound))
}

fn listen_unix(
    acceptor: &Poll,
    (path, mode): (&Path, Option<u32>),
    token: usize,
) -> io::Result<Listener> {
    let mut listener = Listener::Unix(UnixSocket::bind(path, mode)?);
    listener.register(acceptor.registry(), mio::Token(token))?;
    Ok(listener)
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<thread::JoinHandle<T>, Error> {
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|source: io::Error| Error::Io {
        operation: "starting a thread",
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use pando_sync::time::{Duration, now};

    use super::*;
    use crate::context::patience::Leaves;

    /// A server whose insides a test reaches.
    struct Served {
        address: SocketAddr,
        shared: Arc<Shared>,
        handle: Handle,
        serving: thread::JoinHandle<Result<(), Error>>,
    }

    impl Served {
        /// Returns one with so many loops that is ready.
        fn new(threads: usize) -> Self {
            let server = Server::bind(ServerOptions {
                listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
                threads,
                ..ServerOptions::default()
            });
            let server = server.unwrap();
            let (address, shared) = (server.addresses()[0], server.shared.clone());
            let handle = server.handle();
            let serving = thread::spawn(move || {
                server.serve(|| Db::builder().max_memory(32 << 20).open_in_memory())
            });
            while !handle.is_serving() {
                thread::yield_now();
            }
            Self {
                address,
                shared,
                handle,
                serving,
            }
        }

        fn connect(&self) -> TcpStream {
            let stream = TcpStream::connect(self.address).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_secs(30)))
                .unwrap();
            stream
        }

        fn end(self) {
            self.handle.shutdown();
            self.serving.join().unwrap().unwrap();
        }
    }

    fn received(stream: &mut TcpStream) -> Vec<u8> {
        let mut reply = [0; 64];
        let len = stream.read(&mut reply).unwrap();
        reply[..len].to_vec()
    }

    fn ask(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
        stream.write_all(request).unwrap();
        received(stream)
    }

    /// Commands of streams wait for a key that another command has reserved.
    #[test]
    fn who_writes_a_stream_waits_for_its_turn() {
        let server = Served::new(1);
        let (mut client, mut other) = (server.connect(), server.connect());
        let contended = &server.shared.contended;
        let key = contended.key(0, b"s");
        let add: &[u8] = b"XADD s 1-1 f v\r\n";
        for command in [
            b"XGROUP CREATE s g 0 MKSTREAM\r\n",
            add,
            b"XREADGROUP GROUP g c STREAMS s >\r\n",
            b"XACK s g 1-1\r\n",
            b"XTRIM s MAXLEN 0\r\n",
        ] {
            let shown = command.escape_ascii();
            let reserved = contended.reserve(key, now() + Duration::from_secs(1000));
            let reserved = reserved.expect("it is free");
            client.write_all(command).unwrap();
            // The loop has come by the command when it has replied to what was sent after it.
            for _ in 0..3 {
                assert_eq!(ask(&mut other, b"PING\r\n"), b"+PONG\r\n");
            }
            client.set_nonblocking(true).unwrap();
            let early = client.peek(&mut [0]).map_err(|error| error.kind());
            assert_eq!(early, Err(io::ErrorKind::WouldBlock), "{shown}");
            client.set_nonblocking(false).unwrap();
            contended.end_reservation(key, reserved, |of| server.shared.tell_turn(of));
            let reply = received(&mut client);
            assert!(!reply.starts_with(b"-"), "{shown}");
        }
        server.end();
    }

    /// One refusal of the system, which lacked something for a moment, is not for ever.
    #[test]
    fn scripts_leave_their_loops_again_behind_a_refused_thread() {
        let server = Served::new(1);
        let commands = Arc::new(CommandIndex::new(FAMILIES));
        let threads = ScriptThreads::new(server.shared.clone(), commands);
        assert_eq!(threads.leaves(), Leaves::Early);
        let refused = now();
        threads.cannot_start(&"planted");
        assert_eq!(threads.leaves(), Leaves::Never, "none is asked for at once");
        while threads.leaves() == Leaves::Never {
            assert!(
                refused.elapsed() < Duration::from_secs(30),
                "it is for ever"
            );
            thread::yield_now();
        }
        assert!(refused.elapsed() > Duration::from_millis(500));
        server.end();
    }

    /// A client that waits for the turn of a key is not idle, however long it takes; one that
    /// sends nothing is.
    #[test]
    fn who_waits_for_a_turn_is_not_idle() {
        const WAITS: Duration = Duration::from_secs(3);
        let server = Served::new(2);
        // One or more of each loop.
        let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
        for client in &mut clients {
            assert_eq!(ask(client, b"SET hot 0\r\n"), b"+OK\r\n");
        }
        let mut idle = server.connect();
        assert_eq!(ask(&mut idle, b"CONFIG SET timeout 1\r\n"), b"+OK\r\n");
        let begun = now();
        let contended = &server.shared.contended;
        let key = contended.key(0, b"hot");
        assert!(contended.reserve(key, begun + WAITS).is_some());
        for client in &mut clients {
            client.write_all(b"INCR hot\r\n").unwrap();
        }
        for client in &mut clients {
            let mut reply = [0; 4];
            client.read_exact(&mut reply).unwrap();
            assert!(reply.starts_with(b":"), "{reply:?}");
        }
        assert!(begun.elapsed() >= WAITS, "it was reserved for so long");
        assert_eq!(idle.read(&mut [0]).unwrap(), 0, "it is closed");
        server.end();
    }
}
