//! Tables that are opened read-only or used in a forked child: how much memory they use, and that no file changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use icefield::{Dash, DashOptions, Directory, Durability, Eh, Error, Lh};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

type Check = Result<(), Box<dyn std::error::Error>>;

const KEYS: u64 = 400_000;
/// The environment variable that passes a design and a table's path to a child, which measures itself.
const CHILD: &str = "ICEFIELD_READ_ONLY_CHILD";

fn options<P: Directory>() -> DashOptions<u64, u64, P> {
    DashOptions::default().hash_seed([1, 2]).durability(Durability::Process)
}

/// Creates a table at `path` and closes it, or leaves it in the state of a killed process.
fn make<P: Directory>(path: &Path, crashed: bool) -> Check {
    let table = options::<P>().create(path)?;
    for first in (0..KEYS).step_by(1000) {
        let records: Vec<_> = (first..first + 1000).map(|key| (key, !key)).collect();
        table.put_batch(&records)?;
    }
    if crashed {
        let copy = path.with_extension("copy");
        std::fs::create_dir(&copy)?;
        for file in std::fs::read_dir(path)? {
            let file = file?;
            std::fs::copy(file.path(), copy.join(file.file_name()))?;
        }
        drop(table);
        std::fs::remove_dir_all(path)?;
        std::fs::rename(&copy, path)?;
    }
    Ok(())
}

/// Returns the bytes of every file but the lock file, which is empty.
fn contents(path: &Path) -> std::io::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let files = std::fs::read_dir(path)?.map(|file| file.map(|file| file.path()));
    files.map(|file| file.and_then(|file| Ok((file.clone(), std::fs::read(file)?)))).collect()
}

/// Returns the anonymous memory of this process in bytes.
fn anonymous() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.map_or(0, |kilobytes| kilobytes << 10)
}

/// Reads all records. Returns the bytes of anonymous memory that this took.
fn read_all<P: Directory>(path: &Path) -> Result<u64, Box<dyn std::error::Error>> {
    let before = anonymous();
    let table = Dash::<u64, u64, P>::open_read_only(path)?;
    for key in 0..KEYS {
        assert_eq!(table.get(key)?, Some(!key));
        assert_eq!(table.get(key + KEYS)?, None);
    }
    let mut seen = 0;
    table.for_each(|&key, &value| {
        assert_eq!(value, !key);
        seen += 1;
        std::ops::ControlFlow::Continue(())
    })?;
    assert_eq!((seen, table.len()?), (KEYS, KEYS));
    assert!(table.put(1, 2).is_err());
    Ok(anonymous().saturating_sub(before))
}

/// The entry of a child process that the next test starts: no other test changes the memory of a separate process.
#[test]
fn child_that_reads_everything() -> Check {
    let Ok(order) = std::env::var(CHILD) else { return Ok(()) };
    let (design, path) = order.split_once(' ').ok_or("no order")?;
    let path = Path::new(path);
    let taken = if design == <Eh>::DESIGN { read_all::<Eh>(path)? } else { read_all::<Lh>(path)? };
    println!("anonymous bytes: {taken}");
    Ok(())
}

fn costs_little<P: Directory>(crashed: bool) -> Check {
    let place = tempfile::tempdir()?;
    let path = place.path().join("table.ice");
    make::<P>(&path, crashed)?;
    let before = contents(&path)?;
    let bytes: usize = before.values().map(Vec::len).sum();
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", "dash::read_only::child_that_reads_everything", "--nocapture"])
        .env(CHILD, format!("{} {}", P::DESIGN, path.display()))
        .output()?;
    let told = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{told} {}", String::from_utf8_lossy(&child.stderr));
    let line = told.lines().find_map(|line| line.split("anonymous bytes: ").nth(1));
    let taken: usize = line.ok_or("the child said nothing")?.trim().parse()?;
    println!("{}, crashed {crashed}: {taken} bytes of {bytes}", P::DESIGN);
    assert!(taken < bytes / 10, "{taken} of {bytes}");
    assert!(contents(&path)? == before, "a reader changed a file");
    assert!(options::<P>().open(&path)?.check()?.is_clean());
    Ok(())
}

#[test]
fn reading_costs_no_more_than_a_tenth_of_the_files() -> Check {
    for crashed in [false, true] {
        costs_little::<Eh>(crashed)?;
        costs_little::<Lh>(crashed)?;
    }
    Ok(())
}

/// Returns the number of keys that a forked child finds, and the number of reads that are refused there. Returns `None`
/// if any read has another result.
fn in_fork<P: Directory>(table: &Dash<u64, u64, P>) -> Option<(u64, u64)> {
    let (reader, mut writer) = std::io::pipe().ok()?;
    // SAFETY: the child only reads the table, reports its results and exits.
    let pid = unsafe { fork() };
    if pid == 0 {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut found, mut refused) = (0_u64, 0_u64);
            for key in 0..KEYS {
                match table.get(key) {
                    Ok(Some(value)) if value == !key => found += 1,
                    Err(Error::Forked) => refused += 1,
                    _ => return Err(()),
                }
            }
            let words = [found, refused].map(u64::to_le_bytes).concat();
            std::io::Write::write_all(&mut writer, &words).map_err(|_| ())
        }));
        // SAFETY: ends the child.
        unsafe { _exit(i32::from(!matches!(told, Ok(Ok(()))))) };
    }
    drop(writer);
    let mut told = Vec::new();
    let mut reader = reader;
    std::io::Read::read_to_end(&mut reader, &mut told).ok()?;
    let mut status = 0;
    // SAFETY: a child of this process.
    unsafe { waitpid(pid, &raw mut status, 0) };
    let word = |at: usize| Some(u64::from_le_bytes(*told.get(at..)?.first_chunk()?));
    if status == 0 { Some((word(0)?, word(8)?)) } else { None }
}

/// A child may read the segments that its parent has already recovered. All other reads are refused, because the
/// recovery of a segment changes the files, which belong to the parent.
fn forked<P: Directory>() -> Check {
    let place = tempfile::tempdir()?;
    let path = place.path().join("table.ice");
    make::<P>(&path, false)?;
    let table = options::<P>().open(&path)?;
    for key in 0..100 {
        assert_eq!(table.get(key)?, Some(!key));
    }
    let before = contents(&path)?;
    let (found, refused) = in_fork(&table).ok_or("the child failed")?;
    assert!(contents(&path)? == before, "a child changed a file");
    assert!(found >= 100 && refused > 0 && found + refused == KEYS, "{found} {refused}");
    assert!(table.check()?.is_clean());
    assert_eq!(in_fork(&table), Some((KEYS, 0)), "all has been looked at");
    drop(table);
    // A read-only session recovers in private memory and does not change the files.
    let before = contents(&path)?;
    let table = options::<P>().open_read_only(&path)?;
    assert_eq!(in_fork(&table), Some((KEYS, 0)));
    assert!(table.check()?.is_clean());
    assert!(contents(&path)? == before, "a reader changed a file");
    Ok(())
}

#[test]
fn forked_children_change_no_file() -> Check {
    forked::<Eh>()?;
    forked::<Lh>()
}
