//! Threads for scripts that take long (decision 095), and the commands that they carry out.
//!
//! A loop whose script has taken too long sends the whole connection here, with the command that
//! has begun. A script thread goes on with the command as the loop would have, on a reactor and a
//! state of Lua of its own, and gives the connection back when it has ended. The loop keeps the
//! connection's place meanwhile, and notes what happens to its socket.
//!
//! There are as many threads as loops, at most. One is started when a command comes and all others
//! have something to do. Commands wait in one queue; each client has one there at most.
//!
//! Reading order: [`jobs`] (what there is to do; it has the argument that nothing is lost),
//! [`thread`] (a thread), and here how one is started.

mod jobs;
mod thread;

use std::io;

use mio::Poll;
use pando_sync::Arc;
use pando_sync::thread::Builder;

use crate::connection::Connection;
use crate::loop_handle::{LoopHandle, Token};
use crate::sleeper::WAKER;
use thread::ScriptThread;

pub(crate) use jobs::{Returned, ScriptThreads};

impl ScriptThreads {
    /// Has a thread carry out the command of `connection`, which loop `home` calls `token`. Returns
    /// the number of the job; or the connection, if the threads stop.
    pub(crate) fn send(
        this: &Arc<Self>,
        (home, token): (usize, Token),
        connection: Box<Connection>,
    ) -> Result<u64, Box<Connection>> {
        let (id, starts) = this.push((home, token), connection)?;
        if starts && let Err(error) = Self::start(this) {
            this.cannot_start(&error);
        }
        Ok(id)
    }

    /// Starts a thread, unless there are enough.
    fn start(this: &Arc<Self>) -> io::Result<()> {
        let poll = Poll::new()?;
        let handle = Arc::new(LoopHandle::new(mio::Waker::new(poll.registry(), WAKER)?));
        let number = this.begin(handle.clone());
        let Some(number) = number else {
            return Ok(());
        };
        let thread = ScriptThread::new(number, this.clone(), (poll, handle));
        // If that fails, the thread is dropped, which ends it here, too.
        let spawned =
            (Builder::new().name("pando-script".to_owned())).spawn(move || thread.run())?;
        this.keep(spawned);
        Ok(())
    }
}
