#!/bin/sh
# Pins every dependency, with hashes: requirements/lock.txt to run, requirements/dev-lock.txt to develop.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install -q uv
compile="uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links"
PATH="$PWD/.venv/bin:$PATH"
$compile pyproject.toml -o requirements/lock.txt "$@"
$compile pyproject.toml --group dev -o requirements/dev-lock.txt "$@"
