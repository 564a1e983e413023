#!/usr/bin/env bash
# Runs each fuzz target for a bounded time.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]     600 seconds a target, all targets, when nothing is given
#
# Under cargo-fuzz where a nightly toolchain and it are installed; else random bytes on the stable toolchain, which says so:
# without coverage it finds less. The targets: `fuzz/src/lib.rs`.

source "$(dirname "$0")/common.sh"
case ${1:-} in
-h | --help)
    usage
    exit
    ;;
esac
seconds=${1:-600}
shift || true
[ $# -gt 0 ] || set -- {dash-eh,dash-lh,iceberg,plush}-{files,operations} {csv,ndjson}-rows
if rustup +nightly --version >/dev/null 2>&1 && cargo +nightly fuzz --version >/dev/null 2>&1; then
    for target; do
        run cargo +nightly fuzz run --features libfuzzer "${target//-/_}" -- -max_total_time="$seconds" -timeout=30 -rss_limit_mb=4096
    done
else
    echo "without cargo-fuzz: random bytes, no coverage" >&2
    run cargo build --release --manifest-path fuzz/Cargo.toml --bin drive
    for target; do
        run fuzz/target/release/drive "$target" "$seconds"
    done
fi
