# All tasks of people and CI; `make` lists them.

PYTHON ?= python3
PORT ?= 8000
DATA_DIR ?= var
export PORT DATA_DIR
# Without bytecode every process compiles all its modules again: test runs take twice as long.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
UV := $(or $(shell uv --version >/dev/null 2>&1 && command -v uv),.tools/bin/uv)
# Node comes from its wheel, so the machine needs none; only our own bin folder goes before it.
NPM := PATH="$(CURDIR)/$(BIN):$$PATH" npm
# Paths of tests; empty for all, in phases (tests/gate).
TESTS ?=
PHASES ?= unit,engine,live,kills
# Of a phase that runs alone. Tests wait for other processes: three workers keep two cores busy.
WORKERS ?= 3

.DEFAULT_GOAL := help
.PHONY: $(shell grep -oE '^[a-z-]+:' $(firstword $(MAKEFILE_LIST)) | tr -d :)

help: ## List the targets
	@echo "make up [PORT=8000] [DATA_DIR=var]"
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

up: install ## Install and run the whole platform; Ctrl-C stops it (REGIONS=us,eu for both)
	@exec $(BIN)/python -m config.supervisor --companion $$PPID $(if $(REGIONS),--regions $(REGIONS))

install: .venv/installed static/vendor/.installed ## Install what `make up` needs

install-dev: install .venv/installed-dev ## Install what the tests and checks need as well

# The order of tests is shuffled with a fixed seed, so that a failing run fails again.
ORDER ?= 20261122
test: install-dev ## Run the tests (TESTS=path, PHASES=unit, WORKERS=3, ORDER=any number: another order)
	@$(BIN)/python -m tests.gate --workers $(WORKERS) --order $(ORDER) --phases $(PHASES) $(GATE) $(TESTS)

test-fast: install-dev ## Unit and API tests only, without a live platform or browser
	@$(BIN)/python -m tests.gate --workers $(WORKERS) --order $(ORDER) --phases unit --fast

migrations: install-dev ## Create the migrations that changed models need
	@$(BIN)/python manage.py makemigrations

test-lifecycle: install-dev ## Long tests of starting, stopping and recovering
	@$(BIN)/python -m pytest tests/lifecycle -m "lifecycle or slow"

test-long: install-dev ## Long tests: full sizes, all queries, both regions, all themes
	@$(BIN)/python -m pytest tests/trace_store tests/tracing tests/ingest tests/browser tests/rate_limits tests/deployments tests/experiments tests/chaos tests/malicious_agent tests/sandbox tests/security tests/regions -m slow --numprocesses $(WORKERS) --dist loadgroup
	@$(COMPATIBILITY)

# The platform starts once for each set of clients; CLIENTS=2026-08 runs one of them.
COMPATIBILITY = $(BIN)/python -m tests.compatibility $(if $(CLIENTS),--clients $(CLIENTS)) -- \
	--numprocesses $(WORKERS) --dist loadgroup
test-compatibility: install-dev ## The public clients' suites with the newest and with older clients
	@$(COMPATIBILITY)

# On a machine without GitHub: FIRST_TRACE="--mirrors FOLDER".
test-first-trace: install-dev ## Seconds from /start to the first trace of three public repositories
	@$(BIN)/python -m tests.first_trace $(FIRST_TRACE)

test-nightly: install-dev ## All that `make test` leaves out, for hours; report in var/nightly (ONLY=fuzz)
	@$(BIN)/python -m tests.gate.nightly var/nightly --only "$(ONLY)"

check: install-dev ## What CI checks: lint, types, layers, vocabulary, system checks, migrations, front end
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose.linter
	$(BIN)/python -m tests.references
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/djlint templates --check --quiet
	$(NPM) run --silent types
	$(NPM) run --silent lint

format: install-dev ## Format and fix the code
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	-$(BIN)/djlint templates --reformat --quiet
	$(NPM) run --silent format

bench: install-dev ## Measure the platform and its installed peers in turn (BENCH="--rounds 3")
	@$(BIN)/python -m tests.bench.agent $(BENCH)

bench-crowd: install-dev ## 500 sleeping runs, 1,000 open streams, cold starts of a graph host
	@$(BIN)/python -m tests.bench.crowd $(BENCH)

bench-datasets: install-dev ## Uploads, lists, comparisons and prompts at a million examples (BENCH="--examples 100000")
	@$(BIN)/python -m tests.bench.datasets $(BENCH)

bench-queries: install-dev ## Seed the running platform and time its queries (RUNS=5000000)
	@$(BIN)/python -m tests.bench.queries --runs $(RUNS) --days $(DAYS) $(BENCH)

