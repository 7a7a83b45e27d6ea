# make bench: everything from a fresh checkout to the benchmark's table. ARGS="--size 2**26" adds options.
# make test:  linters, types, tests. make fuzz: a long run over random expressions.
# Both make .venv, and install again only when pyproject.toml or the extras change.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
comma := ,
ARGS ?=
PYTEST_ARGS ?=

# Major version of the CUDA that the driver supports, 0 without one.
CUDA := $(shell $(PYTHON) tools/driver_cuda.py)
DRIVER_EXTRA := $(if $(filter 12,$(CUDA)),cu12,$(if $(filter-out 0 1 2 3 4 5 6 7 8 9 10 11,$(CUDA)),cu13))

# Generated code is compiled in the tests without a driver too, where there are wheels for it.
BUILD_EXTRA := $(or $(DRIVER_EXTRA),$(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),cu13))

BENCH_EXTRAS := bench$(if $(DRIVER_EXTRA),$(comma),)$(DRIVER_EXTRA)
TEST_EXTRAS := dev,bench$(if $(BUILD_EXTRA),$(comma),)$(BUILD_EXTRA)
BENCH_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(BENCH_EXTRAS))
TEST_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(TEST_EXTRAS))

.PHONY: bench test lint fuzz clean
.DEFAULT_GOAL := test

bench: $(BENCH_STAMP)
	$(BIN)/itfuse bench $(ARGS)

test: lint
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

# Random expressions against NumPy; FUZZ="--count 200000 --engine cpu" for a long run.
FUZZ ?=
fuzz: $(TEST_STAMP)
	ITFUSE_THREADS=1 $(BIN)/python tests/fuzz.py $(FUZZ)

lint: $(TEST_STAMP)
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m mypy

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "itfuse needs Python 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(BENCH_STAMP): pyproject.toml | $(BIN)/python
	@echo 'installing itfuse[$(BENCH_EXTRAS)]$(if $(DRIVER_EXTRA),; the first time takes minutes, for the CPU: no NVIDIA driver for CUDA 12 or newer found)'
	$(BIN)/python -m pip install --quiet --editable '.[$(BENCH_EXTRAS)]'
	@touch $@

$(TEST_STAMP): pyproject.toml | $(BIN)/python
	@echo 'installing itfuse[$(TEST_EXTRAS)]; the first time takes minutes'
	$(BIN)/python -m pip install --quiet --editable '.[$(TEST_EXTRAS)]'
	@touch $@
