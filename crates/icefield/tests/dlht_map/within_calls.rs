//! User code that uses the map while the map runs it: `Hash`, `Eq`, `Clone` and `Drop` of keys and values, the
//! allocator, and closures.

use std::cell::{Cell, OnceCell};
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::Duration;

use icefield::{
    AllocError, Allocator, Decision, DlhtBuildHasher, DlhtRecordMap, Global, Local, Shared,
    Threading,
};
use icefield_torture::timed::within;

use crate::fewer;

type Map<M> = DlhtRecordMap<Key, Value, DlhtBuildHasher, Reentrant, M>;

static MAP: OnceLock<Map<Shared>> = OnceLock::new();

thread_local! {
    /// The map of this thread alone. If it exists, the thread does not use the other one.
    static OWN: OnceCell<Map<Local>> = const { OnceCell::new() };
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    /// Number of calls from within, by this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Uses the map, if it exists. A nested call does nothing.
fn use_map() {
    let own = OWN.try_with(|own| own.get().map(call).is_some());
    // While `OWN` is being dropped, its map cannot be used.
    if own == Ok(false)
        && let Some(map) = MAP.get()
    {
        call(map);
    }
}

fn call<M: Threading>(map: &Map<M>) {
    if INSIDE.replace(true) {
        return;
    }
    let call = CALLS.replace(CALLS.get() + 1);
    let guard = map.pin();
    map.put(Key(call % 64), Value(call));
    map.get(&Key(call % 64 + 1), &guard);
    map.delete(&Key(call % 64 + 2));
    drop(guard);
    match call % 500 {
        100 => map.clear(),
        200 => map.shrink_to_fit(),
        300 => map.reserve(1_000),
        400 => assert!(map.iter(&map.pin()).count() < 1_000),
        _ => {}
    }
    INSIDE.set(false);
}

struct Key(u64);

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        use_map();
        // Several keys share a hash, so that their records are compared.
        state.write_u64(self.0 / 4);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        use_map();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        use_map();
        Self(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        use_map();
    }
}

struct Value(u64);

impl Clone for Value {
    fn clone(&self) -> Self {
        use_map();
        Self(self.0)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        use_map();
    }
}

#[derive(Clone)]
struct Reentrant;

// SAFETY: all memory is the global allocator's.
unsafe impl Allocator for Reentrant {
    fn allocate(&self, layout: std::alloc::Layout) -> Result<NonNull<[u8]>, AllocError> {
        use_map();
        Global.allocate(layout)
    }

    unsafe fn deallocate(&self, ptr: NonNull<u8>, layout: std::alloc::Layout) {
        use_map();
        // SAFETY: the caller guarantees what `deallocate` requires.
        unsafe { Global.deallocate(ptr, layout) }
    }
}

#[test]
fn whatever_a_map_calls_may_use_the_map() {
    let done = within(Duration::from_secs(60), || {
        let map = MAP.get_or_init(new);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || run(map, thread));
            }
        });
    });
    assert!(done.is_ok(), "{done:?}");
}

#[test]
fn whatever_a_map_of_one_thread_calls_may_use_the_map() {
    let done = within(Duration::from_secs(60), || OWN.with(|own| run(own.get_or_init(new), 0)));
    assert!(done.is_ok(), "{done:?}");
}

fn new<M: Threading>() -> Map<M> {
    Map::with_capacity_and_hasher_in(0, DlhtBuildHasher::default(), Reentrant)
}

/// Makes all calls that run user code.
fn run<M: Threading>(map: &Map<M>, thread: u64) {
    for n in 0..fewer(1_500, 20) as u64 {
        let (key, guard) = (n * (thread + 1) % 200, map.pin());
        map.insert(Key(key), Value(n), &guard);
        let value = || {
            use_map();
            Value(n)
        };
        map.get_or_insert_with(Key(key + 1), value, &guard);
        map.get_cloned(&Key(key));
        let decide = |_: Option<&Value>| {
            use_map();
            Decision::Put(Value(n))
        };
        let _ = map.compute(Key(key + 2), decide, &guard);
        map.remove(&Key(key + 3), &guard);
        let records = (0..20).map(|at| {
            use_map();
            (Key(key + at), Value(n))
        });
        map.insert_batch(records, &guard);
        drop(guard);
        if n % 100 == 0 {
            map.retain(|_, value| {
                use_map();
                value.0 % 2 == 0
            });
            map.for_each(|_, _| {
                use_map();
                ControlFlow::Continue(())
            });
        }
    }
    assert!(CALLS.get() > fewer(5_000, 100) as u64, "{} calls from within", CALLS.get());
}
