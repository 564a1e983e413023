//! Keys and values of 16, 32 and 64 bytes, stored in the slots.

use std::fmt::Debug;

use icefield::{
    AnyOptions, AnyTable, Computed, Data, Decision, Error, Key, OnFailure, Op, Plush, TryInsert,
    Value,
};

use super::{Check, TINY};

/// Returns the `n`th of many values. Half of them share the first word; the top bits of words are set or clear.
fn bytes<const N: usize>(n: u64) -> [u8; N] {
    std::array::from_fn(|at| match at / 8 {
        0 => n as u8 % 2 * 0x80,
        word => n.rotate_right(word as u32).to_le_bytes()[at % 8],
    })
}

/// A type with example values.
trait Example:
    Key<Owned = Self> + Value + for<'a> Data<Arg<'a> = Self> + Copy + PartialEq + Debug
{
    fn nth(n: u64) -> Self;
}

impl Example for u64 {
    fn nth(n: u64) -> Self {
        n
    }
}

impl Example for u128 {
    fn nth(n: u64) -> Self {
        u128::from_le_bytes(bytes(n))
    }
}

impl<const N: usize> Example for [u8; N]
where
    Self: Key<Owned = Self> + Value + for<'a> Data<Arg<'a> = Self>,
{
    fn nth(n: u64) -> Self {
        bytes(n)
    }
}

#[test]
fn every_width_goes_with_every_other() -> Check {
    sink_and_stay::<[u8; 16], u64>()?;
    sink_and_stay::<u64, [u8; 16]>()?;
    sink_and_stay::<u128, u128>()?;
    sink_and_stay::<[u8; 32], [u8; 64]>()?;
    sink_and_stay::<[u8; 64], [u8; 32]>()?;
    sink_and_stay::<[u8; 64], [u8; 64]>()
}

fn sink_and_stay<K: Example, V: Example>() -> Check {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("table.ice");
    let mut table = Plush::<K, V>::options().shape(TINY).create(&path)?;
    let keys = 400;
    for n in 0..keys {
        table.put(K::nth(n), V::nth(n))?;
    }
    for n in (0..keys).step_by(3) {
        assert_eq!(table.insert(K::nth(n), V::nth(!n))?, Some(V::nth(n)));
        assert_eq!(table.remove(K::nth(n + 1))?, (n + 1 < keys).then(|| V::nth(n + 1)));
    }
    for _ in 0..2 {
        for n in 0..keys {
            let expected = [Some(V::nth(!n)), None, Some(V::nth(n))][(n % 3) as usize];
            assert_eq!(table.get(K::nth(n))?, expected, "key {n}");
        }
        let report = table.check()?;
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(report.records, table.len()?);
        drop(table);
        assert!(!path.join("payload.ice").exists(), "nothing is stored by reference");
        table = Plush::<K, V>::open(&path)?;
    }
    let rescued = directory.path().join("rescued.ice");
    let report = table.salvage(&rescued)?;
    assert_eq!((report.records, report.lost.len()), (table.len()?, 0));
    assert_eq!(Plush::<K, V>::open(&rescued)?.get(K::nth(2))?, Some(V::nth(2)));
    Ok(())
}

#[test]
fn every_operation_takes_wide_records() -> Check {
    let table = Plush::<[u8; 32], u128>::options().shape(TINY).in_memory()?;
    let key = bytes::<32>;
    assert_eq!(table.try_insert(key(1), 10)?, Ok(()));
    let occupied: TryInsert<u128> = table.try_insert(key(1), 11)?;
    assert_eq!(occupied.map_err(|occupied| occupied.0), Err(10));
    // Only one half of the value differs.
    let high = 10 | 1 << 64;
    let computed = table.compute(key(1), |value| match value {
        Some(10) => Decision::Put(high),
        _ => Decision::Keep,
    })?;
    assert_eq!(computed, Computed::Put(Some(10)));
    assert_eq!(table.update(key(1), 12)?, Some(high));
    assert_eq!(table.update(key(2), 12)?, None);
    let pairs: Vec<_> = (0..100).map(|n| (key(n), u128::from(n) << 80)).collect();
    table.put_batch(&pairs)?;
    let keys: Vec<_> = (0..101).map(key).collect();
    let mut found = vec![None; keys.len()];
    table.get_batch(&keys, &mut found)?;
    assert!((0..100).all(|n| found[n] == Some((n as u128) << 80)) && found[100].is_none());
    let mut ops = [Op::get(key(5)), Op::put(key(5), 1), Op::get(key(5)), Op::remove(key(5))];
    table.execute(&mut ops, OnFailure::Stop)?;
    table.put_unlogged(key(5), 2)?;
    table.checkpoint(1)?;
    assert_eq!(table.get(key(5))?, Some(2));
    for n in 0..100 {
        for round in 0..20_u128 {
            table.put(key(n), round << 100)?;
        }
    }
    table.shrink_to_fit()?;
    assert_eq!(
        table.iter().filter(|record| matches!(record, Ok((_, v)) if v >> 100 == 19)).count(),
        100
    );
    table.clear()?;
    assert_eq!((table.len()?, table.get(key(5))?), (0, None));
    Ok(())
}

/// Untyped tables read the widths from the superblock.
#[test]
fn untyped_tables_have_wide_records_too() -> Check {
    let directory = tempfile::tempdir()?;
    for (number, (key_type, value_type, key_bytes, value_bytes)) in [
        ("[u8; 16]", "u128", 16, 16),
        ("u64", "[u8; 64]", 8, 64),
        ("[u8; 64]", "i8", 64, 1),
        ("[u8; 32]", "[u8; 32]", 32, 32),
        ("[u8; 32]", "bytes", 32, 5),
    ]
    .into_iter()
    .enumerate()
    {
        let path = directory.path().join(format!("{number}.ice"));
        let table = AnyTable::create(&path, "plush", key_type, value_type, &AnyOptions::default())?;
        let record =
            |n: u64| (bytes::<64>(n)[64 - key_bytes..].to_vec(), vec![n as u8; value_bytes]);
        for n in 0..300 {
            let (key, value) = record(n);
            table.put(&key, &value)?;
        }
        drop(table);
        let table = AnyTable::open(&path)?;
        for n in 0..300 {
            let (key, value) = record(n);
            assert_eq!(table.get(&key)?, Some(value), "{key_type} {value_type} {n}");
        }
        assert_eq!((table.len()?, table.check()?.is_clean()), (300, true));
        assert_eq!(path.join("payload.ice").exists(), value_type == "bytes");
    }
    let typed = Plush::<[u8; 16], u128>::open(directory.path().join("0.ice"))?;
    assert_eq!(typed.get(bytes::<64>(7)[48..].try_into()?)?, Some(u128::from_le_bytes([7; 16])));
    drop(typed);
    let other = Plush::<[u8; 16], [u8; 16]>::open(directory.path().join("0.ice"));
    assert!(matches!(other, Err(Error::TypeMismatch { .. })));
    Ok(())
}
