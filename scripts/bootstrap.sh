#!/bin/sh
# Makes .venv with the agent in it. Usage: scripts/bootstrap.sh run|dev. Does nothing if nothing has changed.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-run}

fail() { echo "coldaisle: error: $1" >&2; exit 1; }

find_python() {
    for candidate in "${PYTHON:-}" /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 python3.13 python3.12 python3.11 python3; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo "$candidate"; return; fi
    done
}

lock=requirements/lock.txt
[ "$kind" = dev ] && lock=requirements/dev-lock.txt
stamp=.venv/.stamp-$kind
wanted=$(cat pyproject.toml "$lock" | cksum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0
# What development needs includes what running needs.
[ "$kind" = run ] && [ -f .venv/.stamp-dev ] && [ -x .venv/bin/coldaisle ] && exit 0

if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    if [ -z "$python" ]; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3 python3-venv
            python=$(find_python)
        fi
        [ -n "$python" ] || fail "no Python 3.11 or later found: install it, or name it with PYTHON=/path/to/python3"
    fi
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
            apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-venv
        else
            fail "$python has no ensurepip: install its venv package (Debian: python3-venv)"
        fi
    fi
    rm -rf .venv
    "$python" -m venv .venv
fi
.venv/bin/python -m pip install -q --disable-pip-version-check -r "$lock"
.venv/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
echo "$wanted" > "$stamp"
