//! The feature `serde`: tables are maps, and sets are sequences, in data formats.

use std::fmt;
use std::marker::PhantomData;

use serde_core::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_core::ser::{Serialize, SerializeMap, Serializer};

use super::mode::Threading;
use super::snapshot::Snapshot;
use super::{DlhtSetSnapshot, DlhtTable, DlhtWordSet};
use crate::outcome::SCAN_PAGE;
use crate::types::Word;

/// The maximum number of records for which memory is reserved because the input announces them: the announcement may be
/// wrong.
pub(super) const ANNOUNCED: usize = 1 << 16;

pub(super) fn serialize_records<K: Serialize, V: Serialize, S: Serializer>(
    len: usize,
    records: impl Iterator<Item = (K, V)>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(len))?;
    for (key, value) in records {
        map.serialize_entry(&key, &value)?;
    }
    map.end()
}

/// Writes a map. The records are copied first, because many formats begin with their number; they are as consistent as
/// [`DlhtTable::iter`]. For all records at one moment, and no copy besides the index, serialize a
/// [`DlhtTable::snapshot`].
impl<K: Word + Serialize, V: Word + Serialize, M: Threading> Serialize for DlhtTable<K, V, M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let records: Vec<(K, V)> = self.iter().collect();
        serialize_records(records.len(), records.into_iter(), serializer)
    }
}

/// Writes a map of all records at the moment of the snapshot.
impl<K: Word + Serialize, V: Word + Serialize> Serialize for Snapshot<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_records(self.iter().count(), self.iter(), serializer)
    }
}

/// Reads a map. Of several records with the same key, the last one stays.
impl<'de, K, V, M> Deserialize<'de> for DlhtTable<K, V, M>
where
    K: Word + Deserialize<'de>,
    V: Word + Deserialize<'de>,
    M: Threading,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Records(PhantomData))
    }
}

struct Records<K, V, M: Threading>(PhantomData<DlhtTable<K, V, M>>);

impl<'de, K, V, M> Visitor<'de> for Records<K, V, M>
where
    K: Word + Deserialize<'de>,
    V: Word + Deserialize<'de>,
    M: Threading,
{
    type Value = DlhtTable<K, V, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let announced = map.size_hint().unwrap_or(0).min(ANNOUNCED);
        let table = DlhtTable::options().capacity(announced).build().map_err(Error::custom)?;
        let mut page = Vec::with_capacity(SCAN_PAGE.min(announced));
        loop {
            let record = map.next_entry()?;
            let is_last = record.is_none();
            page.extend(record);
            if is_last || page.len() == SCAN_PAGE {
                table.put_all(&page).map_err(Error::custom)?;
                page.clear();
            }
            if is_last {
                return Ok(table);
            }
        }
    }
}

/// Writes a sequence. The keys are copied first, as for a table.
impl<K: Word + Serialize, M: Threading> Serialize for DlhtWordSet<K, M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().collect::<Vec<K>>())
    }
}

/// Writes a sequence of all keys at the moment of the snapshot.
impl<K: Word + Serialize> Serialize for DlhtSetSnapshot<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().collect::<Vec<K>>())
    }
}

/// Reads a sequence. Keys may be repeated.
impl<'de, K: Word + Deserialize<'de>, M: Threading> Deserialize<'de> for DlhtWordSet<K, M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Keys(PhantomData))
    }
}

struct Keys<K, M: Threading>(PhantomData<DlhtWordSet<K, M>>);

impl<'de, K: Word + Deserialize<'de>, M: Threading> Visitor<'de> for Keys<K, M> {
    type Value = DlhtWordSet<K, M>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut keys: A) -> Result<Self::Value, A::Error> {
        let announced = keys.size_hint().unwrap_or(0).min(ANNOUNCED);
        let set = DlhtWordSet::options().capacity(announced).build().map_err(Error::custom)?;
        let mut inserted = [false; SCAN_PAGE];
        let mut page = Vec::with_capacity(SCAN_PAGE.min(announced));
        loop {
            let key: Option<K> = keys.next_element()?;
            let is_last = key.is_none();
            page.extend(key);
            if is_last || page.len() == SCAN_PAGE {
                let batch = set.checked_insert_batch(&page, &mut inserted[..page.len()]);
                batch.map_err(Error::custom)?;
                page.clear();
            }
            if is_last {
                return Ok(set);
            }
        }
    }
}
