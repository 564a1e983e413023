#!/usr/bin/env bash
# Undefined behaviour and weak-memory surprises, found by interpreting the tests. Vector code runs in its generic form.
#
#   scripts/miri.sh [TEST FILTER...]     tests whose names contain a filter; those of `base::` when none is given
#
# SEEDS=8 sets how many schedules are tried, MIRIFLAGS is added to.

source "$(dirname "$0")/common.sh"
case ${1:-} in
-h | --help)
    usage
    exit
    ;;
esac
need_nightly miri rust-src

[ $# -gt 0 ] || set -- base::
# Isolation is off because the medium on files asks for paths, times and process numbers.
export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-many-seeds=0..${SEEDS:-8} ${MIRIFLAGS:-}"
echo "MIRIFLAGS=$MIRIFLAGS" >&2
run cargo +nightly miri test -p icefield --lib -- "$@"
