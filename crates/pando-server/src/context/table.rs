//! Tables that are made when the first command needs them.

use pandodb::Db;

use super::job::{self, Job};
use super::{Context, Interrupted};

impl Context<'_> {
    /// Has a thread run `make`, and returns what the command ends with. Once the table is there the
    /// command runs again, and finds it.
    pub(crate) fn make_table(
        &mut self,
        make: impl FnOnce(&Db) -> pandodb::Result<()> + Send + 'static,
    ) -> Interrupted {
        if self.is_together {
            return Interrupted::Yield;
        }
        let job = self.progress.job.take();
        match job.map(|job| (job.result(self.waker), job)) {
            Some((None, job)) => {
                self.progress.job = Some(job);
                return Interrupted::Wait;
            }
            Some((Some(Err(text)), _)) => return format!("ERR {text}").into(),
            // It was that of another table.
            Some((Some(Ok(())), _)) | None => {}
        }
        let engine = self.shared.engine();
        let engine = engine.expect("commands with data run when the engine is open");
        let (job, end) = Job::new(self.waker.clone());
        let started = job::start("pando-make-table", move || {
            let result = make(&engine.db).map_err(|error| error.to_string());
            drop(engine);
            end.finish(result);
        });
        if let Err(text) = started {
            return format!("ERR {text}").into();
        }
        self.progress.job = Some(job);
        Interrupted::Wait
    }
}
