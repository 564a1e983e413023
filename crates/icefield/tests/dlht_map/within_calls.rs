//! User code that uses the map while the map runs it: `Hash`, `Eq`, `Clone` and `Drop` of keys and values, the
//! allocator, and closures.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use icefield::{AllocError, Allocator, Decision, DlhtBuildHasher, DlhtMap, Global};
use icefield_torture::timed::within;

use crate::fewer;

type Map = DlhtMap<Key, Value, DlhtBuildHasher, Reentrant>;

static MAP: OnceLock<Map> = OnceLock::new();
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Uses the map, if it exists. A nested call does nothing.
fn use_map() {
    let Some(map) = MAP.get() else { return };
    if INSIDE.replace(true) {
        return;
    }
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
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
        let map = MAP.get_or_init(|| {
            Map::with_capacity_and_hasher_in(0, DlhtBuildHasher::default(), Reentrant)
        });
        std::thread::scope(|scope| {
            for thread in 0..2_u64 {
                scope.spawn(move || {
                    for n in 0..fewer(1_500, 20) as u64 {
                        let (key, guard) = (n * (thread + 1) % 200, map.pin());
                        map.insert(Key(key), Value(n), &guard);
                        map.get_or_insert_with(
                            Key(key + 1),
                            || {
                                use_map();
                                Value(n)
                            },
                            &guard,
                        );
                        map.get_cloned(&Key(key));
                        let _ = map.compute(
                            Key(key + 2),
                            |_| {
                                use_map();
                                Decision::Put(Value(n))
                            },
                            &guard,
                        );
                        map.remove(&Key(key + 3), &guard);
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
                });
            }
        });
    });
    assert!(done.is_ok(), "{done:?}");
    println!("{} calls from within", CALLS.load(Ordering::Relaxed));
    assert!(CALLS.load(Ordering::Relaxed) > fewer(5_000, 100) as u64);
}
