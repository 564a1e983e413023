//! TATP over four tables (DLHT Fig 19): subscribers, access information, special facilities, call forwardings.
//!
//! A call forwarding is added by a shadow insert under the lock of its special facility, whose row counts its
//! forwardings, so readers see both changes or neither. `UPDATE_SUBSCRIBER_DATA` increments a counter in both rows that
//! it changes. The check at the end therefore detects partial transactions: each facility must have as many forwardings
//! as its row counts, and each subscriber's row must count as many updates as the rows of its facilities.

use icefield_torture::tatp::{Tatp, Transaction, types_of};

use super::oltp::{Benchmark, Rows, load_all};
use crate::prelude::*;

/// The paper's number of subscribers.
const SUBSCRIBERS: u64 = 1_000_000;

const ACCESS: u64 = 1;
const FACILITIES: u64 = 2;

/// The data of a subscriber's row: the location in the low bits, and above it a count of updates that wraps around.
const LOCATION_BITS: u32 = 32;
const UPDATES_MASK: i64 = 0x7FFF;

/// The data of a special facility's row: the number of forwardings, an active flag, and a count of updates.
const FORWARDINGS_MASK: i64 = 3;
const ACTIVE: i64 = 1 << 2;
const FACILITY_UPDATE: i64 = 1 << 3;

struct Exchange {
    /// The number of subscribers.
    count: u32,
    subscribers: Rows,
    access: Rows,
    facilities: Rows,
    /// Call forwardings. Their values are destinations, without a lock or a version.
    forwardings: Rows,
}

/// Returns the key of a row that belongs to a subscriber and has one of several types, numbered from 1.
fn typed(subscriber: u32, kind: u8) -> u64 {
    u64::from(subscriber) << 2 | u64::from(kind - 1)
}

fn forwarding(facility: u64, start: u8) -> u64 {
    facility << 2 | u64::from(start / 8)
}

impl Exchange {
    fn new(session: &Session, subscribers: u32) -> Outcome<Self> {
        let rows = |each: u64| Rows::new(u64::from(subscribers) * each, session.args.seed);
        // On average, a subscriber has two and a half facilities, and each of them one and a half forwardings, which
        // transactions also insert and remove.
        let exchange = Self {
            count: subscribers,
            subscribers: rows(1)?,
            access: rows(3)?,
            facilities: rows(3)?,
            forwardings: rows(4)?,
        };
        load_all(session, subscribers, |subscriber| exchange.load(subscriber));
        Ok(exchange)
    }

    fn load(&self, subscriber: u32) {
        self.subscribers.load(subscriber.into(), 0);
        let (access, facilities) = (types_of(subscriber, ACCESS), types_of(subscriber, FACILITIES));
        for kind in 1..=4_u8 {
            let key = typed(subscriber, kind);
            if access >> (kind - 1) & 1 == 1 {
                self.access.load(key, kind.into());
            }
            if facilities >> (kind - 1) & 1 == 1 {
                let random = icefield_torture::rng::mix(key);
                // Zero to three forwardings; 85 of 100 facilities are active.
                let count = random % 4;
                (0..count).for_each(|i| {
                    self.forwardings.table().put(forwarding(key, 8 * i as u8), random);
                });
                let active = if (random >> 8) % 100 < 85 { ACTIVE } else { 0 };
                self.facilities.load(key, count as i64 | active);
            }
        }
    }

    fn update(&self, subscriber: u32, facility: u64) -> Option<()> {
        self.facilities.prefetch(facility);
        let row = self.subscribers.lock(subscriber.into())?;
        let Some(special) = self.facilities.lock(facility) else {
            self.subscribers.release(row);
            return None;
        };
        let (location, updates) =
            (row.data() & ((1 << LOCATION_BITS) - 1), row.data() >> LOCATION_BITS);
        self.facilities.commit(special, special.data() + FACILITY_UPDATE);
        let updates = (updates + 1) & UPDATES_MASK;
        self.subscribers.commit(row, updates << LOCATION_BITS | location);
        Some(())
    }

    fn insert(&self, subscriber: u32, facility: u64, start: u8) -> Option<()> {
        self.facilities.prefetch(facility);
        self.subscribers.read(subscriber.into())?;
        let special = self.facilities.lock(facility)?;
        let destination = icefield_torture::rng::mix(facility);
        let key = forwarding(facility, start);
        match self.forwardings.table().try_insert_shadow(key, destination) {
            Ok(shadow) => {
                // Commits while the facility is locked, so that a thread that reads the new count also finds the
                // forwarding.
                shadow.commit();
                self.facilities.commit(special, special.data() + 1);
                Some(())
            }
            Err(_) => {
                self.facilities.release(special);
                None
            }
        }
    }

