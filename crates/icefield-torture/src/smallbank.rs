//! Transactions of Smallbank (Alomari, Cahill, Fekete and Röhm, *The Cost of Serializability on Platforms That Use
//! Snapshot Isolation*, ICDE 2008): customers with a savings and a checking account each.

use crate::rng::Rng;
use crate::workload::{Distribution, Stream};

/// A transaction of one of the six kinds. Amounts are in cents; customers are numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Reads both accounts of a customer.
    Balance {
        /// The customer.
        customer: u32,
    },
    /// Adds to the checking account.
    DepositChecking {
        /// The customer.
        customer: u32,
        /// The amount.
        amount: u32,
    },
    /// Adds to the savings account or withdraws from it, but not below zero.
    TransactSavings {
        /// The customer.
        customer: u32,
        /// The amount.
        amount: i32,
    },
    /// Moves the whole balance of one customer to the checking account of another.
    Amalgamate {
        /// The customer who pays.
        from: u32,
        /// The customer who receives; different from `from`.
        to: u32,
    },
    /// Withdraws from the checking account, with a fee if both accounts together do not cover the amount.
    WriteCheck {
        /// The customer.
        customer: u32,
        /// The amount.
        amount: u32,
    },
    /// Moves money between checking accounts, if the balance covers it.
    SendPayment {
        /// The customer who pays.
        from: u32,
        /// The customer who receives; different from `from`.
        to: u32,
        /// The amount.
        amount: u32,
    },
}

/// The fee for a check that is not covered, in cents.
pub const OVERDRAFT_FEE: i64 = 100;

/// An endless stream of transactions: 15 % reads, 25 % payments, and 15 % of each of the other four kinds.
#[derive(Clone, Debug)]
pub struct Smallbank {
    customers: Stream,
    count: u32,
    rng: Rng,
}

impl Smallbank {
    /// Creates a stream of transactions. There are `customers` customers, but at least two.
    #[must_use]
    pub fn new(customers: u32, distribution: Distribution, seed: u64) -> Self {
        let count = customers.max(2);
        let stream = Stream::new(distribution, u64::from(count), seed);
        Self { customers: stream, count, rng: Rng::fork(seed, 1) }
    }

    fn customer(&mut self) -> u32 {
        self.customers.draw() as u32
    }

    fn two(&mut self) -> (u32, u32) {
        let (from, to) = (self.customer(), self.customer());
        if from == to { (from, (to + 1) % self.count) } else { (from, to) }
    }

    /// Returns the next transaction.
    pub fn draw(&mut self) -> Transaction {
        let amount = self.rng.below(100) as u32 + 1;
        match self.rng.below(100) {
            0..15 => Transaction::Balance { customer: self.customer() },
            15..30 => Transaction::DepositChecking { customer: self.customer(), amount },
            30..45 => {
                let amount = self.rng.below(201) as i32 - 100;
                Transaction::TransactSavings { customer: self.customer(), amount }
            }
            45..60 => {
                let (from, to) = self.two();
                Transaction::Amalgamate { from, to }
            }
            60..75 => Transaction::WriteCheck { customer: self.customer(), amount },
            _ => {
                let (from, to) = self.two();
                Transaction::SendPayment { from, to, amount }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_pays_himself_and_shares_are_kept() {
        let mut bank = Smallbank::new(2, Distribution::Uniform, 7);
        let mut reads = 0;
        for _ in 0..10_000 {
            match bank.draw() {
                Transaction::Balance { .. } => reads += 1,
                Transaction::Amalgamate { from, to }
                | Transaction::SendPayment { from, to, .. } => {
                    assert!(from != to && from.max(to) == 1);
                }
                Transaction::TransactSavings { amount, .. } => assert!(amount.abs() <= 100),
                Transaction::DepositChecking { amount, .. }
                | Transaction::WriteCheck { amount, .. } => assert!((1..=100).contains(&amount)),
            }
        }
        assert!((1_300..1_700).contains(&reads), "{reads}");
    }
}
