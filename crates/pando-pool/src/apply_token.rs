//! The proof that pages may be changed now.

use std::marker::PhantomData;

use pando_format::Epoch;
use pando_sync::gate::Inside;

use crate::pool::Pool;

/// Proof that the caller is in the pool's gate, or has closed it. Every change of a page needs one.
///
/// Only [`Pool::apply_token`] makes one, from a guard or from the closed gate, and the token cannot
/// outlive it. Nothing else can make one:
///
/// ```compile_fail,E0451
/// # use pando_format::Epoch;
/// # use pando_pool::ApplyToken;
/// let token = ApplyToken { epoch: Epoch(1), inside: std::marker::PhantomData };
/// ```
///
/// ```compile_fail,E0597
/// # fn change(pool: &pando_pool::Pool) -> Option<()> {
/// let token = {
///     let guard = pool.gate().try_enter()?;
///     pool.apply_token(&guard)
/// };
/// drop(token);
/// # Some(())
/// # }
/// ```
///
/// This compiles:
///
/// ```
/// # fn change(pool: &pando_pool::Pool) -> Option<()> {
/// let guard = pool.gate().try_enter()?;
/// let token = pool.apply_token(&guard);
/// drop(token);
/// # Some(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ApplyToken<'gate> {
    epoch: Epoch,
    inside: PhantomData<&'gate ()>,
}

impl ApplyToken<'_> {
    /// Returns the current epoch. It cannot end while somebody is inside the gate.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Pool {
    /// Returns the proof of being `inside` the gate of this pool.
    #[inline]
    pub fn apply_token<'gate>(&self, inside: &'gate impl Inside) -> ApplyToken<'gate> {
        debug_assert!(
            std::ptr::eq(inside.gate(), self.gate()),
            "inside the gate of another pool"
        );
        ApplyToken {
            epoch: self.epochs().current(),
            inside: PhantomData,
        }
    }
}
