//! TATP over four tables with all their columns (DLHT Fig 19): subscribers, access information, special facilities,
//! call forwardings. A fifth table leads from a subscriber's number of 15 digits to the subscriber, for the
//! transactions that name the number.
//!
//! Rows are records of maps; see [`super::rows`]. A call forwarding is added by a shadow insert while its special
//! facility is locked, whose row counts its forwardings. `UPDATE_SUBSCRIBER_DATA` changes a column in both rows, and
//! increments a counter in both. The check at the end therefore detects partial transactions: each facility must have
//! as many forwardings as its row counts, and each subscriber's row must count as many updates as the rows of its
//! facilities.

use std::hint::black_box;

use icefield::{DlhtGuard, DlhtMap};
use icefield_torture::rng::mix;
use icefield_torture::tatp::{Tatp, Transaction, types_of};

use super::oltp::{Benchmark, load_all};
use super::rows::Columns;
use crate::prelude::*;

/// The paper's number of subscribers.
const SUBSCRIBERS: u64 = 1_000_000;

const ACCESS: u64 = 1;
const FACILITIES: u64 = 2;

/// The columns of a subscriber: the number as 15 decimal digits of four bits; `bit_1` to `bit_10` and `hex_1` to
/// `hex_10`; `byte2_1` to `byte2_8`; `byte2_9` and `byte2_10`, and above them the counter of updates; `msc_location`
/// and above it `vlr_location`.
type Subscriber = Columns<5>;
const BITS: usize = 1;
const SUBSCRIBER_UPDATES: usize = 3;
const LOCATIONS: usize = 4;
const BIT_1: u64 = 1;
const ONE_UPDATE_SHIFT: u32 = 16;
const VLR_SHIFT: u32 = 32;

/// The columns of access information: `data1`, `data2` and `data3` (three characters); `data4` (five characters).
type Access = Columns<2>;

/// The columns of a special facility: `is_active`, `error_cntrl`, `data_a` and `data_b` (five characters) in one word;
/// the number of its forwardings; the counter of updates.
type Facility = Columns<3>;
const PLAIN: usize = 0;
const FORWARDINGS: usize = 1;
const FACILITY_UPDATES: usize = 2;
const ACTIVE: u64 = 1;
const DATA_A: u64 = 0xFF << 16;
const ONE_DATA_A: u64 = 1 << 16;

/// A call forwarding, which never changes.
struct Forwarding {
    end: u8,
    /// The number to which calls are forwarded: 15 digits.
    number: [u8; 15],
}

struct Exchange {
    /// The number of subscribers.
    count: u32,
    numbers: DlhtMap<[u8; 15], u32>,
    subscribers: DlhtMap<u32, Subscriber>,
    access: DlhtMap<u64, Access>,
    facilities: DlhtMap<u64, Facility>,
    forwardings: DlhtMap<u64, Forwarding>,
}

/// Returns the key of a row that belongs to a subscriber and has one of several types, numbered from 1.
fn typed(subscriber: u32, kind: u8) -> u64 {
    u64::from(subscriber) << 2 | u64::from(kind - 1)
}

fn forwarding(facility: u64, start: u8) -> u64 {
    facility << 2 | u64::from(start / 8)
}

