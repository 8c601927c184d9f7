# Each command first creates or updates the environment that it needs.
# PYTHON=/path/to/python3.11 selects the interpreter; ARGS="..." is passed to the underlying tool.

PYTHON ?=
ARGS ?=
WORKERS ?= 2
export PYTHON
# Hundreds of tests start a Python process: without compiled bytecode each takes twice as long to import.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
SOURCES := groupella groups bases experiments tests benchmarks docs examples tools/lock setup.py
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
PYTEST := -m pytest -n $(WORKERS) --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast test-numpy2 faults lint format types bench docs lock clean venv

help: ## print this list
	@echo "groupella: which symmetries do labels obey, and which should a network have?"
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

venv: ## create or update .venv from requirements.lock (the other commands do this too)
	@tools/venv $(VENV) requirements.lock

demo: venv ## see it work: two verdicts on embedded data, and a report
	@$(VENV)/bin/groupella demo $(ARGS)

test: ## run all tests; ARGS="tests/groups -k p4" selects some
	@tools/venv $(VENV) requirements.lock requirements-ray.lock
	@$(ONE_THREAD) $(PY) $(PYTEST) $(ARGS)

test-fast: venv ## run the tests that are not marked slow (about 4 minutes on 2 cores)
	@$(ONE_THREAD) $(PY) $(PYTEST) -m "not slow" $(ARGS)

test-numpy2: ## run the tests in a second environment, with numpy 2
	@tools/venv .venv-numpy2 requirements-numpy2.lock
	@$(ONE_THREAD) .venv-numpy2/bin/python $(PYTEST) $(ARGS)

faults: ## run the campaign of faults: kills, full disks, damaged files (at most 15 minutes)
	@tools/venv $(VENV) requirements.lock requirements-ray.lock
	@$(ONE_THREAD) timeout 900 $(PY) -m pytest -n 0 -m "faults or not faults" tests/faults $(ARGS)

lint: venv ## check style (ruff), and that imports, pyproject.toml and the locks agree
	@$(PY) -m ruff check $(SOURCES)
	@$(PY) -m ruff format --check $(SOURCES)
	@$(PY) tools/lock check

format: venv ## format the code and apply ruff's fixes
	@$(PY) -m ruff check --fix $(SOURCES)
	@$(PY) -m ruff format $(SOURCES)

types: venv ## check types (mypy --strict) of the installed package
	@tools/types $(PY) $(ARGS)

bench: ## run the benchmarks against other libraries, one thread each
	@tools/venv .venv-bench requirements.lock requirements-bench.lock
	@$(ONE_THREAD) .venv-bench/bin/python -m benchmarks $(ARGS)

docs: ## build the documentation into build/docs
	@tools/venv $(VENV) requirements.lock requirements-docs.lock
	@$(PY) -m sphinx -q -W --keep-going -b html docs build/docs $(ARGS)
	@echo "groupella: the documentation is in build/docs/index.html"

lock: ## resolve the lock files again after a change of dependencies (needs the network)
	@tools/venv $(VENV) requirements.lock
	@$(PY) tools/lock update $(ARGS)

clean: ## remove everything that these commands created
	rm -rf .venv .venv-* .venv*.log build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
