//! The feature `serde`: maps of records are maps in data formats.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use serde_core::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde_core::ser::{Error, Serialize, Serializer};

use super::memory::RecordAllocator;
use super::options::DlhtMapOptions;
use super::record::Record;
use super::write::When;
use super::{DlhtMapSnapshot, DlhtNamespace, DlhtRecordMap};
use crate::dlht::mode::Threading;
use crate::dlht::serialize::{ANNOUNCED, serialize_records};
use crate::outcome::SCAN_PAGE;

/// Writes a map of the records of namespace 0. References to the records are collected first, because many formats begin
/// with their number; they are as consistent as [`DlhtMap::iter`](crate::DlhtMap::iter). For all records at one moment,
/// serialize a [`DlhtMap::snapshot`](crate::DlhtMap::snapshot).
///
/// Fails if other namespaces have records, which would be lost: serialize each [`DlhtNamespace`].
impl<K, V, S, A, M> Serialize for DlhtRecordMap<K, V, S, A, M>
where
    K: Serialize,
    V: Serialize,
    A: RecordAllocator,
    M: Threading,
{
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let guard = self.pin();
        let records: Vec<_> = self.all_records(&guard).map(|(_, record)| record).collect();
        if let Some(other) = records.iter().find(|record| record.namespace != 0) {
            return Err(W::Error::custom(format_args!(
                "namespace {} has records too: serialize each namespace by itself",
                other.namespace
            )));
        }
        serialize_records(records.len(), records.into_iter().map(Record::pair), serializer)
    }
}

/// Writes a map of the records of the namespace, as for a map.
impl<K, V, S, A, M> Serialize for DlhtNamespace<'_, K, V, S, A, M>
where
    K: Serialize + Hash + Eq + Send,
    V: Serialize + Send,
    S: BuildHasher,
    A: RecordAllocator,
    M: Threading,
{
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        let guard = self.map().pin();
        let records: Vec<_> = self.iter(&guard).collect();
        serialize_records(records.len(), records.into_iter(), serializer)
    }
}

/// Writes a map of all records at the moment of the snapshot.
impl<K: Serialize, V: Serialize, A: RecordAllocator> Serialize for DlhtMapSnapshot<'_, K, V, A> {
    fn serialize<W: Serializer>(&self, serializer: W) -> Result<W::Ok, W::Error> {
        serialize_records(self.iter().count(), self.iter(), serializer)
    }
}

/// Reads a map into namespace 0. Of several records with the same key, the last one stays.
impl<'de, K, V, S, A, M> Deserialize<'de> for DlhtRecordMap<K, V, S, A, M>
where
    K: Deserialize<'de> + Hash + Eq + Send,
    V: Deserialize<'de> + Send,
    S: BuildHasher + Default,
    A: RecordAllocator + Default,
    M: Threading,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Records(PhantomData))
    }
}

struct Records<K, V, S, A: RecordAllocator, M: Threading>(
    PhantomData<DlhtRecordMap<K, V, S, A, M>>,
);

impl<'de, K, V, S, A, M> Visitor<'de> for Records<K, V, S, A, M>
where
    K: Deserialize<'de> + Hash + Eq + Send,
    V: Deserialize<'de> + Send,
    S: BuildHasher + Default,
    A: RecordAllocator + Default,
    M: Threading,
{
    type Value = DlhtRecordMap<K, V, S, A, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<I: MapAccess<'de>>(self, mut input: I) -> Result<Self::Value, I::Error> {
        let announced = input.size_hint().unwrap_or(0).min(ANNOUNCED);
        let options = DlhtMapOptions::new(S::default(), A::default()).capacity(announced);
        let map = options.build().map_err(de::Error::custom)?;
        let mut page = Vec::with_capacity(SCAN_PAGE.min(announced));
        loop {
            let record = input.next_entry()?;
            let is_last = record.is_none();
            page.extend(record);
            if is_last || page.len() == SCAN_PAGE {
                let put = map.put_all(0, page.drain(..), When::Always, &map.pin(), drop);
                put.map_err(de::Error::custom)?;
            }
            if is_last {
                return Ok(map);
            }
        }
    }
}
