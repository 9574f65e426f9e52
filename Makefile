# `make run` and `make test` need Python 3.11 or later and make; everything else they set up.
.PHONY: run test check bench lock reference clean
BIN := .venv/bin
SIMULATE := $(if $(wildcard /dev/nvidiactl),,--simulate dgx-h200)

run:
	@scripts/bootstrap.sh run
	@exec $(BIN)/coldaisle run $(SIMULATE) $(ARGS)

test: check
	@scripts/install-test-servers.sh
	@$(BIN)/pytest -q $(ARGS)

check:
	@scripts/bootstrap.sh dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q agent
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench:
	@scripts/bootstrap.sh dev
	@scripts/install-test-servers.sh
	@$(BIN)/python tests/bench/run.py $(ARGS)

lock:
	@scripts/bootstrap.sh dev
	@scripts/lock.sh

reference:
	@scripts/bootstrap.sh dev
	@$(BIN)/python scripts/reference.py > docs/metrics.md

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
