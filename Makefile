# `make run` and `make test` need Python 3.11 or later and make; everything else they set up.
.PHONY: run test check bench lock reference clean
BIN := .venv/bin
# A driver or its library means that someone wants the real GPUs; only without either is a DGX simulated.
DRIVER := $(wildcard /dev/nvidiactl)$(shell PATH="$$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -m 1 -o libnvidia-ml.so.1)
CHOSEN := $(findstring --simulate,$(ARGS))$(findstring --replay,$(ARGS))
SIMULATE := $(if $(DRIVER)$(CHOSEN),,--simulate dgx-h200)

run:
	@scripts/bootstrap.sh run
	@$(if $(SIMULATE),echo "No NVIDIA driver on this machine: running on a SIMULATED DGX H200." >&2,:)
	@exec $(BIN)/coldaisle run $(SIMULATE) $(ARGS)

# COLDAISLE_SKIP_LONG=1 leaves out the tests that take minutes; ARGS go to pytest.
test: check
	@scripts/install-test-servers.sh
	@$(BIN)/pytest -q $(ARGS)

check:
	@scripts/bootstrap.sh dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check -q agent
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# ARGS="--seconds 300" measures longer; results also in build/bench.json.
bench:
	@scripts/bootstrap.sh dev
	@scripts/install-test-servers.sh
	@$(BIN)/python tests/bench/run.py $(ARGS)

lock:
	@scripts/bootstrap.sh dev
	@scripts/lock.sh $(ARGS)

reference:
	@scripts/bootstrap.sh dev
	@$(BIN)/python scripts/reference.py > docs/metrics.md

clean:
	rm -rf .venv build .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find agent tests scripts -name __pycache__ -prune -exec rm -rf {} +
