#!/usr/bin/env bash
# Builds the wheel once, with a profile that compiles quickly, and tests it in fresh environments. PYTHONS names the
# versions; those that pyenv does not have are left out.
set -euo pipefail
cd "$(dirname "$0")"

target=${CARGO_TARGET_DIR:-$PWD/target}
step() { printf '\n-- %s\n' "$*"; }

pythons=()
for version in ${PYTHONS:-3.13 3.11}; do
    for found in "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python; do
        [ -x "$found" ] && pythons+=("$found") && break
    done
done
if [ ${#pythons[@]} -eq 0 ]; then
    echo "no Python of pyenv: testing with python3 alone"
    pythons=(python3)
fi

step "environment"
tools=$target/check/tools
[ -x "$tools/bin/python" ] || "${pythons[0]}" -m venv "$tools"
"$tools/bin/pip" install --quiet -r tests/requirements-tools.txt

step "format, clippy"
cargo fmt --check
cargo clippy --locked --profile ci -- -D warnings
"$tools/bin/ruff" check .
"$tools/bin/ruff" format --check .

step "wheel"
rm -rf "$target/check/wheels"
"$tools/bin/maturin" build --profile ci --locked --interpreter "${pythons[0]}" --out "$target/check/wheels"

# Tests the wheel in a new environment, with nothing but the wheel: neither Rust nor the sources are used.
test_wheel() {
    local python=$1 venv=$2
    "$python" -m venv --clear "$venv"
    "$venv/bin/pip" install --quiet "$target"/check/wheels/*.whl
    "$venv/bin/python" tests/without_numpy.py
    "$venv/bin/pip" install --quiet -r tests/requirements.txt
    "$venv/bin/python" -m pytest -q -p no:cacheprovider tests
}

# All versions at the same time: most tests use one thread, or wait for processes that they have started.
runs=()
venvs=()
for python in "${pythons[@]}"; do
    venv=$target/check/venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    test_wheel "$python" "$venv" >"$venv.log" 2>&1 &
    runs+=($!)
    venvs+=("$venv")
done
trap 'jobs -p | xargs -r kill 2>/dev/null' EXIT
failed=0
for index in "${!runs[@]}"; do
    wait "${runs[index]}" || failed=1
    step "tests with $("${pythons[index]}" --version)"
    cat "${venvs[index]}.log"
    if [ "$index" -eq 0 ] && [ "$failed" -eq 0 ]; then
        # Beside the tests of the other versions.
        step "types, notebook"
        "${venvs[0]}/bin/pip" install --quiet -r tests/requirements-types.txt
        "${venvs[0]}/bin/python" -m mypy.stubtest icefield --allowlist tests/stubtest-allowed.txt \
            --ignore-disjoint-bases
        "${venvs[0]}/bin/python" -m mypy --strict examples
        "${venvs[0]}/bin/python" tests/run_notebook.py ../../docs/python.ipynb
    fi
done
exit "$failed"
