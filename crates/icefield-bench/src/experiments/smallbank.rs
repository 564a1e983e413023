//! Smallbank over three tables (DLHT Fig 19): accounts by name, savings, checking.
//!
//! The check at the end: the total must equal the initial total plus deposits minus withdrawals. A second check
//! runs payments between a few customers while another thread sums up consistent snapshots of all accounts; the sum
//! must never change.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use icefield_torture::smallbank::{OVERDRAFT_FEE, Smallbank, Transaction};
use icefield_torture::workload::Distribution;

use super::oltp::{Benchmark, load_all};
use super::rows::{Locked, Rows, read_together};
use crate::prelude::*;

/// The paper's number of accounts.
const CUSTOMERS: u64 = 10_000_000;

/// The initial balance of each account, in cents.
const AT_FIRST: i64 = 10_000;

/// The number of customers in the second check, and the number of transactions that each thread draws in it. Only the
/// payments among them run.
const CROWD: u32 = 16;
const PAYMENTS: usize = 20_000;

struct Bank {
    customers: u32,
    /// Maps names to numbers.
    accounts: Rows,
    savings: Rows,
    checking: Rows,
    /// The sum of all balances before the next transactions.
    money: i64,
}

/// Returns the name of a customer, as a word.
fn name(customer: u32) -> u64 {
    icefield_torture::rng::mix(u64::from(customer))
}

impl Bank {
    fn new(session: &Session, customers: u32) -> Outcome<Self> {
        let rows = || Rows::new(u64::from(customers), session.args.seed);
        let (accounts, savings, checking) = (rows()?, rows()?, rows()?);
        let money = 2 * AT_FIRST * i64::from(customers);
        let bank = Self { customers, accounts, savings, checking, money };
        load_all(session, customers, |customer| {
            bank.accounts.load(name(customer), customer.into());
            bank.savings.load(customer.into(), AT_FIRST);
            bank.checking.load(customer.into(), AT_FIRST);
        });
        Ok(bank)
    }

    /// Returns the number of a customer, which is the key in the other two tables.
    fn find(&self, customer: u32) -> Option<u64> {
        self.accounts.read(name(customer)).map(|number| number as u64)
    }

    fn write_check(&self, customer: u32, amount: i64) -> Option<i64> {
        let number = self.find(customer)?;
        self.checking.prefetch(number);
        let savings = self.savings.lock(number)?;
        let Some(checking) = self.checking.lock(number) else {
            self.savings.release(savings);
            return None;
        };
        let covered = savings.data() + checking.data() >= amount;
        let taken = if covered { amount } else { amount + OVERDRAFT_FEE };
        self.checking.commit(checking, checking.data() - taken);
        self.savings.release(savings);
        Some(-taken)
    }

    /// Locks two rows of the checking table in the order of their keys; returns them in the order of the arguments.
    fn lock_two(&self, one: u64, other: u64) -> Option<[Locked; 2]> {
        self.checking.prefetch(one.max(other));
        let low = self.checking.lock(one.min(other))?;
        let Some(high) = self.checking.lock(one.max(other)) else {
            self.checking.release(low);
            return None;
        };
        Some(if one < other { [low, high] } else { [high, low] })
    }

    fn amalgamate(&self, from: u32, to: u32) -> Option<i64> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let savings = self.savings.lock(from)?;
        let Some([source, target]) = self.lock_two(from, to) else {
            self.savings.release(savings);
            return None;
        };
        self.checking.commit(target, target.data() + source.data() + savings.data());
        self.checking.commit(source, 0);
        self.savings.commit(savings, 0);
        Some(0)
    }

    fn pay(&self, from: u32, to: u32, amount: i64) -> Option<i64> {
        let (from, to) = (self.find(from)?, self.find(to)?);
        let [source, target] = self.lock_two(from, to)?;
        if source.data() < amount {
            self.checking.release(source);
            self.checking.release(target);
            return None;
        }
        self.checking.commit(target, target.data() + amount);
        self.checking.commit(source, source.data() - amount);
        Some(0)
    }

    /// Returns the sum of all balances.
    fn total(&self) -> Outcome<i64> {
        Ok(self.savings.total()? + self.checking.total()?)
    }
}

