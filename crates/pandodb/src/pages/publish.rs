//! The end of a read: its page is published, or all waiters get its error.

use pando_format::{PageDecoder, PageId};
use pando_pool::{LoadError, LoadTicket};

use crate::error::{Error, Result};
use crate::pages::read_context::ReadContext;
use crate::pages::store::Store;

impl Store {
    /// Publishes the page of a claim from its stored bytes.
    pub(crate) fn publish(&self, ticket: LoadTicket, bytes: &[u8]) -> Result<()> {
        ReadContext::of_thread(&self.statistics, |context| {
            self.publish_with(ticket, bytes, context.decoder())
        })
    }

    /// As [`Store::publish`], for a caller that has the thread's read context.
    pub(crate) fn publish_with(
        &self,
        ticket: LoadTicket,
        bytes: &[u8],
        decoder: &mut PageDecoder,
    ) -> Result<()> {
        let as_error = |error: &LoadError| Error::CorruptPage {
            page: error.page,
            extent: Some(error.stored.extent),
            what: error.what.clone(),
        };
        let failed = |error: &LoadError| self.post_failure(error.page, &as_error(error));
        self.pool
            .finish_load_or(ticket, bytes, decoder, failed)
            .map_err(|error| as_error(&error))
    }

    /// Ends a claim whose read failed on the device; returns the error for the caller. In a forked
    /// child, which the device refuses, nothing is wrong with the page.
    pub(crate) fn read_failed(&self, ticket: LoadTicket, error: impl std::fmt::Display) -> Error {
        let failure = match self.check_process() {
            Err(forked) => forked,
            Ok(()) => Error::CorruptPage {
                page: ticket.page(),
                extent: Some(ticket.stored().extent),
                what: format!("reading it: {error}"),
            },
        };
        self.give_up(ticket, failure)
    }

    /// Ends a claim with an error, which all waiters for the page get as well. Returns it.
    pub(crate) fn give_up(&self, ticket: LoadTicket, error: Error) -> Error {
        self.post_failure(ticket.page(), &error);
        self.pool.fail_load(ticket);
        error
    }

    fn post_failure(&self, page: PageId, error: &Error) {
        let waiting = self.pool.waiting_for_load(page);
        self.failed_reads.post(page, error.clone(), waiting);
    }
}
