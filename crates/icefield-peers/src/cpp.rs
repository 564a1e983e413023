//! C++ tables that are linked into the program. Each exports the functions of `icefield_peer.h` under its own prefix.

use std::ffi::{c_char, c_void};

use crate::Kind;
use crate::library::{Functions, Loaded};

/// Declares the functions of a linked C++ table and returns its kind.
macro_rules! shim {
    ($name:literal, $create:ident, $destroy:ident, $insert:ident, $get:ident, $update:ident, $remove:ident, $insdel:ident) => {{
        unsafe extern "C" {
            fn $create(capacity: u64, dir: *const c_char) -> *mut c_void;
            fn $destroy(table: *mut c_void);
            fn $insert(table: *mut c_void, keys: *const u64, values: *const u64, n: u64) -> u64;
            fn $get(table: *mut c_void, keys: *const u64, n: u64, sum: *mut u64) -> u64;
            fn $update(table: *mut c_void, keys: *const u64, values: *const u64, n: u64) -> u64;
            fn $remove(table: *mut c_void, keys: *const u64, n: u64) -> u64;
            fn $insdel(table: *mut c_void, keys: *const u64, n: u64) -> u64;
        }
        let functions = Functions {
            create: $create,
            destroy: $destroy,
            thread: None,
            insert: $insert,
            get: $get,
            update: Some($update),
            remove: Some($remove),
            insdel: Some($insdel),
        };
        Box::new(Loaded { name: $name.to_owned(), functions }) as Box<dyn Kind>
    }};
}

/// Returns the kinds in this module.
pub(crate) fn all() -> Vec<Box<dyn Kind>> {
    vec![
        shim!(
            "libcuckoo",
            icefield_peer_libcuckoo_create,
            icefield_peer_libcuckoo_destroy,
            icefield_peer_libcuckoo_insert,
            icefield_peer_libcuckoo_get,
            icefield_peer_libcuckoo_update,
            icefield_peer_libcuckoo_remove,
            icefield_peer_libcuckoo_insdel
        ),
        shim!(
            "onetbb",
            icefield_peer_onetbb_create,
            icefield_peer_onetbb_destroy,
            icefield_peer_onetbb_insert,
            icefield_peer_onetbb_get,
            icefield_peer_onetbb_update,
            icefield_peer_onetbb_remove,
            icefield_peer_onetbb_insdel
        ),
    ]
}