impl Benchmark for Bank {
    type Transaction = Transaction;

    fn count(&self) -> u32 {
        self.customers
    }

    fn draw(&self, session: &Session, seed: u64, count: u64) -> Vec<Transaction> {
        let mut source = Smallbank::new(self.customers, session.args.dist, seed);
        (0..count).map(|_| source.draw()).collect()
    }

    fn run(&self, transaction: Transaction) -> Option<i64> {
        match transaction {
            Transaction::Balance { customer } => {
                let number = self.find(customer)?;
                let both = read_together([(&self.savings, number), (&self.checking, number)])?;
                std::hint::black_box(both[0] + both[1]);
                Some(0)
            }
            Transaction::DepositChecking { customer, amount } => {
                let row = self.checking.lock(self.find(customer)?)?;
                self.checking.commit(row, row.data() + i64::from(amount));
                Some(i64::from(amount))
            }
            Transaction::TransactSavings { customer, amount } => {
                let row = self.savings.lock(self.find(customer)?)?;
                let after = row.data() + i64::from(amount);
                if after < 0 {
                    self.savings.release(row);
                    return None;
                }
                self.savings.commit(row, after);
                Some(i64::from(amount))
            }
            Transaction::WriteCheck { customer, amount } => {
                self.write_check(customer, amount.into())
            }
            Transaction::Amalgamate { from, to } => self.amalgamate(from, to),
            Transaction::SendPayment { from, to, amount } => self.pay(from, to, amount.into()),
        }
    }

    fn fault(&mut self, session: &Session, threads: usize, net: i64) -> Outcome<Option<String>> {
        let (after, expected) = (self.total()?, self.money + net);
        self.money = after;
        match half_transaction(session, threads.max(2))? {
            _ if after != expected => Ok(Some(format!("{after} cents instead of {expected}"))),
            fault => Ok(fault),
        }
    }
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let customers = u32::try_from(session.keys_or(CUSTOMERS).max(2))
        .map_err(|_| Error::option("keys", "smallbank has less than 2^32 customers"))?;
    session.progress("smallbank: opening accounts");
    let dist = Some(session.args.dist.to_string());
    Bank::new(session, customers)?.measure(session, dist)
}

/// Runs payments between a few customers while one thread sums up all accounts; returns a description of a wrong
/// sum.
fn half_transaction(session: &Session, threads: usize) -> Outcome<Option<String>> {
    let bank = Bank::new(session, CROWD)?;
    let expected = bank.money;
    let (seed, paying) = (session.args.seed, AtomicUsize::new(threads - 1));
    let (_, sums) = session.machine.run(threads, |thread| {
        if thread == 0 {
            return audit(&bank, expected, &paying);
        }
        let mut source = Smallbank::new(CROWD, Distribution::Uniform, seed + thread as u64);
        for _ in 0..PAYMENTS {
            let transaction = source.draw();
            if let Transaction::Amalgamate { .. } | Transaction::SendPayment { .. } = transaction {
                bank.run(transaction);
            }
        }
        paying.fetch_sub(1, Relaxed);
        None
    });
    let money = bank.total()?;
    let at_last = (money != expected).then_some(money);
    let wrong = sums.into_iter().flatten().next().or(at_last);
    Ok(wrong.map(|sum| format!("accounts add up to {sum} instead of {expected}")))
}

/// Sums up snapshots of all accounts until no thread pays any more; returns a wrong sum, if there is one.
fn audit(bank: &Bank, expected: i64, paying: &AtomicUsize) -> Option<i64> {
    loop {
        let last = paying.load(Relaxed) == 0;
        let rows: [(&Rows, u64); 2 * CROWD as usize] = std::array::from_fn(|i| {
            let table = if i % 2 == 0 { &bank.savings } else { &bank.checking };
            (table, i as u64 / 2)
        });
        let sum: i64 = read_together(rows)?.iter().sum();
        if sum != expected {
            return Some(sum);
        }
        if last {
            return None;
        }
    }
}