/// Returns a number of 15 digits.
fn digits(mut number: u64) -> [u8; 15] {
    let mut digits = [b'0'; 15];
    for digit in digits.iter_mut().rev() {
        if number == 0 {
            break;
        }
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// Returns 15 digits in four bits each.
fn packed(digits: [u8; 15]) -> u64 {
    digits.iter().fold(0, |word, digit| word << 4 | u64::from(digit - b'0'))
}

impl Exchange {
    fn new(session: &Session, count: u32) -> Outcome<Self> {
        let rows = |each: usize| (count as usize).saturating_mul(each);
        // On average, a subscriber has two and a half facilities, and each of them one and a half forwardings, which
        // transactions also insert and remove.
        let exchange = Self {
            count,
            numbers: DlhtMap::<_, _>::options().capacity(rows(1)).build()?,
            subscribers: DlhtMap::<_, _>::options().capacity(rows(1)).build()?,
            access: DlhtMap::<_, _>::options().capacity(rows(3)).build()?,
            facilities: DlhtMap::<_, _>::options().capacity(rows(3)).build()?,
            forwardings: DlhtMap::<_, _>::options().capacity(rows(4)).build()?,
        };
        load_all(session, count, |subscriber| exchange.load(subscriber));
        Ok(exchange)
    }

    fn load(&self, subscriber: u32) {
        let (number, random) = (digits(subscriber.into()), mix(subscriber.into()));
        self.numbers.put(number, subscriber);
        let bits_and_hex = random & ((1 << 50) - 1);
        let columns = [packed(number), bits_and_hex, mix(random), random & 0xFFFF, mix(!random)];
        self.subscribers.put(subscriber, Columns::new(columns));
        let (access, facilities) = (types_of(subscriber, ACCESS), types_of(subscriber, FACILITIES));
        for kind in 1..=4_u8 {
            let key = typed(subscriber, kind);
            let random = mix(key);
            if access >> (kind - 1) & 1 == 1 {
                self.access.put(key, Columns::new([random & 0xFF_FFFF_FFFF, mix(random) >> 24]));
            }
            if facilities >> (kind - 1) & 1 == 1 {
                // Zero to three forwardings; 85 of 100 facilities are active.
                let count = random % 4;
                for i in 0..count as u8 {
                    let end = 8 * i + (random >> (3 * i + 2) & 7) as u8 + 1;
                    let number = digits(random % 1_000_000_000_000_000);
                    self.forwardings.put(forwarding(key, 8 * i), Forwarding { end, number });
                }
                let active = if (random >> 16) % 100 < 85 { ACTIVE } else { 0 };
                self.facilities.put(key, Columns::new([mix(random) & !0xFF | active, count, 0]));
            }
        }
    }

    /// Returns the subscriber with a number.
    fn subscriber(&self, subscriber: u32) -> Option<u32> {
        self.numbers.get_cloned(&digits(subscriber.into()))
    }

    fn subscriber_data(&self, subscriber: u32) -> Option<()> {
        black_box(self.subscribers.get(&subscriber, &self.subscribers.pin())?.read());
        Some(())
    }

    fn access_data(&self, key: u64) -> Option<()> {
        black_box(self.access.get(&key, &self.access.pin())?.read());
        Some(())
    }

    fn new_destination(&self, facility: u64, start: u8, end: u8) -> Option<()> {
        let starts = || (0..=start).step_by(8).map(|start| forwarding(facility, start));
        starts().for_each(|key| self.forwardings.prefetch(&key));
        let is_active = |row: &Facility| row.read()[PLAIN] & ACTIVE != 0;
        self.facilities.get_with(&facility, is_active).filter(|active| *active)?;
        let guard = self.forwardings.pin();
        let found = starts().filter_map(|key| self.forwardings.get(&key, &guard));
        let in_force = found.filter(|forwarding| forwarding.end > end);
        in_force.map(|forwarding| black_box(forwarding.number)).last().map(drop)
    }

    fn update_location(&self, subscriber: u32, location: u32) -> Option<()> {
        let subscriber = self.subscriber(subscriber)?;
        let guard = self.subscribers.pin();
        let row = self.subscribers.get(&subscriber, &guard)?.lock();
        let msc = (1 << VLR_SHIFT) - 1;
        row.change(LOCATIONS, |old| old & msc | u64::from(location) << VLR_SHIFT);
        Some(())
    }

    fn update_data(&self, subscriber: u32, facility: u64) -> Option<()> {
        self.facilities.prefetch(&facility);
        let (subscribers, facilities) = (self.subscribers.pin(), self.facilities.pin());
        let row = self.subscribers.get(&subscriber, &subscribers)?;
        let facility = self.facilities.get(&facility, &facilities)?;
        let (row, facility) = (row.lock(), facility.lock());
        row.change(BITS, |bits| bits ^ BIT_1);
        row.change(SUBSCRIBER_UPDATES, |word| word.wrapping_add(1 << ONE_UPDATE_SHIFT));
        facility.change(PLAIN, |word| word & !DATA_A | word.wrapping_add(ONE_DATA_A) & DATA_A);
        facility.change(FACILITY_UPDATES, |updates| updates + 1);
        Some(())
    }

    /// Returns the row of a facility, after reading which types of facilities the subscriber has.
    fn facility_of<'g>(
        &self,
        subscriber: u32,
        kind: u8,
        guard: &'g DlhtGuard<'_>,
    ) -> Option<&'g Facility> {
        let keys = [1, 2, 3, 4].map(|kind| typed(subscriber, kind));
        let mut found = [None; 4];
        self.facilities.get_batch(&keys.each_ref(), &mut found, guard);
        found[usize::from(kind - 1)]
    }

    fn insert(&self, subscriber: u32, kind: u8, start: u8, end: u8) -> Option<()> {
        let subscriber = self.subscriber(subscriber)?;
        let (facilities, forwardings) = (self.facilities.pin(), self.forwardings.pin());
        let key = forwarding(typed(subscriber, kind), start);
        self.forwardings.prefetch(&key);
        let facility = self.facility_of(subscriber, kind, &facilities)?;
        let forwarding = Forwarding { end, number: digits(mix(key) % 1_000_000_000_000_000) };
        let facility = facility.lock();
        let shadow = self.forwardings.try_insert_shadow(key, forwarding, &forwardings).ok()?;
        shadow.commit();
        facility.change(FORWARDINGS, |count| count + 1);
        Some(())
    }

    fn delete(&self, subscriber: u32, kind: u8, start: u8) -> Option<()> {
        let subscriber = self.subscriber(subscriber)?;
        let (facilities, forwardings) = (self.facilities.pin(), self.forwardings.pin());
        let (facility, key) = (typed(subscriber, kind), forwarding(typed(subscriber, kind), start));
        self.forwardings.prefetch(&key);
        let facility = self.facilities.get(&facility, &facilities)?.lock();
        self.forwardings.remove(&key, &forwardings)?;
        facility.change(FORWARDINGS, |count| count - 1);
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
        match transaction {
            Transaction::GetSubscriberData { subscriber } => self.subscriber_data(subscriber),
            Transaction::GetAccessData { subscriber, access } => {
                self.access_data(typed(subscriber, access))
            }
            Transaction::GetNewDestination { subscriber, facility, start, end } => {
                self.new_destination(typed(subscriber, facility), start, end)
            }
            Transaction::UpdateLocation { subscriber, location } => {
                self.update_location(subscriber, location)
            }
            Transaction::UpdateSubscriberData { subscriber, facility } => {
                self.update_data(subscriber, typed(subscriber, facility))
            }
            Transaction::InsertCallForwarding { subscriber, facility, start, end } => {
                self.insert(subscriber, facility, start, end)
            }
            Transaction::DeleteCallForwarding { subscriber, facility, start } => {
                self.delete(subscriber, facility, start)
            }
        }
        .map(|()| 0)
    }

    fn fault(&mut self, _: &Session, _threads: usize, _net: i64) -> Outcome<Option<String>> {
        let locked = "a row is still locked";
        let (subscribers, facilities) = (self.subscribers.pin(), self.facilities.pin());
        let mut forwardings = 0;
        for subscriber in 0..self.count {
            let mut updates = 0;
            for kind in 1..=4_u8 {
                let key = typed(subscriber, kind);
                let Some(facility) = self.facilities.get(&key, &facilities) else { continue };
                if facility.is_locked() {
                    return Ok(Some(locked.to_owned()));
                }
                let row = facility.read();
                let is_present = |i: &u8| self.forwardings.contains(&forwarding(key, 8 * i));
                let present = (0..3).filter(is_present).count() as u64;
                if row[FORWARDINGS] != present {
                    let said = row[FORWARDINGS];
                    return Ok(Some(format!(
                        "{present} forwardings of {key}, but its record has {said}"
                    )));
                }
                forwardings += present;
                updates += row[FACILITY_UPDATES];
            }
            let row = self.subscribers.get(&subscriber, &subscribers);
            if row.is_some_and(Columns::is_locked) {
                return Ok(Some(locked.to_owned()));
            }
            let counted = row.map(|row| row.read()[SUBSCRIBER_UPDATES] >> ONE_UPDATE_SHIFT);
            if counted != Some(updates) {
                return Ok(Some(format!("{updates} updates of {subscriber}'s, {counted:?} of it")));
            }
        }
        let all = self.forwardings.len() as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_fifteen_digits() {
        assert_eq!(&digits(1234), b"000000000001234");
        assert_eq!(packed(digits(1234)), 0x1234);
        assert_eq!(digits(999_999_999_999_999), [b'9'; 15]);
    }
}
