//! Every changing call of every table, where it must be refused: in a forked child, on a read-only handle, after a
//! failed sync. No call and no drop in a forked child may change the files.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::durability::in_fork;
use super::*;
use icefield::{
    AnyOptions, AnyTable, DashEh, DashLh, Decision, Durable, HashedJoinIndex, Iceberg, JoinIndex,
    OnFailure, Op, Plush,
};

#[allow(dead_code, reason = "`layers.rs` has use for all of it")]
#[path = "../layers/calls.rs"]
mod calls;

/// The results of calls, by name.
type Answers = Vec<(&'static str, icefield::Result<()>)>;

/// The reason for which changes are refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Forked,
    ReadOnly,
    Poisoned,
}

impl Case {
    /// Returns the calls whose result is not the refusal of this case, with their results.
    fn others(self, answers: &Answers) -> Vec<String> {
        let is_refused = |name: &str, answer: &icefield::Result<()>| match (self, answer) {
            (Self::Forked, Err(Error::Forked)) => true,
            // A read-only session has nothing to make durable.
            (Self::ReadOnly, Ok(())) => matches!(name, "sync" | "committed"),
            (Self::ReadOnly, Err(Error::ReadOnly)) => name != "committed",
            (Self::Poisoned, Err(Error::Poisoned)) => true,
            _ => false,
        };
        let others = answers.iter().filter(|(name, answer)| !is_refused(name, answer));
        others.map(|(name, answer)| format!("{self:?}: {name} answers {answer:?}")).collect()
    }
}

/// The changing calls that all tables of records have.
macro_rules! common_calls {
    ($table:expr) => {{
        let (table, mut found, mut tried) = ($table, [None], [Ok(())]);
        vec![
            ("try_insert", table.try_insert(1_000_001, 1).map(drop)),
            ("insert", table.insert(1, 2).map(drop)),
            ("put", table.put(1, 2)),
            ("update", table.update(1, 2).map(drop)),
            ("remove", table.remove(1).map(drop)),
            ("delete", table.delete(1)),
            ("compute", table.compute(1, |_| Decision::Keep).map(drop)),
            ("compare_exchange", table.compare_exchange(1, 1, 2).map(drop)),
            ("fetch_add", table.fetch_add(1, 1).map(drop)),
            ("clear", table.clear()),
            ("reserve", table.reserve(1_000_000)),
            ("retain", table.retain(|_, _| true).map(drop)),
            ("insert_batch", table.insert_batch(&[(1, 2)], &mut found)),
            ("put_batch", table.put_batch(&[(1, 2)])),
            ("update_batch", table.update_batch(&[(1, 2)], &mut found)),
            ("try_insert_batch", table.try_insert_batch(&[(1_000_001, 1)], &mut tried)),
            ("remove_batch", table.remove_batch(&[1], &mut found)),
            ("execute", table.execute(&mut [Op::put(1, 2)], OnFailure::Continue).map(drop)),
            ("shrink_to_fit", table.shrink_to_fit()),
            ("sync", table.sync()),
        ]
    }};
}

/// A table with all its changing calls.
trait Subject: Sized {
    /// The owners in [`calls::CALLS`] whose calls [`Subject::changes`] makes.
    const OWNERS: &'static [&'static str];

    fn make(path: &Path) -> Self;
    fn make_empty(path: &Path) -> Self;
    fn read_only(path: &Path) -> Self;
    fn changes(&self) -> Answers;
    /// Extends a file of the table.
    fn grow(&self) -> icefield::Result<()>;
    /// Makes calls that only read; each may be refused. Some of them write a table to `path`.
    fn read(&self, path: &Path);
    fn is_clean(&self) -> bool;
}

/// Makes the changing calls of [`Durable`] and its supertraits.
fn changes_of(table: &impl Durable<Key = u64, Value = u64>) -> Answers {
    common_calls!(table)
}

fn read_records(table: &impl Durable<Key = u64, Value = u64>, path: &Path) {
    let _ = (
        table.get(1),
        table.get(1_000_000),
        table.contains(2),
        table.len(),
        table.stats(),
        table.capacity(),
    );
    let _ = table.iter().collect::<Result<Vec<_>, _>>();
    let _ = (
        table.check(),
        table.backup(&path.with_extension("copy")),
        table.salvage(&path.with_extension("saved")),
    );
}

