//! The turns of isolation levels: the same transactions at each level, and without any.

use pandodb::{Isolation, Table, TransactionOptions};

use super::options::IsoLevel;
use crate::error::{Error, Result};
use crate::kv::CallWay;
use crate::operations::{Operations, check_value};
use crate::phase::Done;

/// Each call is a transaction over a few random keys: gets first, then puts.
pub(super) struct Transactions {
    pub(super) level: IsoLevel,
    /// Keys of a transaction.
    pub(super) ops: u64,
    /// How many of a hundred keys are put.
    pub(super) writes: u64,
}

/// What a thread keeps from one transaction to the next.
#[derive(Default)]
pub(super) struct Steps {
    /// The numbers of the keys.
    numbers: Vec<u64>,
    /// Hundredths of puts that are due: shares are exact in the long run.
    due: u64,
}

impl CallWay for Transactions {
    type State = Steps;

    fn call(
        &self,
        steps: &mut Steps,
        operations: &mut Operations<'_>,
        _limit: u64,
    ) -> Result<Option<Done>> {
        let plan = operations.plan;
        steps.numbers.clear();
        let keys = (0..self.ops).map(|_| plan.choose(&mut operations.random));
        steps.numbers.extend(keys);
        steps.due += self.ops * self.writes;
        let puts = (steps.due / 100).min(self.ops);
        steps.due -= puts * 100;
        let gets = self.ops - puts;
        let Some(isolation) = self.level.isolation() else {
            run(&mut Plain(plan.table), operations, &steps.numbers, gets)?;
            let found = gets;
            return Ok(Some(Done {
                ops: self.ops,
                found,
            }));
        };
        let mut wrong = None;
        let options = TransactionOptions::default().isolation(isolation);
        let result = plan.table.db().transact_with(options, |transaction| {
            let mut accessed = Inside(transaction, plan.table);
            match run(&mut accessed, operations, &steps.numbers, gets) {
                Err(Error::Engine(error)) => Err(error),
                Err(other) => {
                    wrong = Some(other);
                    Err(pandodb::Error::aborted("a wrong value"))
                }
                Ok(()) => Ok(()),
            }
        });
        match wrong {
            Some(wrong) => return Err(wrong),
            None => result?,
        }
        Ok(Some(Done {
            ops: self.ops,
            found: gets,
        }))
    }
}

/// Gets and puts, in a transaction or without one.
trait Access {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> pandodb::Result<bool>;
    fn put(&mut self, key: &[u8], value: &[u8]) -> pandodb::Result<()>;
}

struct Plain<'a>(&'a Table);

impl Access for Plain<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> pandodb::Result<bool> {
        self.0.get_into(key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> pandodb::Result<()> {
        self.0.put(key, value)
    }
}

struct Inside<'a>(&'a mut pandodb::Transaction, &'a Table);

impl Access for Inside<'_> {
    fn get(&mut self, key: &[u8], out: &mut Vec<u8>) -> pandodb::Result<bool> {
        self.0.get_into(self.1, key, out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> pandodb::Result<()> {
        self.0.put(self.1, key, value)
    }
}

/// Gets the first `gets` of the keys, and puts the others.
fn run(
    access: &mut impl Access,
    operations: &mut Operations<'_>,
    numbers: &[u64],
    gets: u64,
) -> Result<()> {
    let plan = operations.plan;
    for (number, at) in numbers.iter().zip(0..) {
        plan.keys.write(*number, &mut operations.key);
        if at >= gets {
            let version = pando_format::cast::low_u32(operations.random.next());
            plan.values.write(*number, version, &mut operations.value);
            access.put(&operations.key, &operations.value)?;
            continue;
        }
        if !access.get(&operations.key, &mut operations.value)? {
            return Err(plan.wrong(format!("key {number} is not there")));
        }
        check_value(plan, *number, &operations.value, &mut operations.scratch)?;
    }
    Ok(())
}

impl IsoLevel {
    /// Returns the engine's level; None without transactions.
    fn isolation(self) -> Option<Isolation> {
        Some(match self {
            Self::None => return None,
            Self::ReadCommitted => Isolation::ReadCommitted,
            Self::Snapshot => Isolation::Snapshot,
            Self::Serializable => Isolation::Serializable,
        })
    }
}
