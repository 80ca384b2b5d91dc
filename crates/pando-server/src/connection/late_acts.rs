//! What commands of an EXEC that watches keys do beside the store (`crate::context::once`), once it
//! is committed. Its other commands have run before, and have seen nothing of it.

use crate::connection::Connection;
use crate::connection::loop_data::Turn;
use crate::context::Context;
use crate::figures::error_codes::code_of;

impl Connection {
    /// Has the commands of an EXEC that was committed act beside the store, and puts their replies
    /// into that of EXEC.
    #[cold]
    pub(super) fn act_late(&mut self, turn: &Turn<'_>) {
        let withheld = std::mem::take(&mut self.progress().withheld);
        self.progress().acts_late = false;
        let multi = self.session.multi.take();
        let multi = multi.expect("EXEC leaves its queue until it ends");
        let mut replies = Vec::new();
        for of in &withheld {
            let (index, arguments) = multi.at(of.place);
            let (_, command) = (turn.commands.resolve(index, arguments))
                .expect("the run of EXEC has called this command");
            let mut reply = Vec::new();
            let buffers = self.buffers.as_mut().expect("a command is in the buffers");
            let mut context = Context {
                arguments,
                staged: multi.staged(of.place),
                command,
                session: &mut self.session,
                out: &mut reply,
                reply_start: 0,
                shared: turn.shared,
                commands: turn.commands,
                local: turn.handle,
                record: &self.record,
                data: None,
                progress: &mut buffers.progress,
                waker: &self.waker,
                now_ms: turn.now_ms,
                exec_index: Some(of.place),
                is_together: false,
            };
            let run = (command.run)(&mut context);
            assert!(run.is_ok(), "what acts in EXEC waits for nothing");
            replies.push(reply);
        }
        self.session.multi = Some(multi);
        let buffers = self.buffers.as_mut().expect("a command is in the buffers");
        let progress = &mut buffers.progress;
        // From the last one on: the places of those before it stay.
        for (of, reply) in withheld.iter().zip(&replies).rev() {
            if reply.first() == Some(&b'-') {
                progress.calls[of.call].error = Some(code_of(reply).to_vec());
            }
            for (offset, _) in &mut progress.streams {
                if *offset >= of.reply.end {
                    *offset = *offset - of.reply.len() + reply.len();
                }
            }
            buffers.output.replace(of.reply.clone(), reply);
        }
    }
}
