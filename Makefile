# make train | test | lint | docs | bench | clean: each installs what it needs into .venv first; a second call starts at once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= runs/$(shell date +%Y%m%d-%H%M%S)

# Without these, torch's OpenMP threads spin while they wait and slow down whatever else runs (docs/design.md).
export OMP_WAIT_POLICY = passive
export GOMP_SPINCOUNT = 0

.PHONY: help train test lint format docs docs-check docs-serve bench clean

help:
	@echo "make train   install everything and train a GCN on the bundled CiteSeer graph (results in $(dir $(OUT)))"
	@echo "make test    install everything and run all tests"
	@echo "make lint    ruff and mypy --strict"
	@echo "make docs    the documentation site, in build/docs/html; make docs-serve shows it on http://127.0.0.1:8000"
	@echo "make bench   the benchmarks, 15 minutes or more; make bench-step, -epoch, -peers, ... one of them"

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "cvgnn needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11 train")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

train: $(STAMP)
	$(BIN)/cvgnn train --out $(OUT)

# A file of tests stays in one process: its fixtures are shared.
test: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Warnings are errors. Examples are run again where the code has changed; docs-check leaves their output out, because tests run them.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

docs docs-check docs-serve: $(VENV)/.docs
	$(BIN)/python tools/build_docs.py $(patsubst docs-%,--%,$(filter docs-%,$@))

# The benchmarks, some 15 minutes in all, and 20 more where the peers are installed; `make bench-step` and so on run one.
# The figures in docs/benchmarks come from the commands that stand beside them there; here the slow ones are shortened.
BENCHMARKS := step profile_step epoch kernels scaling peers optimizer_step startup checkpoint threads leak setup ingest billion
bench_scaling := --quick
bench_peers := --graphs pubmed photo arxiv --budget 15

.PHONY: $(BENCHMARKS:%=bench-%)
bench: $(BENCHMARKS:%=bench-%)

$(BENCHMARKS:%=bench-%): bench-%: $(STAMP)
	$(BIN)/python benchmarks/$*.py $(bench_$*)

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
