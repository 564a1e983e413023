#!/bin/sh
# Compares the library's public interface with that of a release.
#
#     scripts/semver.sh v0.1.0
#
# Uses cargo-semver-checks, and installs it if it is missing. Only the default features count: `unstable-internals` and
# `sim` may change in any version. The levels of the lints are in crates/icefield/Cargo.toml.
set -eu
cd "$(dirname "$0")/.."

if [ $# -ne 1 ]; then
    echo "usage: scripts/semver.sh REVISION, for example the tag of the last release" >&2
    exit 2
fi
command -v cargo-semver-checks >/dev/null || cargo install cargo-semver-checks --locked
exec cargo semver-checks -p icefield --only-explicit-features --baseline-rev "$1"
