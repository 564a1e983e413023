//! The costs of Plush.

use icefield::storage::sim::Sim;
use icefield::{Arg, Partition, Plush, PlushOptions, Shape, Value};
use icefield_torture::rng::mix;

use crate::{Cost, cost, counting, lines_of_reads};

/// Returns options for small levels: 1024 records in the root and in level 1, 16 384 in level 2.
fn small_levels() -> PlushOptions<u64, u64> {
    let shape = Shape { root_bits: 2, log_bits: 0, log_records: 512, ..Shape::default() };
    Plush::<u64, u64>::options().shape(shape).hash_seed([1, 2])
}

/// Creates a Plush with small levels.
fn small_plush(sim: &Sim, dram_filters: usize) -> Plush<u64, u64, Sim> {
    small_levels().dram_filters(dram_filters).create_on(sim.clone()).expect("room")
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
    // One fence per put, and one for the first chunk of each of the four logs.
    assert_eq!(total.fences, 1_004);
    assert!(total.flushes <= 1_400 && total.writes <= 1_400, "{total:?}");
    let pairs: Vec<(u64, u64)> = (0..32).map(|key| (key, key)).collect();
    let batch = cost(&sim, || table.put_batch(&pairs));
    assert_eq!(batch.fences, 1);
    assert!(batch.flushes <= 19 && batch.writes <= 19, "{batch:?}");
}

/// Returns the cost of puts of 16-byte keys and values: lines written, flushes and fences of 1,000 puts without
/// migrations, and the media bytes per put with migrations.
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

/// Compares records of 16 + 16 bytes in the slots with those in the payload log, which holds bytes of any length.
#[test]
fn a_wide_record_of_a_plush_takes_half_the_lines_of_a_reference() {
    let (inline, inline_media) = wide_puts::<[u8; 16]>([7; 16]);
    let (referred, referred_media) = wide_puts::<[u8]>(&[7; 16]);
    println!("1000 puts: {inline:?}, by reference {referred:?} lines, flushes, fences");
    println!("media bytes a put: {inline_media}, by reference {referred_media}");
    // A log record of w words touches (w + 8) / 8 lines on average. The first chunk of each of the four logs takes one
    // more.
    assert_eq!(inline, [1_504, 1_504, 1_004]);
    assert!(referred[0] >= 3_000 && referred[2] >= 2_004, "{referred:?}");
}

/// Keys that are concentrated in a small part of their type's range cost at most three times as many lines as keys
/// spread over all of it.
#[test]
fn crowded_keys_of_a_plush_with_ranges_cost_what_others_do() {
    const RECORDS: u64 = 20_000;
    let lines_of = |name: &str, key: fn(u64) -> u64| {
        let sim = counting();
        let options = small_levels().partition(Partition::Range);
        let table = options.create_on(sim.clone()).expect("room");
        let put = |n| cost(&sim, || table.put(key(n), n)).bucket_lines;
        let get = |n: u64| cost(&sim, || table.get(key(n * 97 % RECORDS))).bucket_lines;
        let range = |n: u64| cost(&sim, || table.range(key(n * 97 % RECORDS), 10)).bucket_lines;
        let lines =
            [(0..RECORDS).map(put).sum(), (0..500).map(get).sum(), (0..200).map(range).sum()];
        println!("{name}: {lines:?} lines read by {RECORDS} puts, 500 gets, 200 ranges");
        lines
    };
    let spread: [u64; 3] = lines_of("spread", mix);
    for (name, key) in [
        ("counting up", (|n| 1_700_000_000_000 + n) as fn(u64) -> u64),
        ("shuffled", |n| 1_700_000_000_000 + n * 7_919 % RECORDS),
        ("counting down", |n| 1_700_000_000_000 - n),
    ] {
        for (crowded, spread) in lines_of(name, key).into_iter().zip(spread) {
            assert!(crowded <= 3 * spread, "{name}: {crowded} lines where others read {spread}");
        }
    }
}