macro_rules! table_of_records {
    ($table:ident, $owners:expr, |$it:ident| $more:expr) => {
        impl Subject for $table<u64, u64> {
            const OWNERS: &'static [&'static str] = $owners;

            fn make(path: &Path) -> Self {
                let table = Self::create(path).unwrap();
                (0..1000).try_for_each(|key| table.put(key, key)).unwrap();
                table
            }

            fn make_empty(path: &Path) -> Self {
                Self::create(path).unwrap()
            }

            fn read_only(path: &Path) -> Self {
                Self::open_read_only(path).unwrap()
            }

            fn changes(&self) -> Answers {
                let $it = self;
                let more: Answers = $more;
                [common_calls!(self), more].into_iter().flatten().collect()
            }

            fn grow(&self) -> icefield::Result<()> {
                self.reserve(1_000_000)
            }

            fn read(&self, path: &Path) {
                read_records(self, path);
            }

            fn is_clean(&self) -> bool {
                // The parent can still change the table.
                (1000..3000).try_for_each(|key| self.put(key, key)).unwrap();
                (0..3000).all(|key| self.get(key).unwrap() == Some(key))
                    && self.check().unwrap().is_clean()
            }
        }
    };
}

table_of_records!(DashEh, &[calls::DURABLE], |_table| vec![]);
table_of_records!(DashLh, &[calls::DURABLE], |_table| vec![]);
table_of_records!(Iceberg, &[calls::DURABLE], |_table| vec![]);
table_of_records!(Plush, &[calls::DURABLE, calls::PLUSH], |table| vec![
    ("put_async", at_once(table.put_async(1, 2))),
    ("committed", at_once(table.committed())),
    ("put_unlogged", table.put_unlogged(1, 2)),
    ("checkpoint", table.checkpoint(1)),
    ("bulk_load", table.bulk_load([(1, 2)])),
]);

/// Returns the output of a future that is ready, or an error if the future is pending: a refused call does not wait.
fn at_once(future: impl Future<Output = icefield::Result<()>>) -> icefield::Result<()> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => Err(Error::Unsupported("waits".into())),
    }
}

impl Subject for AnyTable {
    const OWNERS: &'static [&'static str] = &["AnyTable", "AnyWords"];

    fn make_empty(path: &Path) -> Self {
        Self::create(path, "iceberg", "u64", "u64", &AnyOptions::default()).unwrap()
    }

    fn make(path: &Path) -> Self {
        let table = Self::make_empty(path);
        (0..1000_u64).try_for_each(|key| table.put(&key.to_le_bytes(), &[0; 8])).unwrap();
        table
    }

    fn read_only(path: &Path) -> Self {
        Self::open_read_only(path).unwrap()
    }

    fn changes(&self) -> Answers {
        let (key, value) = (&1_u64.to_le_bytes()[..], &[0; 8][..]);
        let words = self.words().expect("keys and values are words");
        vec![
            // The calls of `AnyWords`.
            ("try_insert", words.try_insert(9, 0).map(drop)),
            ("insert", words.insert(1, 0).map(drop)),
            ("put", words.put(1, 0)),
            ("update", words.update(1, 0).map(drop)),
            ("remove", words.remove(1).map(drop)),
            ("try_insert_batch", words.try_insert_batch(&[9], &[0], |_, _| {})),
            ("insert_batch", words.insert_batch(&[1], &[0], |_, _| {})),
            ("put_batch", words.put_batch(&[1], &[0])),
            ("update_batch", words.update_batch(&[1], &[0], |_, _| {})),
            ("remove_batch", words.remove_batch(&[1], |_, _| {})),
            // The calls of `AnyTable`.
            ("try_insert", self.try_insert(&[9; 8], value).map(drop)),
            ("insert", self.insert(key, value).map(drop)),
            ("put", self.put(key, value)),
            ("update", self.update(key, value).map(drop)),
            ("remove", self.remove(key).map(drop)),
            ("clear", self.clear()),
            ("reserve", self.reserve(1_000_000)),
            ("shrink_to_fit", self.shrink_to_fit()),
            ("insert_batch", self.insert_batch(&[(key, value)]).map(drop)),
            ("put_batch", self.put_batch(&[(key, value)])),
            ("remove_batch", self.remove_batch(&[key]).map(drop)),
            ("sync", self.sync()),
        ]
    }

    fn grow(&self) -> icefield::Result<()> {
        self.reserve(1_000_000)
    }

    fn read(&self, path: &Path) {
        let _ =
            (self.get(&[1; 8]), self.len(), self.check(), self.scan(icefield::Cursor::START, 100));
        let _ =
            (self.backup(path.with_extension("copy")), self.salvage(path.with_extension("saved")));
    }

    fn is_clean(&self) -> bool {
        self.check().unwrap().is_clean() && self.len().unwrap() == 1000
    }
}

