//! Commands of EXEC that act beside the store: on other clients, or on the server. EXEC may run
//! again, for a page or after a conflict, and what they have done is not undone. If it watches
//! keys, it may have to do nothing at all, and its commit alone tells: they act behind it
//! (`crate::connection::late_acts`).

use super::progress::{Done, Withheld};
use super::{Context, Run};

impl Context<'_> {
    /// Runs `act`; inside EXEC in one run alone, whose reply the later runs have, or behind the
    /// commit. The command is not allowed in scripts, which may call it several times at one place,
    /// and `act` waits for nothing inside EXEC.
    pub(crate) fn once(&mut self, act: fn(&mut Self) -> Run) -> Run {
        let Some(place) = self.exec_index else {
            return act(self);
        };
        if self.progress.acts_late {
            let start = self.out.len();
            self.reply().null();
            let (start, end) = (start - self.reply_start, self.out.len() - self.reply_start);
            let call = self.progress.calls.len();
            self.progress.withheld.push(Withheld {
                place,
                call,
                reply: start..end,
            });
            return Ok(());
        }
        if let Some(done) = self.progress.done.iter().find(|done| done.place == place) {
            self.out.extend_from_slice(&done.reply);
            self.session.closes_after_exec |= done.closes;
            return Ok(());
        }
        let start = self.out.len();
        act(self)?;
        self.progress.done.push(Done {
            place,
            reply: self.out[start..].to_vec(),
            closes: self.session.closes_after_exec,
        });
        Ok(())
    }
}
