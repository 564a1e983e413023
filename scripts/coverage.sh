#!/usr/bin/env bash
# Which lines the tests reach. Look at recovery, file format and parsing: an untested branch there is a fault.
#
#   scripts/coverage.sh [CARGO TEST ARGS]     all tests of the library when nothing is given
#
# A table per file on the terminal, the lines in target/coverage/html/index.html.

source "$(dirname "$0")/common.sh"
case ${1:-} in
-h | --help)
    usage
    exit
    ;;
esac
need_rustup
rustup component list --installed | grep -q '^llvm-tools' || run rustup component add llvm-tools ||
    could_not_run "this toolchain has no llvm-tools"
cargo llvm-cov --version >/dev/null 2>&1 || run cargo install --locked cargo-llvm-cov ||
    could_not_run "cargo-llvm-cov could not be installed"

run cargo llvm-cov test -p icefield --html --output-dir target/coverage "$@"
run cargo llvm-cov report --ignore-filename-regex '/(icefield-torture|tests)/|/tests\.rs$'