/// Number of pairs with which the [`JoinIndex`] is built.
const PAIRS: u64 = 1000;

impl Subject for JoinIndex<u64> {
    const OWNERS: &'static [&'static str] = &["JoinIndex"];

    fn make(path: &Path) -> Self {
        let keys: Vec<u64> = (0..PAIRS).collect();
        let index = Self::options().threads(1).build(path, &keys, &keys).unwrap();
        index.insert(1, 2).unwrap();
        index
    }

    fn make_empty(path: &Path) -> Self {
        let index = Self::options().threads(1).build(path, &[], &[]).unwrap();
        index.insert(1, 2).unwrap();
        index.remove(1).unwrap();
        index
    }

    fn read_only(path: &Path) -> Self {
        Self::open_read_only(path).unwrap()
    }

    fn changes(&self) -> Answers {
        vec![
            ("insert", self.insert(1, 2)),
            ("insert_batch", self.insert_batch(&[(1, 2)])),
            ("remove", self.remove(1).map(drop)),
            ("remove_batch", self.remove_batch(&[1]).map(drop)),
            ("remove_pair", self.remove_pair(1, 1).map(drop)),
            ("merge", self.merge().map(drop)),
            ("sync", self.sync()),
        ]
    }

    fn grow(&self) -> icefield::Result<()> {
        self.insert_batch(&[(1, 2); 1000])
    }

    fn read(&self, path: &Path) {
        let _ =
            (self.probe_count(&[1, 2]), self.semi(&[1]), self.check(), self.stats(), self.len());
        let _ = (self.for_each(|_, _| ()), self.backup(path.with_extension("copy")));
    }

    fn is_clean(&self) -> bool {
        self.insert(1, 3).unwrap();
        self.merge().unwrap();
        self.len() == PAIRS + 2 && self.check().unwrap().is_clean()
    }
}

type Hashed = HashedJoinIndex<fn(&[u8]) -> u64, fn(&[u8], u64) -> bool>;

/// A hash function and a comparison of rows, for [`Hashed`].
#[allow(clippy::type_complexity, reason = "named once")]
const HASHED: (fn(&[u8]) -> u64, fn(&[u8], u64) -> bool) = (|key| key.len() as u64, |_, _| true);

impl Subject for Hashed {
    const OWNERS: &'static [&'static str] = &["HashedJoinIndex"];

    fn make(path: &Path) -> Self {
        let options = JoinIndex::<u64>::options().threads(1);
        let index =
            options.build_with_hash(path, &["a", "bb"], &[1, 2], HASHED.0, HASHED.1).unwrap();
        index.insert(b"a", 3).unwrap();
        index
    }

    fn make_empty(path: &Path) -> Self {
        let options = JoinIndex::<u64>::options().threads(1);
        let index = options.build_with_hash(path, &[] as &[&str], &[], HASHED.0, HASHED.1).unwrap();
        index.insert(b"a", 3).unwrap();
        index.remove(b"a").unwrap();
        index
    }

    fn read_only(path: &Path) -> Self {
        let options = JoinIndex::<u64>::options();
        options.open_read_only_with_hash(path, HASHED.0, HASHED.1).unwrap()
    }

    fn changes(&self) -> Answers {
        vec![
            ("insert", self.insert(b"a", 2)),
            ("insert_batch", self.insert_batch(&[("a", 2)])),
            ("remove", self.remove(b"a").map(drop)),
            ("remove_pair", self.remove_pair(b"a", 1).map(drop)),
            ("merge", self.merge().map(drop)),
        ]
    }

    fn grow(&self) -> icefield::Result<()> {
        self.hashes().insert_batch(&[(icefield::KeyHash(1), 2); 1000])
    }

    fn read(&self, _: &Path) {
        let _ = (self.probe_count(&["a"]), self.semi(&["a"]), self.len());
    }

    fn is_clean(&self) -> bool {
        self.len() == 3 && self.hashes().check().unwrap().is_clean()
    }
}

/// Returns all files of a directory but the lock file, with their contents.
fn contents(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = names(path).into_iter().filter(|name| name != "lock");
    names.map(|name| (name.clone(), fs::read(path.join(&name)).unwrap())).collect()
}

/// Makes all calls of `subject` in a forked child, and drops it there.
fn forked<T: Subject>(subject: &T, path: &Path) {
    let before = contents(path);
    // SAFETY: a bitwise copy, used and dropped only in the child, which has its own memory.
    let copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(subject) });
    let status = in_fork(|| {
        let others = Case::Forked.others(&copy.changes());
        copy.read(path);
        drop(std::mem::ManuallyDrop::into_inner(copy));
        others.iter().for_each(|other| eprintln!("{other}"));
        if others.is_empty() { 7 } else { 1 }
    });
    assert_eq!(status, 7, "{:?}", T::OWNERS);
    assert!(contents(path) == before, "{:?}: a forked child has changed the files", T::OWNERS);
}

