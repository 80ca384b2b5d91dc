//! One call of YCSB's core workloads.
//!
//! Keys that a workload has inserted are read like the others: by `latest` the newest first, else
//! each as often as the mean of all keys. Each thread reads its own from the moment that they are
//! in the store, and must find them.

use pando_format::cast::{low_u32, usize_of};

use crate::error::{Error, Result};
use crate::operations::{Operations, check_value};
use crate::phase::{Done, Kind};
use crate::workload::{Act, Mix};

/// Maximum number of entries of a scan; all lengths from 1 on are equally likely.
const SCAN_ENTRIES_MAX: u64 = 100;

impl Operations<'_> {
    /// Makes the next operation of `mix`. Writes count as found, since they look for nothing.
    pub(crate) fn mixed(&mut self, mix: Mix) -> Result<Done> {
        self.view.look();
        let act = mix.choose(&mut self.random);
        self.mixed = Some(match act {
            Act::Read | Act::Scan => Kind::Read,
            Act::Write | Act::Insert | Act::Change => Kind::Write,
        });
        let found = match act {
            Act::Read => {
                let number = self.choose_grown();
                self.read_number(number)?
            }
            Act::Write => {
                let number = self.choose_grown();
                let version = low_u32(self.random.next());
                self.put(number, version)?;
                true
            }
            Act::Insert => {
                self.insert()?;
                true
            }
            Act::Scan => self.scan()?,
            Act::Change => return self.update(),
        };
        Ok(Done {
            ops: 1,
            found: found.into(),
        })
    }

    /// Returns the number of a key that was filled, or that this workload has inserted.
    fn choose_grown(&mut self) -> u64 {
        let (plan, total) = (self.plan, self.view.total());
        if total == 0 {
            return plan.choose(&mut self.random);
        }
        let num = plan.options.num;
        match plan.chooser.age(&mut self.random) {
            Some(rank) => {
                let older = rank.saturating_sub(total);
                self.view.newest(rank).unwrap_or(num - 1 - older)
            }
            None if self.random.below(num + total) >= num => self.view.any(&mut self.random),
            _ => plan.choose(&mut self.random),
        }
    }

    fn read_number(&mut self, number: u64) -> Result<bool> {
        let plan = self.plan;
        plan.keys.write(number, &mut self.key);
        let found = plan.table.get_into(&self.key, &mut self.value)?;
        if found {
            check_value(plan, number, &self.value, &mut self.scratch)?;
        } else if self.view.is_fresh(number) {
            return Err(plan.wrong(format!("key {number} was inserted and is not there")));
        }
        Ok(found)
    }

    pub(crate) fn put(&mut self, number: u64, version: u32) -> Result<()> {
        let plan = self.plan;
        plan.keys.write(number, &mut self.key);
        plan.values.write(number, version, &mut self.value);
        Ok(plan.table.put(&self.key, &self.value)?)
    }

    fn insert(&mut self) -> Result<()> {
        let number = self.view.next();
        if let Some(what) = self.plan.keys.check(number.saturating_add(1)) {
            return Err(Error::option("key-size", what));
        }
        self.put(number, 0)?;
        self.view.inserted();
        Ok(())
    }

    fn scan(&mut self) -> Result<bool> {
        let number = self.choose_grown();
        let entries = 1 + usize_of(self.random.below(SCAN_ENTRIES_MAX));
        let plan = self.plan;
        plan.keys.write(number, &mut self.key);
        let mut last: Option<Vec<u8>> = None;
        for entry in plan.table.range(&self.key[..]..).take(entries) {
            let (key, value) = entry?;
            let in_order = match &last {
                None => key >= self.key,
                Some(last) => key > *last,
            };
            if !in_order {
                return Err(plan.wrong(format!("key {key:?} is out of order")));
            }
            if last.is_none() && self.view.is_fresh(number) && key != self.key {
                return Err(plan.wrong(format!("key {number} was inserted and is not there")));
            }
            if let Some(number) = plan.keys.number(&key) {
                check_value(plan, number, &value, &mut self.scratch)?;
            }
            last = Some(key);
        }
        if last.is_none() && self.view.is_fresh(number) {
            return Err(plan.wrong(format!("key {number} was inserted and is not there")));
        }
        Ok(last.is_some())
    }
}
