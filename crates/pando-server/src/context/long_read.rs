//! What the runs of a command that shows many elements share: few commands do.

use pando_sync::Arc;

use super::draw::Draw;
use super::row_source::LargeReply;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LongRead {
    /// The large collection that is the reply, if it is read while it is sent.
    pub(crate) reply: Option<LargeReply>,
    /// How often a range was asked for so, and the collection had changed before it was found.
    pub(crate) changed: u32,
    /// The last places that were drawn, if they are many.
    pub(crate) draw: Option<Arc<Draw>>,
}
