//! The costs table of each table's header, asserted from the simulator's counters, and for tables in memory from a
//! count of locked instructions.

use std::cell::Cell;

use icefield::base::hash::{Hash, HashKind};
use icefield::pm::sim::{Counters, Sim, SimOptions};
use icefield::{
    Arg, Dash, DashOptions, Directory, DlhtTable, Eh, Iceberg, Interleaved, Lh, OnFailure, Op,
    Plush, Result, Shape, Turns, Value,
};

/// What one call costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cost {
    /// Lines of the regions that hold records.
    bucket_lines: u64,
    flushes: u64,
    fences: u64,
    writes: u64,
}

fn total(counters: &Counters) -> Cost {
    const RECORDS: [&str; 9] = [
        "segments.ice",
        "front.ice",
        "back.ice",
        "overflow.ice",
        "levels.ice",
        "buckets-1.ice",
        "buckets-2.ice",
        "buckets-4.ice",
        "buckets-8.ice",
    ];
    let bucket_lines = counters.line_reads.iter().filter(|(region, _)| RECORDS.contains(region));
    Cost {
        bucket_lines: bucket_lines.map(|(_, lines)| lines).sum(),
        flushes: counters.flushes,
        fences: counters.fences,
        writes: counters.line_writes,
    }
}

/// The cost of one call of `operation`, each line read counted once.
fn cost<T>(sim: &Sim, operation: impl FnOnce() -> Result<T>) -> Cost {
    sim.begin_op();
    let before = total(&sim.counters());
    operation().expect("the simulated medium has room");
    let after = total(&sim.counters());
    Cost {
        bucket_lines: after.bucket_lines - before.bucket_lines,
        flushes: after.flushes - before.flushes,
        fences: after.fences - before.fences,
        writes: after.writes - before.writes,
    }
}

fn counting() -> Sim {
    Sim::new(SimOptions {
        counting: true,
        recording: false,
        region_bytes: 64 << 20,
        space_bytes: 64 << 20,
        ..SimOptions::default()
    })
}

fn table<P: Directory>(sim: &Sim, capacity: u64) -> Dash<u64, u64, P, Sim> {
    DashOptions::default()
        .capacity(capacity)
        .hash_seed([1, 2])
        .create_on(sim.clone())
        .expect("room")
}

#[test]
fn reads_write_nothing_and_touch_few_lines() {
    reads_are_cheap::<Eh>();
    reads_are_cheap::<Lh>();
}

fn reads_are_cheap<P: Directory>() {
    let sim = counting();
    let table = table::<P>(&sim, 50_000);
    for key in 0..50_000 {
        table.put(key, key).expect("room");
    }
    let (mut hits, mut misses) = (0, 0);
    for key in 0..10_000 {
        let hit = cost(&sim, || table.get(key * 5));
        let miss = cost(&sim, || table.get(1_000_000 + key));
        for read in [hit, miss] {
            assert_eq!((read.flushes, read.fences, read.writes), (0, 0, 0), "key {key}");
        }
        hits += hit.bucket_lines;
        misses += miss.bucket_lines;
    }
    println!("bucket lines: {} a hit, {} a miss", hits as f64 / 1e4, misses as f64 / 1e4);
    assert!(hits <= 30_000, "a hit reads at most 3 bucket lines on average");
    assert!(misses <= 21_000, "a miss reads at most 2.1 bucket lines on average");
}

#[test]
fn single_writes_cost_what_the_header_says() {
    single_writes_are_cheap::<Eh>();
    single_writes_are_cheap::<Lh>();
}

