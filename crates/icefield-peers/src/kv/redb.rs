//! redb: a copy-on-write B-tree in Rust, with a single writer.

use std::path::Path;

use redb::{
    Database, Durability, Key, ReadableDatabase, ReadableTable, Table, TableDefinition, Value,
};

use super::store::{Outcome, Store};
use crate::{Found, Writes};

const RECORDS: TableDefinition<'_, u64, u64> = TableDefinition::new("records");
const BYTES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("bytes");

pub(super) struct Redb {
    database: Database,
    durability: Durability,
}

impl Redb {
    fn write<K: Key + 'static, V: Value + 'static>(
        &self,
        durability: Durability,
        table: TableDefinition<'_, K, V>,
        act: impl FnOnce(&mut Table<'_, K, V>) -> Outcome<u64>,
    ) -> Outcome<u64> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(durability)?;
        let done = act(&mut transaction.open_table(table)?)?;
        transaction.commit()?;
        Ok(done)
    }
}

impl Store for Redb {
    const NAME: &'static str = "redb";

    fn open(dir: &Path, writes: Writes) -> Outcome<Self> {
        let database = Database::create(dir.join("records.redb"))?;
        let durability = match writes {
            Writes::Durable => Durability::Immediate,
            Writes::Relaxed => Durability::None,
        };
        let store = Self { database, durability };
        // Reads need existing tables.
        store.write(Durability::Immediate, RECORDS, |_| Ok(0))?;
        store.write(Durability::Immediate, BYTES, |_| Ok(0))?;
        Ok(store)
    }

    fn put(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(self.durability, RECORDS, |records| {
            for (key, value) in keys.iter().zip(values) {
                records.insert(key, value)?;
            }
            Ok(keys.len() as u64)
        })
    }

    fn insert(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(self.durability, RECORDS, |records| {
            let mut new = 0;
            for (key, value) in keys.iter().zip(values) {
                if records.get(key)?.is_none() {
                    records.insert(key, value)?;
                    new += 1;
                }
            }
            Ok(new)
        })
    }

    fn get(&self, keys: &[u64]) -> Outcome<Found> {
        let records = self.database.begin_read()?.open_table(RECORDS)?;
        let mut found = Found::default();
        for key in keys {
            if let Some(value) = records.get(key)? {
                found.take(value.value());
            }
        }
        Ok(found)
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(self.durability, RECORDS, |records| {
            let mut present = 0;
            for (key, value) in keys.iter().zip(values) {
                if let Some(mut old) = records.get_mut(key)? {
                    old.insert(value)?;
                    present += 1;
                }
            }
            Ok(present)
        })
    }

    fn remove(&self, keys: &[u64]) -> Outcome<u64> {
        self.write(self.durability, RECORDS, |records| {
            let mut present = 0;
            for key in keys {
                present += u64::from(records.remove(key)?.is_some());
            }
            Ok(present)
        })
    }

    fn put_bytes(&self, keys: &[&[u8]], values: &[&[u8]]) -> Outcome<u64> {
        self.write(self.durability, BYTES, |records| {
            for (key, value) in keys.iter().zip(values) {
                records.insert(key, value)?;
            }
            Ok(keys.len() as u64)
        })
    }

    fn get_bytes(&self, keys: &[&[u8]], found: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let records = self.database.begin_read()?.open_table(BYTES)?;
        for key in keys {
            if let Some(value) = records.get(key)? {
                found(value.value());
            }
        }
        Ok(())
    }
}
