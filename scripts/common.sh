# Shared by the scripts of this folder; not to be run by itself. Each script installs what it needs, and says plainly,
# with exit status 3, when that was not possible: a check that did not run must never look like one that passed.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

could_not_run() {
    echo "NOT RUN: $*" >&2
    exit 3
}

# Runs a command and shows it first.
run() {
    echo "+ $*" >&2
    "$@"
}

# The command line that a script's header describes.
usage() {
    sed -n '2,/^$/s/^# \{0,1\}//p' "$0"
}

need_rustup() {
    command -v rustup >/dev/null || could_not_run "rustup is not installed (https://rustup.rs)"
}

need_target() {
    need_rustup
    rustup target list --installed | grep -qx "$1" || run rustup target add "$1" || could_not_run "no standard library for $1"
}

# need_nightly COMPONENT...
need_nightly() {
    need_rustup
    local installed component
    installed=$(rustup +nightly component list --installed 2>/dev/null) ||
        { run rustup toolchain install nightly --profile minimal && installed=""; } ||
        could_not_run "no nightly toolchain"
    for component; do
        grep -q "^$component" <<<"$installed" || run rustup +nightly component add "$component" ||
            could_not_run "today's nightly has no $component; try another with RUSTUP_TOOLCHAIN=nightly-DATE"
    done
}

# need_program PROGRAM DEBIAN-PACKAGE...
need_program() {
    local program=$1 as_root=()
    shift
    command -v "$program" >/dev/null && return
    command -v apt-get >/dev/null || could_not_run "$program is missing, and there is no apt-get to install $* with"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || could_not_run "$program is missing; as root: apt-get install $*"
        as_root=(sudo)
    fi
    run "${as_root[@]}" apt-get update -qq || true
    run "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" ||
        could_not_run "$* could not be installed"
}