fn single_writes_are_cheap<P: Directory>() {
    let sim = counting();
    let table = table::<P>(&sim, 50_000);
    let details = |name| {
        table
            .stats()
            .details
            .iter()
            .find(|(found, _)| *found == name)
            .map_or(0, |(_, count)| *count)
    };
    let mut direct = 0;
    for key in 0..40_000 {
        let rare = details("displacements") + details("splits");
        let insert = cost(&sim, || table.try_insert(key, key));
        if details("displacements") + details("splits") == rare {
            assert_eq!((insert.flushes, insert.fences), (2, 2), "insert {key}");
            direct += 1;
        }
    }
    for key in 0..2_000 {
        let update = cost(&sim, || table.update(key, 7));
        assert_eq!((update.flushes, update.fences), (1, 1), "update {key}");
        let replace = cost(&sim, || table.insert(key, 8));
        assert_eq!((replace.flushes, replace.fences), (1, 1), "insert of present {key}");
        let occupied = cost(&sim, || table.try_insert(key, 9));
        assert_eq!((occupied.flushes, occupied.fences), (0, 0), "try_insert of present {key}");
        let remove = cost(&sim, || table.remove(key));
        assert_eq!((remove.flushes, remove.fences), (1, 1), "remove {key}");
        let absent = cost(&sim, || table.remove(key));
        assert_eq!((absent.flushes, absent.fences), (0, 0), "remove of absent {key}");
    }
    println!("{direct} direct inserts, {} into the stash", details("stash_inserts"));
    assert!(direct > 39_000);
}

#[test]
fn a_window_of_32_inserts_has_two_fences() {
    windows_are_cheap::<Eh>();
    windows_are_cheap::<Lh>();
}

fn windows_are_cheap<P: Directory>() {
    let sim = counting();
    let table = table::<P>(&sim, 60_000);
    let mut fences = 0;
    for batch in 0..1_000_u64 {
        let pairs: Vec<(u64, u64)> = (0..32).map(|n| (batch * 32 + n, n)).collect();
        fences += cost(&sim, || table.put_batch(&pairs)).fences;
    }
    println!("{} fences a batch of 32", fences as f64 / 1e3);
    assert_eq!(fences, 2_000);
}

/// An Iceberg of 1024 buckets in each yard that never doubles, 95 % of its slots filled.
fn full_iceberg(sim: &Sim) -> (Iceberg<u64, u64, Sim>, u64) {
    let slots = 1024 * 72;
    let table = Iceberg::<u64, u64>::options()
        .max_load(1.0)
        .capacity(slots)
        .max_depth(10)
        .hash_seed([1, 2])
        .create_on(sim.clone())
        .expect("room");
    let records = slots * 95 / 100;
    for key in 0..records {
        let insert = cost(sim, || table.try_insert(key, key));
        assert_eq!((insert.writes, insert.flushes, insert.fences), (1, 1, 1), "insert {key}");
    }
    (table, records)
}

#[test]
fn every_write_of_an_iceberg_is_one_line_one_flush_one_fence() {
    let sim = counting();
    let (table, records) = full_iceberg(&sim);
    let one = |cost: Cost, what: &str, key: u64| {
        assert_eq!((cost.writes, cost.flushes, cost.fences), (1, 1, 1), "{what} {key}");
    };
    let none = |cost: Cost, what: &str, key: u64| {
        assert_eq!((cost.writes, cost.flushes, cost.fences), (0, 0, 0), "{what} {key}");
    };
    for key in 0..records {
        one(cost(&sim, || table.update(key, 7)), "update", key);
        one(cost(&sim, || table.insert(key, 8)), "insert of present", key);
        none(cost(&sim, || table.try_insert(key, 9)), "try_insert of present", key);
        one(cost(&sim, || table.remove(key)), "remove", key);
        none(cost(&sim, || table.remove(key)), "remove of absent", key);
        one(cost(&sim, || table.put(key, key)), "put", key);
    }
    println!("{:?}", table.stats());
    assert!(table.check().expect("readable").is_clean());
}

#[test]
fn reads_of_an_iceberg_touch_one_line_and_misses_hardly_any() {
    let sim = counting();
    let (table, records) = full_iceberg(&sim);
    let (mut hits, mut misses, mut batched) = (0, 0, 0);
    for key in 0..records {
        let hit = cost(&sim, || table.get(key));
        let miss = cost(&sim, || table.get(1_000_000 + key));
        for read in [hit, miss] {
            assert_eq!((read.flushes, read.fences, read.writes), (0, 0, 0), "key {key}");
        }
        hits += hit.bucket_lines;
        misses += miss.bucket_lines;
    }
    let keys: Vec<u64> = (0..records).collect();
    let mut found = [None; 32];
    for keys in keys.chunks_exact(32) {
        batched += cost(&sim, || table.get_batch(keys, &mut found)).bucket_lines;
    }
    let each = |lines: u64| lines as f64 / records as f64;
    println!("lines: {} a hit ({} batched), {} a miss", each(hits), each(batched), each(misses));
    assert!(each(hits) <= 1.14, "a hit reads at most 1.14 lines on average");
    assert!(each(batched) <= 1.25, "a batched hit reads at most 1.25 lines on average");
    assert!(each(misses) <= 0.31, "a miss reads at most 0.31 lines on average");
}