RUNS ?= 1000000
DAYS ?= 14
seed: install ## Fill the first workspace of the running platform with traces (RUNS=1000000, DAYS=14)
	@$(BIN)/python manage.py seed --runs $(RUNS) --days $(DAYS)

bench-pages: install-dev ## First bytes, paints and weights of pages after `make seed` (BENCH="--key slip_...")
	@$(BIN)/python -m tests.bench.pages $(BENCH)

bench-traces: install-dev ## Measure ingest against the floor and the peers (BENCH_DIR=folder of its scripts)
	@$(BIN)/python -m tests.bench.traces $(BENCH)

bench-limits: install-dev ## CPU cost per request of key lookup and rate limit (BENCH="--requests 20000")
	@$(BIN)/python -m tests.bench.limits $(BENCH)

bench-network: install-dev ## Cost of the agents' network namespace: runs, cold starts, builds (BENCH="--runs 200")
	@$(BIN)/python -m tests.bench.network $(BENCH)

bench-protocols: install-dev ## What A2A and MCP cost next to a bare run (BENCH="--rounds 300")
	@$(BIN)/python -m tests.bench.protocols $(BENCH)

screenshots: install-dev ## Take screenshots of every page of the running platform
	@$(BIN)/python -m tests.browser.screenshots

test-crash: install-dev ## kill -9 of each process during a run
	@$(BIN)/python -m pytest tests/crash -s -m "lifecycle or slow"

test-crash-ingest: install-dev ## kill -9 of each process during ingest, ten times each
	@$(BIN)/python -m pytest tests/crash/test_ingest.py -s -m "lifecycle or slow"

ROUNDS ?= 10
test-crash-experiments: install-dev ## kill -9 of web and worker during uploads and experiments (ROUNDS=10)
	@ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/crash/test_experiments.py -s -m slow

SECONDS ?= 600
test-chaos: install-dev ## Kill processes at random under load (SECONDS=600, SEED=any word)
	@$(BIN)/python -m tests.chaos $(SECONDS) $(SEED)

ATTACKS ?= unread,bodies,pattern,frames,events,sleepers,gzips,attachments,exports,deployments
test-starvation: SECONDS = 60
test-starvation: install-dev ## One organization attacks another's service, each way for a minute (SECONDS=60, ATTACKS=gzips,events)
	@$(BIN)/python -m tests.starvation --seconds $(SECONDS) --attacks $(ATTACKS)

# Without AGENT and KEY, a deployment of tests/conformance/project, the run starts a platform.
test-conformance: install-dev ## The official suites of MCP and A2A (SUITES="--kit folder --kit-python path --mcp-sdk folder")
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m tests.conformance $(if $(AGENT),--agent $(AGENT) --key $(KEY)) $(SUITES)

EXAMPLES ?= 100
FUZZED = $(shell grep -rl "tests.examples import" tests --include='test_*.py')
fuzz: install-dev ## Fuzz every documented route and request body (EXAMPLES=100 each)
	@EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest $(FUZZED) -q -m "not slow" --timeout 1800 --numprocesses $(WORKERS) --dist loadgroup

lock: | .venv/bin/python ## Lock the dependencies of pyproject.toml (UPGRADE=--upgrade for newer versions)
	$(UV) pip compile $(LOCK) $(UPGRADE) pyproject.toml --group dev \
		--output-file requirements-dev.lock
	$(UV) pip compile $(LOCK) --constraint requirements-dev.lock pyproject.toml \
		--output-file requirements.lock

LOCK := --quiet --universal --generate-hashes --python-version 3.11 \
	--no-header --no-emit-index-url --no-emit-find-links

clean: ## Remove everything `make` installed; data folders stay
	rm -rf .venv .tools node_modules static/vendor .mypy_cache .ruff_cache .pytest_cache

# uv from pip, in a folder of its own: `--target` also works where the system's Python is managed.
.tools/bin/uv:
	@echo "  Fetching uv"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target .tools uv

.venv/bin/python: | $(filter .tools/bin/uv,$(UV))
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv

.venv/installed: requirements.lock | .venv/bin/python
	@echo "  Installing Python packages"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	@touch $@

.venv/installed-dev: requirements-dev.lock | .venv/installed
	@echo "  Installing Python packages for development"
	@$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements-dev.lock
	@touch $@

node_modules/.installed: package-lock.json | .venv/installed
	@echo "  Installing front-end packages"
	@$(NPM) ci --silent --prefer-offline --ignore-scripts --no-audit --no-fund
	@touch $@

static/vendor/.installed: node_modules/.installed config/frontend/vendor.mjs
	@$(NPM) run --silent vendor
	@touch $@
