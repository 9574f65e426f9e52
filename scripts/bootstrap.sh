#!/bin/sh
# Makes .venv with the agent in it. Usage: scripts/bootstrap.sh run|dev. Takes no time if nothing has changed.
# PYTHON=/path/to/python3 chooses the interpreter.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-run}

fail() { echo "coldaisle: error: $1" >&2; exit 1; }

lock_of() { if [ "$1" = dev ]; then echo requirements/dev-lock.txt; else echo requirements/lock.txt; fi; }
# Scripts in a virtual environment name it by its whole path, so a moved tree needs another one.
wanted_of() { { pwd; cat pyproject.toml "$(lock_of "$1")"; } | cksum; }
is_done() { [ -x .venv/bin/coldaisle ] && [ "$(cat ".venv/.stamp-$1" 2>/dev/null)" = "$(wanted_of "$1")" ]; }

is_done "$kind" && exit 0
# What development needs includes what running needs.
[ "$kind" = run ] && is_done dev && exit 0

python=
find_python() {
    for python in "${PYTHON:-}" /usr/bin/python3.13 /usr/bin/python3.12 /usr/bin/python3.11 python3.13 python3.12 python3.11 python3; do
        [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && return 0
    done
    return 1
}
can_make_venv() { "$python" -c 'import venv, ensurepip' 2>/dev/null; }
# Only where it is usual: root on Debian or Ubuntu, as in a container or on a test machine.
can_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }
install() {
    echo "installing $* with apt-get" >&2
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"; } >&2 ||
        fail "apt-get could not install $*: install it by hand, then try again"
}

# One that works and was made here is kept, whoever made it: others may be running in it.
usable() {
    case "$(head -n 1 .venv/bin/pip 2>/dev/null)" in "#!$(pwd)/.venv/bin/python"*) ;; *) return 1 ;; esac
    .venv/bin/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}
if ! usable; then
    if ! find_python && can_install; then install python3 python3-venv; fi
    find_python || fail "no Python 3.11 or later found: install it, or name it with PYTHON=/path/to/python3"
    if ! can_make_venv && can_install; then install python3-venv; fi
    can_make_venv || fail "$python has no ensurepip: install its venv package (Debian, Ubuntu: python3-venv)"
    echo "setting up .venv with $("$python" --version), once" >&2
    rm -rf .venv
    "$python" -m venv .venv
fi
pip() { .venv/bin/python -m pip install -q --disable-pip-version-check --no-input "$@" ||
    fail "pip could not install what is needed; its message is above"; }
pip --require-hashes -r "$(lock_of "$kind")"
pip --no-deps -e .
wanted_of "$kind" > ".venv/.stamp-$kind"