/// Poisons the medium of `subject`: growth detects a file that has become shorter.
fn poison<T: Subject>(subject: &T, path: &Path) {
    let files: Vec<_> = names(path)
        .into_iter()
        .filter(|name| name != "lock" && name != TABLE_REGION)
        .map(|name| fs::File::options().write(true).open(path.join(name)).unwrap())
        .map(|file| (file.metadata().unwrap().len(), file))
        .filter(|(bytes, _)| *bytes > 0)
        .collect();
    // The number of pages stays the same, so mapped memory stays valid.
    files.iter().for_each(|(bytes, file)| file.set_len(bytes - 1).unwrap());
    let grown = subject.grow();
    assert!(matches!(grown, Err(Error::Corrupt { .. })), "{:?}: {grown:?}", T::OWNERS);
    files.iter().for_each(|(bytes, file)| file.set_len(*bytes).unwrap());
}

fn all_changes_are_refused<T: Subject>() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let subject = T::make(&path);
    forked(&subject, &path);
    assert!(subject.is_clean(), "{:?}", T::OWNERS);
    drop(subject);

    let reader = T::read_only(&path);
    let before = contents(&path);
    let answers = reader.changes();
    assert_eq!(Case::ReadOnly.others(&answers), Vec::<String>::new(), "{:?}", T::OWNERS);
    let made: BTreeSet<_> = answers.iter().map(|(name, _)| *name).collect();
    let mine = calls::CALLS.iter().filter(|calls| T::OWNERS.contains(&calls.owner));
    let listed: BTreeSet<_> = mine.flat_map(|calls| calls.changing.iter().copied()).collect();
    assert_eq!(
        made,
        listed,
        "{:?}: the calls that are made are not those that are listed",
        T::OWNERS
    );
    forked(&reader, &path);
    drop(reader);
    assert!(contents(&path) == before, "{:?}: a reader has changed the files", T::OWNERS);

    let path = scratch.path().join("p");
    let subject = T::make(&path);
    poison(&subject, &path);
    let others = Case::Poisoned.others(&subject.changes());
    assert_eq!(others, Vec::<String>::new(), "{:?}", T::OWNERS);

    // A table without records, in which most calls find nothing to change.
    let path = scratch.path().join("e");
    let subject = T::make_empty(&path);
    poison(&subject, &path);
    let others = Case::Poisoned.others(&subject.changes());
    assert_eq!(others, Vec::<String>::new(), "{:?}, empty", T::OWNERS);
    drop(subject);

    let path = scratch.path().join("f");
    drop(T::make_empty(&path));
    let others = Case::ReadOnly.others(&T::read_only(&path).changes());
    assert_eq!(others, Vec::<String>::new(), "{:?}, empty", T::OWNERS);
}

#[test]
fn changes_of_dash_are_refused() {
    all_changes_are_refused::<DashEh<u64, u64>>();
    all_changes_are_refused::<DashLh<u64, u64>>();
}

#[test]
fn changes_of_iceberg_are_refused() {
    all_changes_are_refused::<Iceberg<u64, u64>>();
}

#[test]
fn changes_of_plush_are_refused() {
    all_changes_are_refused::<Plush<u64, u64>>();
}

#[test]
fn changes_of_tables_of_any_type_are_refused() {
    all_changes_are_refused::<AnyTable>();
}

#[test]
fn changes_of_join_indexes_are_refused() {
    all_changes_are_refused::<JoinIndex<u64>>();
    all_changes_are_refused::<Hashed>();
}

/// Makes the changing calls through the common traits, not as inherent methods.
#[test]
fn changes_through_the_common_traits_are_refused() {
    let scratch = scratch();
    let path = scratch.path().join("t");
    drop(<Iceberg<u64, u64> as Subject>::make(&path));
    let answers = changes_of(&Iceberg::<u64, u64>::open_read_only(&path).unwrap());
    assert_eq!(Case::ReadOnly.others(&answers), Vec::<String>::new());
    let made: BTreeSet<_> = answers.iter().map(|(name, _)| *name).collect();
    let traits = calls::CALLS
        .iter()
        .filter(|calls| matches!(calls.owner, "Collection" | "Table" | "Durable"));
    assert_eq!(made, traits.flat_map(|calls| calls.changing.iter().copied()).collect());
}

