//! The pool of DLHT's link buckets: every bucket belongs to one bin, or can be taken once.

use icefield::LinkPool;

use crate::dlht::race_for;

/// Numbers of link buckets in the pools of these models: single ones, and pairs, which come after those.
const SINGLES: u64 = 4;
const PAIRS: u64 = 2;
const BINS: usize = 2;

fn fresh() -> LinkPool {
    LinkPool::new(SINGLES as usize, PAIRS as usize, BINS).unwrap()
}

/// Creates a pool to which all of its buckets have been returned.
fn returned() -> LinkPool {
    let pool = fresh();
    for double in [false, true] {
        let taken: Vec<_> = std::iter::from_fn(|| pool.take(double)).collect();
        taken.into_iter().for_each(|number| pool.give_back(number, double));
    }
    pool
}

/// Takes a bucket and writes to it, so that its content looks like the number of another bucket.
fn take_and_use(pool: &LinkPool) -> Option<u64> {
    let number = pool.take(false)?;
    pool.write(number, number % SINGLES + 1);
    Some(number)
}

/// Checks that every bucket is in `held`, belongs to a bin, or can still be taken, and that none occurs twice.
fn each_once<const HOLDERS: usize>(pool: &LinkPool, held: [Vec<u64>; HOLDERS]) {
    let mut numbers = held.concat();
    (0..BINS).for_each(|bin| numbers.extend(pool.buckets_of(bin)));
    numbers.extend(std::iter::from_fn(|| pool.take(false)));
    let pairs = std::iter::from_fn(|| pool.take(true));
    numbers.extend(pairs.flat_map(|number| [number, number + 1]));
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(1..=SINGLES + 2 * PAIRS), "{numbers:?}");
}

/// One thread reads the top of the stack. Before it takes that bucket, another thread takes it and the next one, and
/// returns the first: the top is the same, but the bucket below it is not (ABA).
#[test]
fn a_returned_bucket_is_handed_out_once() {
    race_for(
        returned,
        [
            |pool| take_and_use(pool).into_iter().collect::<Vec<_>>(),
            |pool| {
                let (first, second) = (take_and_use(pool), take_and_use(pool));
                first.into_iter().for_each(|number| pool.give_back(number, false));
                second.into_iter().collect()
            },
        ],
        each_once,
    );
}

#[test]
fn three_threads_take_and_return_buckets() {
    let there_and_back: fn(&LinkPool) -> Vec<u64> = |pool| {
        take_and_use(pool).into_iter().for_each(|number| pool.give_back(number, false));
        Vec::new()
    };
    race_for(
        returned,
        [there_and_back, there_and_back, |pool| take_and_use(pool).into_iter().collect()],
        each_once,
    );
}

/// Two inserts chain a bucket to the same bin. The later one returns its bucket, which another bin can then take.
#[test]
fn what_a_lost_race_leaves_over_is_not_lost() {
    for start in [fresh, returned] {
        race_for(
            start,
            [
                |pool| {
                    pool.chain(0, false);
                    Vec::new()
                },
                |pool| {
                    pool.chain(0, false);
                    pool.chain(1, false);
                    Vec::new()
                },
            ],
            |pool, held| {
                assert!((0..BINS).all(|bin| pool.buckets_of(bin).len() == 1));
                each_once(pool, held);
            },
        );
    }
}

/// Two inserts chain two neighbouring buckets to the same bin. The later one returns its buckets together.
#[test]
fn neighbours_that_are_left_over_are_not_lost() {
    race_for(
        fresh,
        [
            |pool| {
                pool.chain(0, true);
                Vec::new()
            },
            |pool| {
                pool.chain(0, true);
                take_and_use(pool).into_iter().collect()
            },
        ],
        |pool, held| {
            assert_eq!(pool.buckets_of(0).len(), 2);
            each_once(pool, held);
        },
    );
}

/// A removal returns the single link bucket of a bin while an insert chains the double one to it.
#[test]
fn a_bucket_leaves_while_another_is_chained() {
    race_for(
        || {
            let pool = fresh();
            pool.chain(0, false);
            pool
        },
        [
            |pool: &LinkPool| {
                pool.unchain(0, false);
                pool.chain(1, false);
                Vec::new()
            },
            |pool| {
                pool.chain(0, true);
                Vec::new()
            },
        ],
        |pool, held| {
            assert_eq!((pool.buckets_of(0).len(), pool.buckets_of(1).len()), (2, 1));
            each_once(pool, held);
        },
    );
}
