//! The traits of the standard library's maps and sets, against those collections.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;

use icefield::{
    Cursor, Dlht, DlhtAndModify, DlhtDrain, DlhtEntry, DlhtIntoIter, DlhtIter, DlhtKeys, DlhtLocal,
    DlhtOptions, DlhtSet, DlhtSetDrain, DlhtSetIntoIter, DlhtSetIter, DlhtSetLocal,
    DlhtSetSnapshot, DlhtTable, DlhtValues, DlhtWordSet, Shared, Threading,
};
use icefield_torture::Rng;

fn records(rng: &mut Rng, count: u64) -> Vec<(u32, u16)> {
    (0..count).map(|_| (rng.below(2 * count) as u32, rng.below(3) as u16)).collect()
}

fn tables_agree<M: Threading>(seed: u64) {
    let mut rng = Rng::new(seed);
    let (count, more) = (*rng.pick(&[1, 20, 3000]), *rng.pick(&[1, 200]));
    let (first, second) = (records(&mut rng, count), records(&mut rng, more));
    let mut table: DlhtTable<u32, u16, M> = first.iter().copied().collect();
    let mut right: HashMap<u32, u16> = first.iter().copied().collect();
    let borrowed: HashMap<u32, u16> = second.iter().copied().collect();
    table.extend(&borrowed);
    right.extend(&borrowed);
    table.extend(second.iter().copied());
    right.extend(second.iter().copied());
    assert_eq!(table.len(), right.len());
    assert!(table.capacity() >= table.len());

    let by_loop: HashMap<u32, u16> = (&table).into_iter().collect();
    assert_eq!(by_loop, right);
    let keys: HashSet<u32> = table.keys().collect();
    assert_eq!((keys.len(), table.keys().count()), (right.len(), right.len()));
    assert!(keys.iter().all(|key| right.contains_key(key)));
    let sum = |values: &mut dyn Iterator<Item = u16>| values.map(u64::from).sum::<u64>();
    assert_eq!(sum(&mut table.values()), sum(&mut right.values().copied()));

    let copy = table.clone();
    assert!(copy == table);
    let key = *rng.pick(&keys.into_iter().collect::<Vec<_>>());
    let value = copy.get(key).expect("present");
    copy.insert(key, value + 1);
    assert!(copy != table, "another value");
    copy.insert(key, value);
    assert!(copy == table);
    copy.remove(key);
    assert!(copy != table, "one record less");
    copy.insert(u32::MAX, value);
    assert!(copy != table, "another key");

    let mut owned = table.into_iter();
    assert_eq!(owned.len(), right.len());
    let one = owned.next();
    assert_eq!(owned.size_hint(), (right.len() - 1, Some(right.len() - 1)));
    assert_eq!(owned.chain(one).collect::<HashMap<_, _>>(), right);
}

#[test]
fn tables_behave_as_maps() {
    for seed in 0..60 {
        tables_agree::<Shared>(seed);
        tables_agree::<icefield::Local>(seed);
    }
}

#[test]
fn literals_and_defaults() {
    let table = Dlht::from([(1_u8, 'a'), (2, 'b'), (1, 'c')]);
    assert_eq!((table.len(), table.get(1)), (2, Some('c')));
    assert!(Dlht::<u8, char>::default().is_empty() && DlhtLocal::<u8, bool>::default().is_empty());
    assert_eq!(format!("{:?}", Dlht::from([(1_u8, 'a')])), "{1: 'a'}");
    let floats = Dlht::from([(1_u64, f64::NAN)]);
    assert!(floats != floats.clone(), "as in the standard library");

    let set = DlhtSet::from([1_u8, 2, 1]);
    assert_eq!(set.len(), 2);
    assert_eq!(format!("{:?}", DlhtSetLocal::from([[7_u8; 3]])), "{[7, 7, 7]}");
    let mut sum = 0;
    for key in &set {
        sum += key;
    }
    let mut other = DlhtSet::default();
    other.extend(&[2_u8, 1]);
    assert!(sum == 3 && set == other && set.into_iter().len() == 2);
    // Sets of both kinds mix.
    assert!(other.is_subset(&DlhtSetLocal::from([1, 2, 3])));
    assert_eq!(DlhtSetLocal::from([1_u8, 3]).intersection(&other).collect::<Vec<_>>(), [1]);
}

