//! LMDB, through heed: a copy-on-write B-tree in a mapped file, with a single writer.

use std::borrow::Cow;
use std::path::Path;

use heed::types::Bytes;
use heed::{
    BoxedError, BytesDecode, BytesEncode, CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions,
    IntegerComparator, RwTxn,
};

use super::store::{Outcome, Store};
use crate::{Found, Writes};

/// The size of the file's mapping. Storage is allocated only for pages that are written.
const MAP_BYTES: usize = 64 << 30;

/// The maximum number of concurrent readers.
const READERS: u32 = 1024;

/// A word in native byte order, which LMDB compares as an integer.
enum Word {}

impl<'a> BytesEncode<'a> for Word {
    type EItem = u64;

    fn bytes_encode(word: &'a u64) -> Result<Cow<'a, [u8]>, BoxedError> {
        // SAFETY: a word is eight bytes, all of them readable.
        let bytes = unsafe { std::slice::from_raw_parts(std::ptr::from_ref(word).cast(), 8) };
        Ok(Cow::Borrowed(bytes))
    }
}

impl<'a> BytesDecode<'a> for Word {
    type DItem = u64;

    fn bytes_decode(bytes: &'a [u8]) -> Result<u64, BoxedError> {
        Ok(u64::from_ne_bytes(bytes.try_into()?))
    }
}

type Records = Database<'static, Word, Word, IntegerComparator>;

pub(super) struct Lmdb {
    env: Env,
    records: Records,
    bytes: Database<'static, Bytes, Bytes>,
}

impl Lmdb {
    fn write(&self, act: impl FnOnce(&mut RwTxn<'_>) -> Outcome<u64>) -> Outcome<u64> {
        let mut transaction = self.env.write_txn()?;
        let done = act(&mut transaction)?;
        transaction.commit()?;
        Ok(done)
    }
}

impl Store for Lmdb {
    const NAME: &'static str = "lmdb";

    fn open(dir: &Path, writes: Writes) -> Outcome<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_BYTES).max_readers(READERS).max_dbs(2);
        if writes == Writes::Relaxed {
            // SAFETY: without syncs a system crash may corrupt the files, but they are not read after a crash.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: the files belong to this run, and no other process changes them while they are mapped.
        let env = unsafe { options.open(dir) }?;
        let records = env
            .create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                let options = opener.database_options().types::<Word, Word>();
                let mut options = options.key_comparator::<IntegerComparator>();
                options.name("records").create(transaction).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit();
        let bytes = env
            .create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                let mut options = opener.database_options().types::<Bytes, Bytes>();
                options.name("bytes").create(transaction).map(CommitOrAbort::<_, ()>::Commit)
            })?
            .unwrap_commit();
        Ok(Self { env, records, bytes })
    }

    fn put(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(|transaction| {
            for (key, value) in keys.iter().zip(values) {
                self.records.put(transaction, key, value)?;
            }
            Ok(keys.len() as u64)
        })
    }

    fn insert(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(|transaction| {
            let mut new = 0;
            for (key, value) in keys.iter().zip(values) {
                let present = self.records.get_or_put(transaction, key, value)?;
                new += u64::from(present.is_none());
            }
            Ok(new)
        })
    }

    fn get(&self, keys: &[u64]) -> Outcome<Found> {
        let transaction = self.env.read_txn()?;
        let mut found = Found::default();
        for key in keys {
            if let Some(value) = self.records.get(&transaction, key)? {
                found.take(value);
            }
        }
        Ok(found)
    }

    fn update(&self, keys: &[u64], values: &[u64]) -> Outcome<u64> {
        self.write(|transaction| {
            let mut present = 0;
            for (key, value) in keys.iter().zip(values) {
                if self.records.get(transaction, key)?.is_some() {
                    self.records.put(transaction, key, value)?;
                    present += 1;
                }
            }
            Ok(present)
        })
    }

    fn remove(&self, keys: &[u64]) -> Outcome<u64> {
        self.write(|transaction| {
            let mut present = 0;
            for key in keys {
                present += u64::from(self.records.delete(transaction, key)?);
            }
            Ok(present)
        })
    }

    fn put_bytes(&self, keys: &[&[u8]], values: &[&[u8]]) -> Outcome<u64> {
        self.write(|transaction| {
            for (key, value) in keys.iter().zip(values) {
                self.bytes.put(transaction, key, value)?;
            }
            Ok(keys.len() as u64)
        })
    }

    fn get_bytes(&self, keys: &[&[u8]], found: &mut dyn FnMut(&[u8])) -> Outcome<()> {
        let transaction = self.env.read_txn()?;
        for key in keys {
            if let Some(value) = self.bytes.get(&transaction, key)? {
                found(value);
            }
        }
        Ok(())
    }
}