    fn delete(&self, facility: u64, start: u8) -> Option<()> {
        self.forwardings.prefetch(forwarding(facility, start));
        let special = self.facilities.lock(facility)?;
        if self.forwardings.table().remove(forwarding(facility, start)).is_none() {
            self.facilities.release(special);
            return None;
        }
        self.facilities.commit(special, special.data() - 1);
        Some(())
    }
}

impl Benchmark for Exchange {
    type Transaction = Transaction;

    fn count(&self) -> u32 {
        self.count
    }

    fn draw(&self, _session: &Session, seed: u64, count: u64) -> Vec<Transaction> {
        let mut source = Tatp::new(self.count, seed);
        (0..count).map(|_| source.draw()).collect()
    }

    /// Runs a transaction. Returns `None` if it fails, for example because a row is absent. Such transactions are part
    /// of the benchmark.
    fn run(&self, transaction: Transaction) -> Option<i64> {
        let found = match transaction {
            Transaction::GetSubscriberData { subscriber } => {
                self.subscribers.read(subscriber.into()).is_some()
            }
            Transaction::GetAccessData { subscriber, access } => {
                self.access.read(typed(subscriber, access)).is_some()
            }
            Transaction::GetNewDestination { subscriber, facility, start } => {
                let key = typed(subscriber, facility);
                self.forwardings.prefetch(forwarding(key, start));
                let active = self.facilities.read(key).is_some_and(|row| row & ACTIVE != 0);
                active && self.forwardings.table().get(forwarding(key, start)).is_some()
            }
            Transaction::UpdateLocation { subscriber, location } => {
                let row = self.subscribers.lock(subscriber.into())?;
                let updates = row.data() >> LOCATION_BITS;
                self.subscribers.commit(row, updates << LOCATION_BITS | i64::from(location));
                true
            }
            Transaction::UpdateSubscriberData { subscriber, facility } => {
                self.update(subscriber, typed(subscriber, facility)).is_some()
            }
            Transaction::InsertCallForwarding { subscriber, facility, start } => {
                self.insert(subscriber, typed(subscriber, facility), start).is_some()
            }
            Transaction::DeleteCallForwarding { subscriber, facility, start } => {
                self.delete(typed(subscriber, facility), start).is_some()
            }
        };
        found.then_some(0)
    }

    fn fault(&mut self, _: &Session, _threads: usize, _net: i64) -> Outcome<Option<String>> {
        // `total` also checks that no lock is left.
        self.subscribers.total()?;
        self.facilities.total()?;
        let mut forwardings = 0;
        for subscriber in 0..self.count {
            let mut updates = 0;
            for kind in 1..=4_u8 {
                let key = typed(subscriber, kind);
                let Some(row) = self.facilities.read(key) else { continue };
                let present =
                    (0..3).filter(|i| self.forwardings.table().contains(forwarding(key, 8 * i)));
                let present = present.count() as i64;
                if row & FORWARDINGS_MASK != present {
                    let said = row & FORWARDINGS_MASK;
                    return Ok(Some(format!(
                        "{present} forwardings of {key}, but its record has {said}"
                    )));
                }
                forwardings += present as u64;
                updates += row / FACILITY_UPDATE;
            }
            let counted = self.subscribers.read(subscriber.into()).map(|row| row >> LOCATION_BITS);
            if counted != Some(updates & UPDATES_MASK) {
                return Ok(Some(format!("{updates} updates of {subscriber}'s, {counted:?} of it")));
            }
        }
        let all = self.forwardings.table().len() as u64;
        Ok((all != forwardings).then(|| format!("{all} forwardings, {forwardings} of facilities")))
    }
}

pub(super) fn run(session: &mut Session) -> Outcome {
    let subscribers = u32::try_from(session.keys_or(SUBSCRIBERS))
        .ok()
        .filter(|subscribers| *subscribers < 1 << 28)
        .ok_or_else(|| Error::option("keys", "tatp has less than 2^28 subscribers"))?;
    session.progress("tatp: loading");
    Exchange::new(session, subscribers)?.measure(session, None)
}