#[test]
fn hints_of_iterators_hold() {
    let table: Dlht<u64, u64> = (0..5000).map(|key| (key, key)).collect();
    let mut left = 5000;
    let mut iter = table.iter();
    loop {
        let (least, most) = iter.size_hint();
        assert!(least <= left && most.is_none_or(|most| most >= left), "{least} {most:?} {left}");
        if iter.next().is_none() {
            break;
        }
        left -= 1;
    }
    assert_eq!((left, iter.next()), (0, None));
    let mut next = Some(Cursor::START);
    let mut pages = 0;
    let set: DlhtSet<u64> = table.keys().collect();
    while let Some(cursor) = next {
        let page = set.scan(cursor, 100);
        next = page.next;
        pages += 1;
    }
    assert!((30..200).contains(&pages), "{pages} pages");
}

/// Copies of limited tables have room for all records, and the same limits.
#[test]
fn copies_keep_the_options() {
    for seed in 0..150 {
        let options = DlhtOptions::<Dlht<u64, u64>>::default().capacity(300);
        let options = if seed % 2 == 0 { options.fixed_size() } else { options.max_bytes(20_000) };
        let options = if seed % 3 == 0 { options.hash_seed([seed, 1]) } else { options };
        let table = options.build().expect("small");
        let fits = (0..).take_while(|&key| table.checked_insert(key, !key).is_ok()).count();
        let copy = table.clone();
        assert!(fits >= 100 && copy == table && copy.len() == fits);
        let more = (1 << 20..).take(100_000);
        assert!(more.into_iter().any(|key| copy.checked_insert(key, 0).is_err()), "no limit");
        assert!((0..fits as u64).all(|key| copy.get(key) == Some(!key)));
    }
    let set = DlhtSet::<u16>::options().capacity(100).fixed_size().build().expect("small");
    let fits = (0..).take_while(|&key| set.checked_insert(key).is_ok()).count();
    let copy = set.clone();
    assert!(copy == set && copy.len() == fits);
    assert!((0..u16::MAX).any(|key| copy.checked_insert(key).is_err()));
}

/// The options of sets have the same effects as those of tables.
#[test]
fn sets_have_options() {
    let order = |seed| -> Vec<u32> {
        let set = DlhtSet::<u32>::options().hash_seed(seed).build().expect("small");
        (0..100).for_each(|key| assert!(set.insert(key)));
        set.iter().collect()
    };
    assert_eq!(order([1, 2]), order([1, 2]));
    assert_ne!(order([1, 2]), order([3, 4]));
    let set = DlhtSet::<u64>::options().max_bytes(1 << 20).link_ratio(0.5).build().expect("small");
    assert!((0..100_000).any(|key| set.checked_insert(key).is_err()));
    assert!(set.stats().dram_bytes <= 1 << 20);
    let odd = DlhtSet::<u64>::options().link_ratio(4.0).build();
    assert!(matches!(odd, Err(icefield::Error::InvalidOption { .. })));
    let local = DlhtSetLocal::<u64>::options().capacity(10_000).build().expect("small");
    assert!(local.capacity() >= 10_000);
}

/// The types can be sent, shared and printed where those of the standard library can.
#[test]
fn types_cross_threads_and_print() {
    fn shared<T: Send + Sync + Debug>() {}
    fn sent<T: Send>() {}
    type NoChange = fn(&mut u64);
    shared::<Dlht<u64, f64>>();
    shared::<DlhtSet<u64>>();
    shared::<DlhtEntry<'_, u64, u64>>();
    shared::<DlhtAndModify<'_, u64, u64, Shared, NoChange>>();
    shared::<DlhtIter<'_, u64, u64>>();
    shared::<DlhtKeys<'_, u64, u64>>();
    shared::<DlhtValues<'_, u64, u64>>();
    shared::<DlhtIntoIter<u64, u64>>();
    shared::<DlhtDrain<u64, u64>>();
    shared::<DlhtSetIter<'_, u64>>();
    shared::<DlhtSetIntoIter<u64>>();
    shared::<DlhtSetDrain<u64>>();
    shared::<DlhtSetSnapshot<u64>>();
    shared::<icefield::DlhtSetShadow<'_, u64>>();
    sent::<DlhtLocal<u64, u64>>();
    sent::<DlhtWordSet<u64, icefield::Local>>();
    sent::<DlhtOptions<DlhtSetLocal<u64>>>();
}
