# `make help` lists the targets. Each one that needs the environment sets it up first.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
# Where it is set, every process that a test starts compiles Weir anew before it begins.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.setup-complete
SPARK_STAMP := $(VENV)/.setup-spark-complete
PROTO := $(wildcard src/weir/format/proto/*.proto)
# Processes that pytest spreads the tests over: twice as many as cores, since a third of their time is waiting.
WORKERS ?= 4
# What the tests are run by.
PYTEST ?= $(PY) -m pytest
# Histories that `make simulate` runs.
SEEDS ?= 2000
# Values of each type that `make conformance` draws.
VALUES ?= 2000000
# Whether `make test-spark` runs the long tests too.
LONG ?= yes
NOT_LONG := $(if $(filter no,$(LONG)), and not long)
# Rounds of killing, and of a failing disk, that `make faults` plays.
ROUNDS ?= 200
# How often `make power-cuts` cuts the power.
CUTS ?= 100

# The stamps name the directory they were written in: a checkout that was copied or moved carries an
# environment that still points at the old place, and is set up again.
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(STAMP)
endif
ifneq ($(shell cat $(SPARK_STAMP) 2>/dev/null),$(CURDIR))
.PHONY: $(SPARK_STAMP)
endif

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done

.PHONY: setup
setup: $(STAMP) ## Build .venv from the lock; again only when the lock or pyproject.toml has changed

$(STAMP): pyproject.toml requirements/build.lock requirements/dev.lock tools/setup.sh tools/ensure_java.sh
	@PYTHON="$(PYTHON)" tools/setup.sh dev
	@echo "$(CURDIR)" > $@

.PHONY: setup-spark
setup-spark: $(SPARK_STAMP) ## Add Spark to .venv (a download of 450 MB)

$(SPARK_STAMP): $(STAMP) requirements/spark.lock
	@PYTHON="$(PYTHON)" tools/setup.sh spark
	@echo "$(CURDIR)" > $@

.PHONY: demo
demo: setup-spark ## Stream a year of real flights into a table on Spark, kill the driver, check every row
	@$(VENV)/bin/weir demo $(ARGS)

.PHONY: demo-events
demo-events: setup ## Stream a year of real flights into an event store, kill the writer, compare every answer with pandas
	@$(PY) -m weir.demo.event_store $(ARGS)

.PHONY: demo-service
demo-service: setup ## Write 20,000 real texts with vectors to two processes of the service, kill them, check every answer
	@$(PY) -m weir.demo.service $(ARGS)

.PHONY: test
test: lint types contracts ## Run every check but those on Spark and the long tests
	@tools/in_memory.sh $(PYTEST) -n $(WORKERS) --dist worksteal -m "not spark and not long" $(ARGS)

.PHONY: test-long
test-long: setup ## Run the tests that `make test` leaves out: more seeds, more rounds, all combinations
	@HYPOTHESIS_PROFILE=long tools/in_memory.sh $(PY) -m pytest -n $(WORKERS) --dist worksteal \
		-m "(long or hypothesis) and not spark" $(ARGS)

.PHONY: test-spark
test-spark: setup-spark ## Run the tests on Spark: local, on a cluster of processes, through Connect; LONG=no is shorter
	@SPARK_MODE=local $(PYTEST) tests/spark -m "spark$(NOT_LONG)" $(ARGS)
	@SPARK_MODE=cluster $(PYTEST) tests/spark -m "everywhere$(NOT_LONG)" $(ARGS)
	@SPARK_MODE=connect $(PYTEST) tests/spark -m "everywhere$(NOT_LONG)" $(ARGS)

.PHONY: test-lancedb
test-lancedb: setup ## Run the tests beside LanceDB, in an environment of its own, .venv-lancedb
	@tools/setup_lancedb.sh
	@.venv-lancedb/bin/python -m pytest tests/lancedb $(ARGS)

.PHONY: docs
docs: ## Build the documentation as a site, build/site, in an environment of its own, .venv-docs
	@tools/setup_docs.sh
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet $(ARGS)

.PHONY: simulate
simulate: setup ## Run SEEDS simulated histories of a table and check every invariant; SEED=n shows one
	@$(PY) -m tests.simulation --workers $(WORKERS) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))

.PHONY: conformance
conformance: setup ## Play SEEDS random histories beside the library, SEED=n one; compare VALUES shard values
	@$(PY) -m tests.conformance.differential --workers $(WORKERS) $(if $(SEED),--seed $(SEED),--seeds $(SEEDS))
	@CONFORMANCE_VALUES=$(VALUES) $(PY) -m pytest -n $(WORKERS) tests/conformance/test_sharding.py $(ARGS)

.PHONY: faults
faults: setup ## Kill processes for ROUNDS rounds, have disk and object store fail for as many, check every row
	@$(PY) -m tests.faults --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

.PHONY: power-cuts
power-cuts: setup ## Cut the power of a disk CUTS times under everything that writes, and check every row (as root)
	@$(PY) -m tests.faults --cuts $(CUTS) $(if $(SEED),--seed $(SEED))

.PHONY: lint
lint: setup ## Check style and formatting
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .

.PHONY: types
types: setup-spark ## Check types
	@$(PY) -m mypy

.PHONY: contracts
contracts: setup-spark ## Check which package imports which
	@$(PY) -c 'from importlinter.cli import lint_imports_command as run; run()'

.PHONY: format
format: setup ## Sort imports, apply safe fixes and format
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

.PHONY: bench
bench: setup ## Compare Weir with pylance's own MemWAL writer and readers
	@$(PY) -m benchmarks $(ARGS)

.PHONY: proto
proto: setup ## Generate the protobuf messages from their .proto
	@$(PY) -m grpc_tools.protoc -I src --python_out=src --pyi_out=src $(PROTO:src/%=%)

.PHONY: lock
lock: ## Write the lock files anew; ARGS=--upgrade takes newer versions
	@tools/lock.sh $(ARGS)

.PHONY: clean
clean: ## Remove caches and build outputs (not .venv)
	@rm -rf .venv-lock .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist
	@find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
