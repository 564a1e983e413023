//! Transactions of TATP, the Telecom Application Transaction Processing benchmark (Neuvonen, Wolski, Manner and
//! Raatikka, IBM 2009): subscribers, their access information, special facilities, and call forwardings.

use crate::rng::{Rng, mix};

/// A transaction of one of the seven kinds. Subscribers are numbers from 0, types are 1 to 4, start times are 0, 8 or
/// 16 o'clock, end times 1 to 24 o'clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// Reads a subscriber's row.
    GetSubscriberData {
        /// The subscriber.
        subscriber: u32,
    },
    /// Reads a special facility and, if it is active, its call forwardings that have begun by the start time and are
    /// in force until after the end time.
    GetNewDestination {
        /// The subscriber.
        subscriber: u32,
        /// The type of the facility.
        facility: u8,
        /// The start time.
        start: u8,
        /// The end time.
        end: u8,
    },
    /// Reads access information.
    GetAccessData {
        /// The subscriber.
        subscriber: u32,
        /// The type of the access information.
        access: u8,
    },
    /// Changes a subscriber's row and one of the special facilities.
    UpdateSubscriberData {
        /// The subscriber.
        subscriber: u32,
        /// The type of the facility.
        facility: u8,
    },
    /// Changes the location of a subscriber, who is named by number.
    UpdateLocation {
        /// The subscriber.
        subscriber: u32,
        /// The new location.
        location: u32,
    },
    /// Reads a subscriber's row and special facility, and adds a call forwarding to it.
    InsertCallForwarding {
        /// The subscriber.
        subscriber: u32,
        /// The type of the facility.
        facility: u8,
        /// The start time.
        start: u8,
        /// The end time.
        end: u8,
    },
    /// Removes a call forwarding.
    DeleteCallForwarding {
        /// The subscriber.
        subscriber: u32,
        /// The type of the facility.
        facility: u8,
        /// The start time.
        start: u8,
    },
}

/// An endless stream of transactions in the benchmark's proportions: 80 % reads.
#[derive(Clone, Debug)]
pub struct Tatp {
    subscribers: u32,
    rng: Rng,
}

impl Tatp {
    /// Creates a stream of transactions for `subscribers` subscribers, at least one.
    #[must_use]
    pub fn new(subscribers: u32, seed: u64) -> Self {
        Self { subscribers: subscribers.max(1), rng: Rng::new(seed) }
    }

    fn kind(&mut self) -> u8 {
        self.rng.below(4) as u8 + 1
    }

    /// Returns the next transaction.
    pub fn draw(&mut self) -> Transaction {
        let subscriber = self.rng.below(u64::from(self.subscribers)) as u32;
        let (facility, start) = (self.kind(), 8 * self.rng.below(3) as u8);
        let end = self.rng.below(24) as u8 + 1;
        match self.rng.below(100) {
            0..35 => Transaction::GetSubscriberData { subscriber },
            35..45 => Transaction::GetNewDestination { subscriber, facility, start, end },
            45..80 => Transaction::GetAccessData { subscriber, access: self.kind() },
            80..82 => Transaction::UpdateSubscriberData { subscriber, facility },
            82..96 => Transaction::UpdateLocation { subscriber, location: self.rng.word() as u32 },
            96..98 => Transaction::InsertCallForwarding { subscriber, facility, start, end },
            _ => Transaction::DeleteCallForwarding { subscriber, facility, start },
        }
    }
}

/// Returns the set of a subscriber's types as a bit mask. One to four of the low four bits are set, as the benchmark
/// defines. `what` distinguishes access information from special facilities.
#[must_use]
pub fn types_of(subscriber: u32, what: u64) -> u8 {
    let random = mix(u64::from(subscriber) ^ mix(what));
    // The low bits give the count, the next bits the first type.
    let count = (random & 3) + 1;
    (0..count).fold(0, |types, i| types | 1 << (((random >> 2) + i) & 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_transactions_read() {
        let mut tatp = Tatp::new(1000, 3);
        let reads = (0..10_000)
            .filter(|_| {
                matches!(
                    tatp.draw(),
                    Transaction::GetSubscriberData { .. }
                        | Transaction::GetNewDestination { .. }
                        | Transaction::GetAccessData { .. }
                )
            })
            .count();
        assert!((7_700..8_300).contains(&reads), "{reads}");
    }

    #[test]
    fn subscribers_have_one_to_four_types() {
        let counts: Vec<u32> =
            (0..4000).map(|subscriber| types_of(subscriber, 1).count_ones()).collect();
        assert!(counts.iter().all(|count| (1..=4).contains(count)));
        let mean = f64::from(counts.iter().sum::<u32>()) / 4000.0;
        assert!((2.4..2.6).contains(&mean), "{mean}");
    }
}