/// Checks the bound of §6.1, with 25.6 bytes per log record, because a media block of 256 bytes holds 10 of them.
#[test]
fn media_writes_of_a_plush_follow_its_moves() {
    let made_for = |records| Plush::<u64, u64>::options().capacity(records).hash_seed([1, 2]);
    for (options, records, levels) in
        [(small_levels(), 1_800, 1), (small_levels(), 100_000, 3), (made_for(130_000), 130_000, 1)]
    {
        let sim = counting();
        let table = options.create_on(sim.clone()).expect("room");
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

/// A table with the right capacity has only one level below its root, and the filters of that level are in DRAM.
#[test]
fn reads_of_a_plush_that_was_made_for_its_records_are_short() {
    let sim = counting();
    let options = Plush::<u64, u64>::options().capacity(130_000).hash_seed([1, 2]);
    let table = options.create_on(sim.clone()).expect("room");
    (0..130_000).for_each(|key| table.put(key, key).expect("room"));
    let lines = lines_of_reads(&sim, &table, 20_000);
    let [hit, miss] = lines.map(|lines| lines as f64 / 20_000.0);
    println!("{hit} lines a hit, {miss} a miss; {:?}", table.stats());
    assert!(hit <= 4.0 && miss <= 0.3, "{hit} lines a hit, {miss} a miss");
}

/// Returns the lines that a hit and a miss read on average, in a table of `records` records and `levels` levels.
fn plush_reads(dram_filters: usize, records: u64, levels: u64) -> [f64; 2] {
    let sim = counting();
    let table = small_plush(&sim, dram_filters);
    for key in 0..records {
        table.put(key, key).expect("room");
    }
    let lines = lines_of_reads(&sim, &table, records);
    assert_eq!(detail_of(&table.stats(), "levels"), levels);
    lines.map(|lines| lines as f64 / records as f64)
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

/// Counts the fences P3, P6, P7 and P8 of Plush's header. Eight target entries share their fences: one for each size of
/// runs that they need, one for runs and records, and one for the states. If the source entry is in a level, one more
/// fence marks it empty. If the migration is done in steps, only two targets share their fences. When a level is added,
/// taking an entry out of a chain needs seven fences: one marks it empty, three free its runs, three free the entry.
#[test]
fn a_migration_of_a_plush_has_few_fences() {
    let options = small_levels();
    // Without a log, all fences are those of migrations.
    let at_once = fences_of_migrations(&options, 0, |table, key| table.put_unlogged(key, key));
    let in_steps = fences_of_migrations(&options, 1, |table, key| table.put(key, key));
    let helped = fences_of_migrations(&options.clone().helped_by_callers(), 1, |table, key| {
        table.put(key, key)?;
        while table.help() {}
        Ok(())
    });
    println!(
        "{at_once:?} fences a migration at once, {in_steps:?} in steps, {helped:?} by a helper, the first and on \
         average"
    );
    // The target entries are empty, so they need runs of four sizes: 4 + 1 + 1 fences.
    assert_eq!(at_once.0, 6);
    assert!(at_once.1 <= 5.5 && in_steps.1 <= 17.0 && helped.1 <= 5.5);
}

/// Returns the fences of the first migration and the average per migration, in 250,000 puts. The `own` fences that each
/// put makes without a migration are not counted.
fn fences_of_migrations(
    options: &PlushOptions<u64, u64>,
    own: u64,
    put: impl Fn(&Plush<u64, u64, Sim>, u64) -> icefield::Result<()>,
) -> (u64, f64) {
    let sim = counting();
    let table = options.clone().dram_filters(2).create_on(sim.clone()).expect("room");
    let (mut first, mut all) = (0, 0);
    for key in 0..250_000 {
        let fences = cost(&sim, || put(&table, key)).fences - own;
        if first == 0 {
            first = fences;
        }
        all += fences;
    }
    (first, all as f64 / detail_of(&table.stats(), "migrations") as f64)
}
