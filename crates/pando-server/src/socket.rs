//! Sockets that clients connect to, and their addresses: TCP, or a socket in the file system.

use std::fmt;
use std::fs;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mio::event::Source;
use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use pando_sync::Arc;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Number of connections that wait until they are accepted, at most; the system may have a lower
/// bound, `net.core.somaxconn`. Who comes when there are more tries again after a second.
const WAITING_MAX: i32 = 4096;

/// An address of one end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    /// The path of the server's socket, for both ends: that of the client has none.
    Unix(Arc<str>),
}

impl fmt::Display for Address {
    /// As Redis shows it: a path has port 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{path}:0"),
        }
    }
}

impl Address {
    /// Returns true if it is on this machine for certain.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            // Also addresses of IPv4 that are mapped to IPv6.
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

/// A connection to a client. Never blocks.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Read for Stream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(into),
            Self::Unix(stream) => stream.read(into),
        }
    }
}

impl Write for Stream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(slices),
            Self::Unix(stream) => stream.write_vectored(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Source for Stream {
    fn register(&mut self, to: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(to, token, interest),
            Self::Unix(stream) => stream.register(to, token, interest),
        }
    }

    fn reregister(&mut self, to: &Registry, token: Token, interest: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(to, token, interest),
            Self::Unix(stream) => stream.reregister(to, token, interest),
        }
    }

    fn deregister(&mut self, from: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(from),
            Self::Unix(stream) => stream.deregister(from),
        }
    }
}

/// A socket in the file system. It is removed when this is dropped, unless another file has taken
/// its path.
#[derive(Debug)]
pub(crate) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the socket.
    file: (u64, u64),
    address: Address,
}

fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes a socket that a process has left when it ended, or an empty file, as who starts a server
/// makes it to have the name for himself.
///
/// # Errors
/// Somebody listens there, or it is something else.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if metadata.is_file() && metadata.len() == 0 {
        return fs::remove_file(path);
    }
    if !metadata.file_type().is_socket() {
        let text = "there is a file that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let (socket, address) = (new_socket()?, SocketAddrUnix::new(path)?);
    match net::connect(&socket, &address).map_err(io::Error::from) {
        Ok(()) => Err(io::ErrorKind::AddrInUse.into()),
        // As many wait there as may.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(io::ErrorKind::AddrInUse.into())
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// Makes a socket that never blocks.
fn new_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Makes a socket at `path` with the permissions `mode`, if that is given, which nobody can connect
/// to yet.
fn bind_deaf(path: &Path, mode: Option<u32>) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let socket = new_socket()?;
    net::bind(&socket, &address)?;
    if let Some(mode) = mode {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    Ok(socket)
}

impl UnixSocket {
    /// Listens at `path`, whose file gets the permissions `mode`, if that is given.
    ///
    /// # Errors
    /// Those of the system; somebody listens there; there is a file that is no socket.
    pub(crate) fn bind(path: &Path, mode: Option<u32>) -> io::Result<Self> {
        remove_abandoned(path)?;
        let bound = bind_deaf(path, mode)?;
        let socket = Self {
            listener: UnixListener::from_std(bound.into()),
            path: path.to_owned(),
            file: file_of(path)?,
            address: Address::Unix(path.to_string_lossy().into()),
        };
        net::listen(&socket.listener, WAITING_MAX)?;
        Ok(socket)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if file_of(&self.path).is_ok_and(|file| file == self.file) {
            // If that fails, the next server finds that nobody listens there.
            let _: io::Result<()> = fs::remove_file(&self.path);
        }
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket),
}

impl Listener {
    /// Accepts a connection; returns it with the address of its peer.
    ///
    /// # Errors
    /// Those of the system; `WouldBlock` if there is none.
    pub(crate) fn accept(&self) -> io::Result<(Stream, Address)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept()?;
                Ok((Stream::Tcp(stream), Address::Tcp(address)))
            }
            Self::Unix(socket) => {
                let (stream, _) = socket.listener.accept()?;
                Ok((Stream::Unix(stream), socket.address.clone()))
            }
        }
    }

    /// Has `registry` tell when connections come, of which [`WAITING_MAX`] may wait.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        // It listens already, but lets 128 wait: then this changes their number.
        match self {
            Self::Tcp(listener) => net::listen(listener, WAITING_MAX)?,
            Self::Unix(socket) => net::listen(&socket.listener, WAITING_MAX)?,
        }
        match self {
            Self::Tcp(listener) => registry.register(listener, token, Interest::READABLE),
            Self::Unix(socket) => {
                registry.register(&mut socket.listener, token, Interest::READABLE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pando_sync::time::Duration;

    use super::*;

    /// Loopback addresses are recognized in both families, also as mapped addresses.
    #[test]
    fn only_this_machine_is_local() {
        for (address, expected) in [
            ("127.0.0.1:1", true),
            ("127.5.5.5:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.0.0.1:1", false),
            ("[::ffff:10.0.0.1]:1", false),
        ] {
            let tcp = Address::Tcp(address.parse().unwrap());
            assert_eq!(tcp.is_local(), expected, "{address}");
        }
        let unix = Address::Unix("/a/b".into());
        assert!(unix.is_local());
        assert_eq!(unix.to_string(), "/a/b:0");
    }

    /// `mktemp` makes it, and Redis removes whatever there is. What has bytes stays.
    #[test]
    fn an_empty_file_makes_room_for_a_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        fs::write(&path, "mine").unwrap();
        let error = UnixSocket::bind(&path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        fs::write(&path, "").unwrap();
        let socket = UnixSocket::bind(&path, None).unwrap();
        assert!(fs::metadata(&path).unwrap().file_type().is_socket());
        drop(socket);
        assert!(!path.exists());
    }

    /// As many as the standard library lets wait would have to come again after a second.
    #[test]
    fn a_burst_of_clients_waits_to_be_accepted() {
        let bound = fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap_or_default();
        let bound = bound.trim().parse().unwrap_or(128);
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let poll = mio::Poll::new().unwrap();
        let mut listener = Listener::Tcp(listener);
        listener.register(poll.registry(), Token(0)).unwrap();
        let patience = Duration::from_millis(700);
        let clients: Vec<_> = (0..bound.min(400))
            .map(|number| {
                std::net::TcpStream::connect_timeout(&address, patience)
                    .unwrap_or_else(|error| panic!("client {number}: {error}"))
            })
            .collect();
        for _ in clients {
            listener.accept().unwrap();
        }
    }

    /// Who connects before the permissions are set stays connected.
    #[test]
    fn nobody_connects_before_the_permissions_are_set() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let _bound = bind_deaf(&path, Some(0o700)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let refused = std::os::unix::net::UnixStream::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// Otherwise a server that starts would wait without a word for one that hangs.
    #[test]
    fn a_socket_at_which_as_many_wait_as_may_is_in_use() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let bound = bind_deaf(&path, None).unwrap();
        net::listen(&bound, 1).unwrap();
        let address = SocketAddrUnix::new(&path).unwrap();
        let mut waiting = Vec::new();
        loop {
            let client = new_socket().unwrap();
            match net::connect(&client, &address) {
                Ok(()) => waiting.push(client),
                Err(error) => break assert_eq!(error, rustix::io::Errno::AGAIN),
            }
        }
        let error = UnixSocket::bind(&path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists());
    }

    #[test]
    fn only_what_was_abandoned_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let socket = UnixSocket::bind(&path, Some(0o700)).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let error = UnixSocket::bind(&path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        drop(socket);
        assert!(!path.exists());
        // As a process leaves it that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = UnixSocket::bind(&path, None).unwrap();
        // Somebody else has taken the path.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "other").unwrap();
        drop(socket);
        assert_eq!(fs::read(&path).unwrap(), b"other");
        let error = UnixSocket::bind(&path, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"other");
    }
}