#[test]
fn a_window_of_32_iceberg_inserts_has_one_fence() {
    let sim = counting();
    let table = Iceberg::<u64, u64>::options()
        .capacity(60_000)
        .hash_seed([1, 2])
        .create_on(sim.clone())
        .expect("room");
    let mut total = Cost::default();
    for batch in 0..1_000_u64 {
        let pairs: Vec<(u64, u64)> = (0..32).map(|n| (batch * 32 + n, n)).collect();
        let cost = cost(&sim, || table.put_batch(&pairs));
        total.fences += cost.fences;
        total.flushes += cost.flushes;
    }
    println!(
        "{} fences, {} flushes a batch of 32",
        total.fences as f64 / 1e3,
        total.flushes / 1000
    );
    assert_eq!((total.fences, total.flushes), (1_000, 32_000));
}

/// A Plush of small levels: 1024 records in the root and in level 1, 16 384 in level 2.
fn small_plush(sim: &Sim, dram_filters: usize) -> Plush<u64, u64, Sim> {
    let shape = Shape { root_bits: 2, log_bits: 0, log_records: 512, ..Shape::default() };
    let options = Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2]);
    options.dram_filters(dram_filters).create_on(sim.clone()).expect("room")
}

fn detail_of(stats: &icefield::Stats, name: &str) -> u64 {
    stats.details.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

#[test]
fn a_put_into_a_plush_writes_its_log_record_and_does_not_look() {
    let sim = counting();
    let table =
        Plush::<u64, u64>::options().hash_seed([1, 2]).create_on(sim.clone()).expect("room");
    let mut total = Cost::default();
    for key in 0..1_000_u64 {
        let cost =
            cost(&sim, || if key % 2 == 0 { table.put(key, key) } else { table.delete(key) });
        assert_eq!(cost.bucket_lines, 0);
        total.fences += cost.fences;
        total.flushes += cost.flushes;
        total.writes += cost.writes;
    }
    // One fence each, and one for each of the four logs' first chunk.
    assert_eq!(total.fences, 1_004);
    assert!(total.flushes <= 1_400 && total.writes <= 1_400, "{total:?}");
    let pairs: Vec<(u64, u64)> = (0..32).map(|key| (key, key)).collect();
    let batch = cost(&sim, || table.put_batch(&pairs));
    assert_eq!(batch.fences, 1);
    assert!(batch.flushes <= 19 && batch.writes <= 19, "{batch:?}");
}

/// What 16 + 16 bytes cost a put: lines written, flushes and fences without migrations, and media bytes with them.
fn wide_puts<V: Value + ?Sized>(value: Arg<'static, V>) -> ([u64; 3], f64) {
    let key = |n: u64| (u128::from(n) << 64 | u128::from(n)).to_le_bytes();
    let sim = counting();
    let options = Plush::<[u8; 16], V>::options().hash_seed([1, 2]);
    let table = options.create_on(sim.clone()).expect("room");
    let mut total = [0; 3];
    for n in 0..1_000 {
        let cost = cost(&sim, || table.put(key(n), value));
        let counts = [cost.writes, cost.flushes, cost.fences];
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    let sim = counting();
    let shape = Shape { root_bits: 2, log_bits: 0, log_records: 512, ..Shape::default() };
    let options = Plush::<[u8; 16], V>::options().shape(shape).hash_seed([1, 2]);
    let table = options.create_on(sim.clone()).expect("room");
    let before = sim.counters().media_writes;
    let records = 60_000;
    (0..records).for_each(|n| table.put(key(n), value).expect("room"));
    assert_eq!(detail_of(&table.stats(), "levels"), 3);
    let bytes = (sim.counters().media_writes - before) * 256;
    (total, bytes as f64 / records as f64)
}

/// Records of 16 + 16 bytes in the slots, and in the payload log, where bytes of any length are.
#[test]
fn a_wide_record_of_a_plush_takes_half_the_lines_of_a_reference() {
    let (inline, inline_media) = wide_puts::<[u8; 16]>([7; 16]);
    let (referred, referred_media) = wide_puts::<[u8]>(&[7; 16]);
    println!("1000 puts: {inline:?}, by reference {referred:?} lines, flushes, fences");
    println!("media bytes a put: {inline_media}, by reference {referred_media}");
    // (w + 8) / 8 lines each, and those of the four logs' first chunks.
    assert_eq!(inline, [1_504, 1_504, 1_004]);
    assert!(referred[0] >= 3_000 && referred[2] >= 2_004, "{referred:?}");
}

/// §6.1, with the log's records at 25.6 bytes each: 10 in a media block.
#[test]
fn media_writes_of_a_plush_follow_its_moves() {
    for (records, levels) in [(1_800, 1), (100_000, 3)] {
        let sim = counting();
        let table = small_plush(&sim, 2);
        let before = sim.counters().media_writes;
        for key in 0..records {
            table.put(key, key).expect("room");
        }
        let stats = table.stats();
        let bytes = (sim.counters().media_writes - before) * 256;
        let moves = detail_of(&stats, "moves");
        let bound = 16.0 * (3.0 * moves as f64 / records as f64 + 1.6);
        let each = bytes as f64 / records as f64;
        println!("{records} records, {moves} moves: {each} bytes each, bound {bound}; {stats:?}");
        assert_eq!(detail_of(&stats, "levels"), levels);
        assert!(each <= bound, "{each} bytes a record are more than {bound}");
    }
}

/// Lines that a hit and a miss read on average, in a table of so many records and levels.
fn plush_reads(dram_filters: usize, records: u64, levels: u64) -> [f64; 2] {
    let sim = counting();
    let table = small_plush(&sim, dram_filters);
    for key in 0..records {
        table.put(key, key).expect("room");
    }
    let (mut hits, mut misses) = (0, 0);
    for key in 0..records {
        let hit = cost(&sim, || table.get(key));
        let miss = cost(&sim, || table.get(1_000_000 + key));
        for read in [hit, miss] {
            assert_eq!((read.flushes, read.fences, read.writes), (0, 0, 0), "key {key}");
        }
        hits += hit.bucket_lines;
        misses += miss.bucket_lines;
    }
    assert_eq!(detail_of(&table.stats(), "levels"), levels);
    [hits, misses].map(|lines| lines as f64 / records as f64)
}

#[test]
fn reads_of_a_plush_look_at_one_filter_line_a_level() {
    for (records, levels) in [(10_000, 2), (60_000, 3)] {
        let [hit, miss] = plush_reads(0, records, levels);
        println!("{records} records: {hit} lines a hit, {miss} a miss");
        assert!(hit <= 4.0 + levels as f64, "a hit of {records} reads {hit} lines");
        assert!(miss <= 0.3 + levels as f64, "a miss among {records} reads {miss} lines");
    }
}

#[test]
fn filters_in_dram_save_a_plush_these_lines() {
    for (records, levels) in [(10_000, 2), (60_000, 3)] {
        let [hit, miss] = plush_reads(levels as usize, records, levels);
        println!("{records} records: {hit} lines a hit, {miss} a miss");
        assert!(hit <= 4.0, "a hit of {records} reads {hit} lines");
        assert!(miss <= 0.3, "a miss among {records} reads {miss} lines");
    }
}

/// How many of 10 000 records are in the front yard, and how many in the overflow yard, at 95 % fill, for the bucket
/// sizes of Table 6: the order of the shares is the paper's.
#[test]
fn levels_of_an_iceberg_fill_as_the_paper_says() {
    let share = |front: u32, back: u32| {
        let buckets = 4096;
        let slots = buckets * u64::from(front + back);
        let table = Iceberg::<u64, u64>::options()
            .yards(icefield::Yards { front, back })
            .max_load(1.0)
            .capacity(slots)
            .max_depth(12)
            .hash_seed([3, 4])
            .in_memory()
            .expect("memory");
        let records = slots * 95 / 100;
        for key in 0..records {
            table.put(key, key).expect("memory");
        }
        let stats = table.stats();
        let count =
            |name| stats.details.iter().find(|(found, _)| *found == name).map_or(0, |d| d.1);
        assert_eq!(count("buckets"), buckets);
        let [back, overflow] = [count("back_inserts"), count("overflow_inserts")];
        let each = |count: u64| count as f64 / records as f64;
        (1.0 - each(back + overflow), each(overflow))
    };
    for front in [64, 32] {
        let shares: Vec<(f64, f64)> = [8, 6, 4].map(|back| share(front, back)).into();
        println!("{front} front slots, 8, 6, 4 back slots: front yard and overflow {shares:?}");
        assert!(shares.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{shares:?}");
    }
    assert!(share(64, 8).0 >= 0.91);
}

#[test]
fn opening_reads_the_same_lines_whatever_the_size() {
    opening_is_cheap::<Eh>();
    opening_is_cheap::<Lh>();
}

fn opening_is_cheap<P: Directory>() {
    let mut lines = Vec::new();
    for records in [2_000, 40_000] {
        let sim = counting();
        let table = table::<P>(&sim, 0);
        for key in 0..records {
            table.put(key, key).expect("room");
        }
        let image = sim.image();
        drop(table);
        let reopened = Sim::from_image(
            &image,
            SimOptions {
                counting: true,
                recording: false,
                region_bytes: 64 << 20,
                space_bytes: 64 << 20,
                ..SimOptions::default()
            },
        );
        reopened.begin_op();
        let options = DashOptions::<u64, u64, P>::default();
        let table = options.open_on(reopened.clone()).expect("opens");
        assert_eq!(table.get(77).expect("readable"), Some(77));
        assert!(!table.recovery().was_clean);
        lines.push(reopened.counters().line_reads.iter().map(|(_, lines)| lines).sum::<u64>());
    }
    println!("lines read before the first answer: {lines:?}");
    assert_eq!(lines[0], lines[1], "opening must not depend on the size");
}

thread_local! {
    static LOCKED: Cell<u64> = const { Cell::new(0) };
}

/// Nobody takes turns; locked instructions are counted.
struct Counting;

impl Turns for Counting {
    fn give_way() {}

    fn locked() {
        LOCKED.set(LOCKED.get() + 1);
    }
}

type CountingDlht = DlhtTable<u64, u64, Interleaved<Counting>>;

/// How many locked instructions `operation` needs.
fn locked<T>(operation: impl FnOnce() -> T) -> u64 {
    let before = LOCKED.get();
    operation();
    LOCKED.get() - before
}

fn detail(table: &CountingDlht, name: &str) -> u64 {
    let details = table.stats().details;
    details.iter().find(|(found, _)| *found == name).map_or(0, |(_, count)| *count)
}

/// A table of 2^`bits` bins.
fn dlht(bits: u32) -> CountingDlht {
    CountingDlht::options().geometry(bits, 1).hash_seed([1, 2]).build().expect("small")
}

#[test]
fn dlht_needs_the_locked_instructions_that_its_header_says() {
    let table = dlht(14);
    let keys = table.capacity() * 9 / 10;
    let mut chained = 0;
    for key in 0..keys {
        let links = detail(&table, "link-buckets-used");
        let insert = locked(|| table.try_insert(key, key));
        let links = u64::from(detail(&table, "link-buckets-used") > links);
        assert_eq!(insert, 3 + 2 * links, "insert {key}");
        chained += links;
    }
    assert_eq!(detail(&table, "bins"), 1 << 14, "no transfer came between");
    for key in 0..keys {
        let absent = key + keys;
        assert_eq!(locked(|| (table.get(key), table.contains(absent))), 0, "get {key}");
        assert_eq!(locked(|| table.try_insert(key, 1)), 0, "try_insert of present {key}");
        assert_eq!(locked(|| table.update(absent, 1)), 0, "update of absent {key}");
        assert_eq!(locked(|| table.remove(absent)), 0, "remove of absent {key}");
        assert_eq!(locked(|| table.update(key, 1)), 1, "update {key}");
        assert_eq!(locked(|| table.put(key, 2)), 1, "put over {key}");
        assert_eq!(locked(|| table.remove(key)), 2, "remove {key}");
        // The slot and its link bucket are there.
        let shadow = table.try_insert_shadow(key, 3).expect("absent");
        assert_eq!(locked(|| shadow.commit()), 2, "commit {key}");
        table.delete(key);
        let shadow = table.try_insert_shadow(key, 3).expect("absent");
        assert_eq!(locked(|| shadow.abort()), 1, "abort {key}");
        assert_eq!(locked(|| drop(table.try_insert_shadow(key, 4))), 3, "shadow {key}");
        assert_eq!(locked(|| table.insert(key, 3)), 3, "insert {key} again");
    }
    println!("{keys} inserts, of which {chained} chained a link bucket");
    assert!(chained > 500);
}

#[test]
fn dlht_counts_once_a_batch() {
    let table = dlht(14);
    let pairs: Vec<(u64, u64)> = (0..1000).map(|key| (key, key)).collect();
    let keys: Vec<u64> = (0..1000).collect();
    let mut found = vec![None; 1000];
    let links = |table: &CountingDlht| detail(table, "link-buckets-used");
    assert_eq!(locked(|| table.put_batch(&pairs)), 2001 + 2 * links(&table));
    assert_eq!(locked(|| table.get_batch(&keys, &mut found)), 0);
    assert_eq!(locked(|| table.update_batch(&pairs, &mut found)), 1000);
    assert_eq!(locked(|| table.remove_batch(&keys, &mut found)), 1001);
    let before = links(&table);
    let mut ops: Vec<Op<'_, u64, u64>> = (0..500).map(|key| Op::put(key, key)).collect();
    ops.extend((0..500).flat_map(|key| [Op::get(key), Op::update(key, 1), Op::remove(key)]));
    let mixed = locked(|| table.execute(&mut ops, OnFailure::Continue));
    // What was inserted and removed adds up to nothing: even that is not counted.
    assert_eq!(mixed, 500 * (2 + 1 + 1) + 2 * (links(&table) - before));
}

/// Lines that a get of each key touches, by the bins that the keys fall into; whether the table sees it so too is told
/// by its link buckets.
#[test]
fn dlht_gets_touch_the_lines_that_its_header_says() {
    const BITS: u32 = 14;
    let table = dlht(BITS);
    let hash = Hash::new(HashKind::Strong, [1, 2]);
    let capacity = table.capacity();
    let mut records = vec![0_u64; 1 << BITS];
    let (mut hit_lines, mut key) = (0, 0);
    for share in [0.25, 0.5, 0.75, 0.95] {
        while (key as f64) < capacity as f64 * share {
            let bin = &mut records[(hash.word(key) >> (64 - BITS)) as usize];
            // Slots are taken in order: three beside the header, then four to a link bucket.
            hit_lines += 1 + bin.saturating_sub(2).div_ceil(4);
            *bin += 1;
            table.put(key, key);
            key += 1;
        }
        assert_eq!(detail(&table, "bins"), 1 << BITS, "no transfer came between");
        let links = |records: u64| u64::from(records > 3) + 2 * u64::from(records > 7);
        let links: u64 = records.iter().map(|&records| links(records)).sum();
        assert_eq!(detail(&table, "link-buckets-used"), links);
        let miss_lines: u64 =
            records.iter().map(|records| 1 + records.saturating_sub(3).div_ceil(4)).sum();
        let (hit, miss) = (hit_lines as f64 / key as f64, miss_lines as f64 / records.len() as f64);
        println!("at {share} of the capacity: {hit:.3} lines a hit, {miss:.3} a miss");
        assert!((1.0..1.1).contains(&hit) && (1.0..1.13).contains(&miss), "{hit} {miss}");
    }
}
