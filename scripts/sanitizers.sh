#!/usr/bin/env bash
# Data races (ThreadSanitizer) and memory errors (AddressSanitizer) in tests that run at nearly full speed.
#
#   scripts/sanitizers.sh [thread|address|all] [CARGO TEST ARGS]     both, on the unit tests, when nothing is given
#
# The concurrent scenarios: `scripts/sanitizers.sh all --test linearize --test dlht --test iceberg --test plush --test join`.
# ThreadSanitizer understands neither fences nor assembly. No plain access is ordered by a fence alone; loads of 16 bytes are
# replaced by what processors without them do.

source "$(dirname "$0")/common.sh"
which=all
case ${1:-} in
-h | --help)
    usage
    exit
    ;;
thread | address | all)
    which=$1
    shift
    ;;
esac
need_nightly rust-src
host=$(rustc +nightly -vV | sed -n 's/^host: //p')
case $host in
x86_64-unknown-linux-gnu | aarch64-unknown-linux-gnu) ;;
*) could_not_run "there are no sanitizers for $host" ;;
esac

[ $# -gt 0 ] || set -- --lib
sanitize() {
    # The standard library must be built alike, or its synchronisation stays invisible; and system calls must go through
    # the C library, or a mapping at the address of a former one is taken for the same memory.
    RUSTFLAGS="-Zsanitizer=$1 --cfg=rustix_use_libc --cfg=icefield_sanitize ${RUSTFLAGS:-}" run cargo +nightly test -Zbuild-std --target "$host" \
        --target-dir "target/sanitizer-$1" -p icefield "${@:2}"
}
[ "$which" = address ] || sanitize thread "$@"
[ "$which" = thread ] || sanitize address "$@"
