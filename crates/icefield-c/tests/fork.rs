//! Tables in a forked child.

#![allow(clippy::unwrap_used, reason = "a test may fail")]
#![allow(dead_code, reason = "`common` is for all tests")]

mod common;

use std::ptr::null_mut;

use common::{close, ok, table};
use icefield_c::icefield_status::*;
use icefield_c::*;

/// A changing call in a forked child is refused, and closing the child's copy of the handle changes nothing.
#[test]
fn changes_in_a_forked_child_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let mut table = table(&place.path().join("t"), "dash-eh", "u64", "u64");
    // SAFETY: the pointers are valid. The child makes calls that take no lock of another thread, and ends by `_exit`.
    unsafe {
        ok(|e| icefield_table_put_word(table, 1, 10, e));
        let child = libc::fork();
        if child == 0 {
            let put = icefield_table_put_word(table, 1, 11, null_mut());
            let (mut value, mut present) = (0, 0);
            let get = icefield_table_get_word(table, 1, &mut value, &mut present, null_mut());
            let closed = icefield_table_close(&mut table, null_mut());
            let is_right = put == ICEFIELD_FORKED
                && (get, value, present) == (ICEFIELD_OK, 10, 1)
                && closed == ICEFIELD_OK;
            libc::_exit(i32::from(!is_right));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &mut status, 0), child);
        assert_eq!(status, 0);
        ok(|e| icefield_table_put_word(table, 1, 12, e));
    }
    close(table);
}
