//! Wakers that use the table, wait for it, drop it, or panic.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::time::Duration;

use icefield::{Durability, Plush};
use icefield_torture::timed::within;

use super::sync::block_on;
use super::{Check, TINY};

/// A time limit that only a deadlock exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

type Table = Plush<u64, u64>;

/// The action of a waker.
type Act = Box<dyn Fn(&Mutex<Option<Arc<Table>>>) + Send + Sync>;

struct Acting {
    table: Mutex<Option<Arc<Table>>>,
    act: Act,
    woken: Arc<AtomicU64>,
}

impl Wake for Acting {
    fn wake(self: Arc<Self>) {
        (self.act)(&self.table);
        self.woken.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls futures of a table with wakers that execute `act`, while other writes change and sync the same root entries.
/// Returns the number of wake-ups.
fn wake_with(act: impl Fn(&Mutex<Option<Arc<Table>>>) + Send + Sync + Clone + 'static) -> u64 {
    let directory = tempfile::tempdir().expect("a directory");
    let woken = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&woken);
    let done = within(PATIENCE, move || -> icefield::Result<()> {
        let options = Table::options().shape(TINY).durability(Durability::Disk);
        let table = Arc::new(options.create(directory.path().join("table.ice"))?);
        for n in 0..100 {
            let mut future = Box::pin(table.put_async(100 + n, 1));
            let waker = Arc::new(Acting {
                table: Mutex::new(Some(Arc::clone(&table))),
                act: Box::new(act.clone()),
                woken: Arc::clone(&counted),
            });
            let waker = waker.into();
            let _ = future.as_mut().poll(&mut Context::from_waker(&waker));
            // This write holds the lock of a root entry during its sync, which covers the record of the future as well.
            table.put(1, n)?;
        }
        table.sync()?;
        drop(table);
        Ok(())
    });
    done.expect("it ends").expect("it works");
    woken.load(Ordering::SeqCst)
}

fn of(table: &Mutex<Option<Arc<Table>>>) -> Arc<Table> {
    let table = table.lock().expect("not poisoned");
    Arc::clone(table.as_ref().expect("a table"))
}

#[test]
fn wakers_may_use_the_table() {
    let woken = wake_with(|table| {
        let table = of(table);
        table.put(1, 3).expect("a write");
        table.remove(1).expect("a write");
        table.sync().expect("a sync");
    });
    assert!(woken > 0);
}

#[test]
fn wakers_may_wait_for_their_own_futures() {
    let woken = wake_with(|table| {
        let table = of(table);
        block_on(table.put_async(1, 4)).expect("a write");
        block_on(table.committed()).expect("a sync");
    });
    assert!(woken > 0);
}

#[test]
fn wakers_may_drop_the_table() {
    wake_with(|table| drop(table.lock().expect("not poisoned").take()));
}

#[test]
fn a_waker_that_panics_keeps_nobody_asleep() -> Check {
    let directory = tempfile::tempdir()?;
    let options = Table::options().shape(TINY).durability(Durability::Disk);
    let table = options.create(directory.path().join("table.ice"))?;
    for key in 0..20 {
        let waker = Arc::new(Acting {
            table: Mutex::new(None),
            act: Box::new(|_| panic!("a waker's own fault")),
            woken: Arc::default(),
        });
        let mut future = Box::pin(table.put_async(key, 1));
        let _ = future.as_mut().poll(&mut Context::from_waker(&waker.into()));
        block_on(table.put_async(key, 2))?;
    }
    assert_eq!(table.len()?, 20);
    Ok(())
}
