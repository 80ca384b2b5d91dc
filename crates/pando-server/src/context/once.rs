//! Commands of EXEC that act beside the store: on other clients, or on the server. EXEC may run
//! again, for a page or after a conflict, and what they have done is not undone. An EXEC that
//! watches keys acts only when its reads are done, so that a change meanwhile finds nothing done.

use super::progress::{Done, Rehearsal};
use super::{Context, Run};

impl Context<'_> {
    /// Runs `act`; inside EXEC in one run alone, whose reply the later runs have. The command is
    /// not allowed in scripts, which may call it several times at one place.
    pub(crate) fn once(&mut self, act: fn(&mut Self) -> Run) -> Run {
        let Some(place) = self.exec_index else {
            return act(self);
        };
        if let Some(done) = self.progress.done.iter().find(|done| done.place == place) {
            self.out.extend_from_slice(&done.reply);
            self.session.closes_after_exec |= done.closes;
            return Ok(());
        }
        if matches!(
            self.progress.rehearsal,
            Rehearsal::Begun | Rehearsal::Withheld
        ) {
            self.progress.rehearsal = Rehearsal::Withheld;
            self.reply().null();
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
