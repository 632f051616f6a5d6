# Steersman: everything a developer does, one word each. `make help` lists it.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
JOBS   ?=
ARGS   ?=

# Where the environment says not to keep bytecode, every process would compile every module it imports, again.
export PYTHONDONTWRITEBYTECODE :=

INSTALLED := $(VENV)/.installed
PACKAGE   := $(VENV)/.package
DOCUMENTED := $(VENV)/.docs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo check test coverage mutants bench chaos reloader fmt docs lint types programs packages lock chart clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(PACKAGE) ## create .venv with everything locked, and steersman itself

# uv installs in seconds what takes pip a minute; pip takes over where uv cannot reach the package index.
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
UV  := $(BIN)/uv pip install --quiet --python $(BIN)/python

$(BIN)/uv: requirements.lock
	@test -n "$(PYTHON)" || { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@awk '/^[^ ]/ { ours = /^uv==/ } ours' requirements.lock > $(VENV)/uv.lock
	$(PIP) --no-compile --require-hashes --requirement $(VENV)/uv.lock
	@touch $@

$(INSTALLED): requirements.lock $(BIN)/uv
	$(UV) --require-hashes --requirement requirements.lock || $(PIP) --require-hashes --requirement requirements.lock
	@touch $@

$(PACKAGE): pyproject.toml $(INSTALLED)
	$(UV) --no-deps --offline --no-build-isolation --editable .
	@touch $@

demo: setup ## show a session with the embedded API server (stays up on a terminal)
	@$(BIN)/steersman demo

# Types are checked beside the tests, and shown after them. Folders without a fast test are not collected. A quarter of a
# worker's time is waiting, so there is a worker more than there are cores.
FAST := -m "not steersman_real and not slow" --hypothesis-profile=quick --ignore=tests/browser --ignore=tests/chaos \
	--ignore=tests/conformance

check: lint ## everything that needs neither Go nor much time
	@$(BIN)/mypy > $(VENV)/types.txt 2>&1 & types=$$!; \
	$(BIN)/pytest -n $(or $(JOBS),$(shell $(PYTHON) -c 'import os; print(os.cpu_count() + 1)')) --dist worksteal $(FAST) \
		$(ARGS); tests=$$?; \
	wait $$types; types=$$?; cat $(VENV)/types.txt; exit $$((tests || types))

test: lint types docs programs packages ## everything; builds the real control plane once per machine
	$(BIN)/pytest -n $(or $(JOBS),auto) --dist worksteal $(ARGS)

coverage: lint types programs packages ## the same, and which lines and branches no test reaches
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n $(or $(JOBS),auto) --dist worksteal $(ARGS)
	$(BIN)/coverage combine --quiet && $(BIN)/coverage report

mutants: setup ## deliberate bugs, one at a time: at least 90 % must be noticed by the fast tests (resumes; ARGS=--help)
	$(BIN)/python -m tools.mutants $(ARGS)

# Where they cannot be built, the tests that need them are skipped; continuous integration fails here instead.
programs: setup
	@$(BIN)/steersman controlplane build controlplane kwok helm > /dev/null || test "$$CI" != true
	@$(BIN)/python -m tests.support.programs.crates > /dev/null || test "$$CI" != true
	@$(BIN)/python -m tests.support.programs.go_programs > /dev/null || test "$$CI" != true

# Debian's packages that tests run for real: named, prometheus, chromium. Only root can install them; without them their
# tests are skipped, and fail under CI=true.
DEBIAN := bind9 bind9-dnsutils iproute2 prometheus prometheus-alertmanager prometheus-node-exporter chromium
packages:
	@if command -v apt-get > /dev/null && [ "$$(id -u)" = 0 ] && ! dpkg -s $(DEBIAN) > /dev/null 2>&1; then \
		echo "installing $(DEBIAN)"; apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $(DEBIAN) > /dev/null; fi

lint: setup ## style, spelling, and which package may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/codespell *.md docs src examples
	$(BIN)/lint-imports

types: setup ## mypy: strict for the package, relaxed for tests
	$(BIN)/mypy

bench: programs ## measure; prints tables
	$(BIN)/python -m bench $(ARGS)

chaos: setup ## seeded schedules of user actions and faults against the operators; prints a report (ARGS=--help)
	$(BIN)/python -m tests.support.chaos $(ARGS)

reloader: setup ## Reloader's own end-to-end suites against --profile reloader; under an hour (ARGS=--help)
	$(BIN)/python -m tests.support.reloader_suite $(ARGS)

fmt: setup ## format, and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix --unsafe-fixes .

docs: $(DOCUMENTED) ## build the documentation into site/, and record the demo again when its story has changed
	$(BIN)/python docs/record.py
	$(BIN)/sphinx-build -W --keep-going --quiet docs site

$(DOCUMENTED): docs/requirements.lock $(PACKAGE)
	$(UV) --require-hashes --requirement docs/requirements.lock || $(PIP) --require-hashes --requirement docs/requirements.lock
	@touch $@

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

lock: setup ## choose versions again, within the ranges of pyproject.toml
	$(COMPILE) --upgrade --all-extras --group dev --output-file requirements.lock pyproject.toml
	$(COMPILE) --constraints requirements.lock --output-file image/requirements.lock pyproject.toml
	echo hatchling | $(COMPILE) --constraints requirements.lock --output-file image/build.lock -
	$(COMPILE) --upgrade --group docs --constraints requirements.lock --output-file docs/requirements.lock

chart: setup ## write what the chart takes from the package: rules, definitions, README
	$(BIN)/python tools/generate_chart.py

clean: ## remove what was made here (not the control plane, which is cached per user)
	rm -rf $(VENV) site dist .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .mutants
