//! Transfers between accounts, by several threads at once: money is neither made nor lost, and no
//! account falls below zero.
//!
//! `cargo run --example bank`, or with the numbers of threads and of transfers for each of them:
//! `cargo run --release --example bank -- 64 20000`

#![expect(clippy::print_stdout, reason = "an example shows what it has found")]

use std::thread;
use std::time::Instant;

use pandodb::{Db, Error, Result, Table, Transaction};

const ACCOUNTS: u32 = 20;

fn balance(transaction: &mut Transaction, accounts: &Table, number: u32) -> Result<u64> {
    let value = transaction.get(accounts, &number.to_be_bytes())?;
    let value = value.ok_or_else(|| Error::aborted(format!("no account {number}")))?;
    let value = value.try_into();
    value
        .map(u64::from_be_bytes)
        .map_err(|_| Error::aborted("not a balance"))
}

/// Moves money, or gives up if there is too little.
fn transfer(db: &Db, accounts: &Table, from: u32, to: u32, amount: u64) -> Result<()> {
    db.transact(|transaction| {
        let left = balance(transaction, accounts, from)?.checked_sub(amount);
        let left = left.ok_or_else(|| Error::aborted("too little money"))?;
        transaction.put(accounts, &from.to_be_bytes(), &left.to_be_bytes())?;
        let more = balance(transaction, accounts, to)? + amount;
        transaction.put(accounts, &to.to_be_bytes(), &more.to_be_bytes())
    })
}

/// Returns the number that the program was given at this place.
fn given(place: usize, otherwise: u32) -> u32 {
    let given = std::env::args().nth(place);
    given.map_or(otherwise, |text| text.parse().expect("a number"))
}

fn main() -> Result<()> {
    let (threads, transfers) = (given(1, 4), given(2, 200));
    let db = Db::builder().open_in_memory()?;
    let accounts = db.table("accounts")?;
    for number in 0..ACCOUNTS {
        accounts.put(&number.to_be_bytes(), &100_u64.to_be_bytes())?;
    }
    let begun = Instant::now();
    let refused = thread::scope(|scope| {
        let run = |thread: u32| {
            let (db, accounts) = (&db, &accounts);
            move || {
                let mut refused = 0;
                for round in 0..transfers {
                    let from = (thread * 7 + round * 3) % ACCOUNTS;
                    let to = (thread + round * 11) % ACCOUNTS;
                    match transfer(db, accounts, from, to, u64::from(round % 90)) {
                        Err(Error::Aborted { .. }) => refused += 1,
                        other => other?,
                    }
                }
                Ok(refused)
            }
        };
        let threads: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(run(thread)))
            .collect();
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        joined.sum::<Result<u32>>()
    })?;
    let sum = db.transact(|transaction| {
        (0..ACCOUNTS)
            .map(|number| balance(transaction, &accounts, number))
            .sum::<Result<u64>>()
    })?;
    let took = begun.elapsed();
    println!("{sum} in all accounts, {refused} transfers refused, {took:.1?}");
    assert_eq!(sum, u64::from(ACCOUNTS) * 100, "money was made or lost");
    db.close()
}