/// A child that reads and drops a table must not free space that the parent has retired.
fn a_child_reads_and_drops<T: Durable<Key = str, Value = [u8]>>(create: impl Fn(&Path) -> T) {
    let scratch = scratch();
    let path = scratch.path().join("t");
    let table = create(&path);
    let key = |n: u32| format!("key {n}");
    let value = |n: u32| vec![n as u8; 20 + (n % 3) as usize * 3000];
    (0..700).try_for_each(|n| table.put(&key(n), &value(n))).unwrap();
    (0..350).try_for_each(|n| table.delete(&key(n))).unwrap();
    let before = contents(&path);
    // SAFETY: a bitwise copy, used and dropped only in the child, which has its own memory.
    let copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw const table) });
    let status = in_fork(|| {
        for n in 0..700 {
            let _ = (copy.get(&key(n)), copy.get_with(&key(n), <[u8]>::len));
        }
        let _ = (copy.iter().count(), copy.len(), copy.check());
        drop(std::mem::ManuallyDrop::into_inner(copy));
        7
    });
    assert_eq!(status, 7);
    assert!(contents(&path) == before, "a forked child has changed the files");
    (0..350).try_for_each(|n| table.put(&key(n), &value(n))).unwrap();
    assert!((0..700).all(|n| table.get(&key(n)).unwrap() == Some(value(n))));
    assert!(table.check().unwrap().is_clean());
}

#[test]
fn a_forked_child_leaves_tables_of_bytes_alone() {
    a_child_reads_and_drops(|path| DashEh::<str, [u8]>::create(path).unwrap());
    a_child_reads_and_drops(|path| DashLh::<str, [u8]>::create(path).unwrap());
    a_child_reads_and_drops(|path| Iceberg::<str, [u8]>::create(path).unwrap());
    a_child_reads_and_drops(|path| Plush::<str, [u8]>::create(path).unwrap());
}

/// A copy of a table in use needs recovery, which a read in a forked child must not perform.
fn a_child_recovers_nothing<T: Durable<Key = u64, Value = u64>>(
    create: impl Fn(&Path) -> T,
    open: impl Fn(&Path) -> T,
) {
    let scratch = scratch();
    let (path, copy) = (scratch.path().join("t"), scratch.path().join("c"));
    let table = create(&path);
    (0..5000).try_for_each(|key| table.put(key, key)).unwrap();
    copy_with_holes(&path, &copy);
    drop(table);
    let table = open(&copy);
    let before = contents(&copy);
    let status = in_fork(|| {
        let read = (0..5000).map(|key| table.get(key));
        // Each read is correct or refused.
        let is_right = read.zip(0..).all(|(read, key)| match read {
            Ok(value) => value == Some(key),
            Err(error) => matches!(error, Error::Forked),
        });
        let _ = (table.iter().count(), table.len(), table.check());
        if is_right { 7 } else { 1 }
    });
    assert_eq!(status, 7);
    assert!(contents(&copy) == before, "a forked child has recovered the table");
    assert!((0..5000).all(|key| table.get(key).unwrap() == Some(key)));
    assert!(table.check().unwrap().is_clean());
}

#[test]
fn a_forked_child_recovers_nothing() {
    macro_rules! each {
        ($($table:ident),*) => {$(
            a_child_recovers_nothing(
                |path| $table::<u64, u64>::create(path).unwrap(),
                |path| $table::<u64, u64>::open(path).unwrap(),
            );
        )*};
    }
    each!(DashEh, DashLh, Iceberg, Plush);
}

/// A thread unmaps a large generation that a merge has replaced. A forked child does not have this thread.
#[test]
fn a_forked_child_waits_for_no_thread_of_its_parent() {
    let scratch = fast_scratch();
    let path = scratch.path().join("i");
    let keys: Vec<u64> = (0..1_000_000).collect();
    let index = JoinIndex::<u64>::options().threads(2).build(&path, &keys, &keys).unwrap();
    index.insert(1, 2).unwrap();
    index.merge().unwrap();
    let before = contents(&path);
    // SAFETY: a bitwise copy, dropped only in the child, which has its own memory.
    let copy = std::mem::ManuallyDrop::new(unsafe { std::ptr::read(&raw const index) });
    let status = in_fork(|| {
        drop(std::mem::ManuallyDrop::into_inner(copy));
        7
    });
    assert_eq!(status, 7);
    assert!(contents(&path) == before, "a forked child has changed the files");
    assert_eq!((index.len(), index.recovery().generation), (1_000_001, 1));
}
