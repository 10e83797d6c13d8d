# Every command of the project. `make` or `make help` lists them. Each sets up what it needs: Python, pip and make are enough.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
SHELL := /bin/sh
BIN := $(VENV)/bin
RUN := $(BIN)/python
# Tests start some hundred processes, each of which would else compile the package's Python again where a checkout keeps no
# bytecode: with what lies in $(VENV) an import takes a third of the time.
TEST := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(abspath $(VENV))/bytecode $(RUN) -m pytest -n 2 --dist loadfile -m "not gpu"

.DEFAULT_GOAL := help
.PHONY: help demo doctor test test-long check check-format check-lint check-types check-imports format stubs golden bench bench-compile bench-host regret clean

help:  ## list these commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

demo: $(VENV)/.runtime  ## define, explain and run fusions here; ARGS="--input FILE.npy" for your own data
	$(RUN) -m fuser demo $(ARGS)
	@echo 'next: `make test` runs the tests that need no GPU, some six minutes on two cores'

doctor: $(VENV)/.runtime  ## what this machine has, what is missing, what to do about it
	$(RUN) -m fuser doctor $(ARGS)

test: $(VENV)/.test  ## tests that need no GPU, of large tables one case in six (docs/testing.md); ARGS="-k name" for some
	$(TEST) --turn commit $(ARGS)

test-long: $(VENV)/.test  ## all tests that need no GPU, some twenty minutes on two cores
	$(TEST) $(ARGS)

check: check-format check-lint check-types check-imports  ## the four below; `make -k check` goes on after a failure

check-format: $(VENV)/.test  ## is every file as `make format` would write it?
	$(BIN)/ruff format --check --output-format=concise .

check-lint: $(VENV)/.test  ## ruff's rules
	$(BIN)/ruff check --output-format=concise .

check-types: $(VENV)/.test  ## basedpyright, strict
	$(BIN)/basedpyright --pythonpath $(RUN)

check-imports: $(VENV)/.test  ## import-linter: imports go downward
	$(BIN)/lint-imports

format: $(VENV)/.test  ## rewrite files in the project's format, with the safe lint fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: $(VENV)/.test  ## rewrite what is generated from the ops: the stubs for type checkers and docs/ops.md
	$(RUN) tools/generate_stubs.py
	$(RUN) tools/generate_ops_page.py

golden: $(VENV)/.test  ## rewrite the tests' golden files; review the difference before committing
	$(TEST) --update-golden $(ARGS)

bench:  ## cases against a copy of the same bytes (needs a GPU and torch); SET=everyday, CASE=softmax, ARGS="--peers none"
	@if $(PYTHON) -c 'import torch, ml_dtypes, cuda.bindings' 2>/dev/null; then python=$(PYTHON); \
	  else $(MAKE) --no-print-directory $(VENV)/.bench && python=$(RUN); fi && \
	  $$python -m benchmarks.run $(if $(SET),--set $(SET)) $(if $(CASE),--case $(CASE)) $(ARGS)

bench-compile: $(VENV)/.test  ## compile time and size of the generated kernels, stage by stage (needs no GPU)
	$(RUN) benchmarks/compile_cost.py $(ARGS)

bench-host: $(VENV)/.test  ## host time of a call beside other systems; without a GPU, of this project's own Python alone
	@if $(PYTHON) -c 'import torch, ml_dtypes, cuda.bindings' 2>/dev/null; then python=$(PYTHON); else python=$(RUN); fi && \
	  $$python -m benchmarks.host_time $(ARGS)

regret: $(VENV)/.test  ## how far proposals lie behind the best parameters that were measured (needs no GPU); ARGS="--worst 30"
	$(RUN) -m benchmarks.regret $(ARGS)

clean:  ## remove environments, caches and dumps
	rm -rf $(VENV) .venv-* .pytest_cache .ruff_cache .hypothesis .import_linter_cache .fuser_dump *.egg-info build dist

# pip says what it downloads, NVRTC and NumPy first of all: a minute or more that would else pass in silence.
# The marker files are younger than pyproject.toml when what it declares is installed.
# Where Debian's python3-venv is missing, venv cannot bring pip; the pip outside installs into it then.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "fuser needs Python 3.11 or newer; $(PYTHON) is `$(PYTHON) --version 2>&1`. Try: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	  && $(PYTHON) -m pip --python $(RUN) install pip; }
	@touch $@

$(VENV)/.runtime: $(VENV)/.python pyproject.toml
	$(RUN) -m pip install --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.runtime pyproject.toml
	$(RUN) -m pip install --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/.bench: $(VENV)/.runtime pyproject.toml
	$(RUN) -m pip install --disable-pip-version-check --editable '.[torch]'
	@touch $@
