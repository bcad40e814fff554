# `make help` lists the targets. Nothing but Python 3.11+ and Java 17+ is assumed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# Extra arguments for the target's command: make demo ARGS=--keep, make test ARGS="-k planner"
ARGS   ?=
# Tests run in this many processes (0: in pytest's own), a file in one, long files first
# (tests/support/distribution.py)
JOBS   ?= 0
FAST   := tests/contract tests/planner tests/service tests/runtime
# Where pipelines run as a whole, and pages in a browser (PIPELINES in tests/conftest.py)
PIPELINES := tests/e2e tests/cluster tests/sql tests/support/combined tests/runtime/replays \
	tests/service/pages tests/client/cli/test_up.py
SPREAD  = -n $(JOBS) --dist loadfile --no-loadscope-reorder

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup prerequisites class-archive test test-fast test-e2e test-benchmarks test-full check check-deploy docs docs-serve reference coverage release-check format golden dbt demo kafka postgres bench bench-planner bench-runtime bench-state bench-dppick bench-jaqpot bench-queries bench-cluster bench-pmjoin bench-ranking bench-nexmark bench-rivals bench-sql clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: prerequisites $(STAMP) class-archive ## create .venv and install the pinned dependencies (idempotent)

prerequisites:
	@sh scripts/check-prerequisites.sh $(PYTHON)

# Order-only: the check's being phony must not make the stamp look old. Packages of an interrupted
# installation are incomplete: without the stamp, it begins anew.
$(STAMP): pyproject.toml constraints.txt | prerequisites
	@echo "Installing into $(VENV) (a few minutes the first time)"
	@test -e $@ && $(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --clear $(VENV)
	@rm -f $@
	@$(BIN)/python -m pip install -qq --no-input -c constraints.txt -e ".[all,dev,bench,docs]" </dev/null
	@echo "Compiling the runtime's kernels"
	@$(BIN)/python -m anabranch_runtime.index.warming
	@$(BIN)/python -m anabranch_runtime.expressions.functions.json_scan
	@$(BIN)/python -m anabranch_runtime.sources.files.csv
	@$(BIN)/python -m anabranch_runtime.tables.table
	@touch $@

# Each time: another Java needs another archive, and the cache that has it may have been emptied.
class-archive: $(STAMP)
	@$(BIN)/python -m anabranch_runtime.spark.make_class_archive >$(VENV)/class-archive.log 2>&1 </dev/null \
		|| echo "No archive of Spark's classes (see $(VENV)/class-archive.log): starts take longer"

test-fast test-benchmarks: JOBS = 2
# Hundreds of processes import the packages, and each would compile them again.
test test-fast test-e2e test-benchmarks test-full: export PYTHONDONTWRITEBYTECODE :=
# One order of sets per run: the same seed makes the same example. The full run varies it by day.
test test-fast test-e2e test-benchmarks coverage: export PYTHONHASHSEED ?= 0
test-full: export PYTHONHASHSEED ?= $(shell date +%j | sed 's/^0*//')
# Half of the time tests wait for processes that they have started.
test test-e2e: JOBS = 3
test: setup ## run the tests, but for slow ones, long ones of pipelines and pages, and benchmarks/
	@$(BIN)/python -m pytest $(SPREAD) -m "not slow and not e2e" --ignore=benchmarks \
		--ignore=tests/benchmarks $(ARGS) </dev/null

test-e2e: setup ## run long tests of whole pipelines and pages: the tour, examples, random runs
	@$(BIN)/python -m pytest $(SPREAD) -m "e2e and not slow" $(PIPELINES) $(ARGS) </dev/null

test-benchmarks: setup ## run the tests of benchmarks/, but for the slow ones
	@$(BIN)/python -m pytest $(SPREAD) -m "not slow" benchmarks tests/benchmarks $(ARGS) </dev/null

test-fast: setup ## run the tests of single modules that start nothing (a minute)
	@$(BIN)/python -m pytest $(SPREAD) -m fast $(FAST) $(ARGS) </dev/null

# Hours; CONTRIBUTING.md has the parts. ARGS="tests/runtime", ARGS="-k many_runs" run some of it.
test-full: setup ## run every test, with many more random examples (hours)
	@$(BIN)/python -m pytest $(SPREAD) --hypothesis-profile deep -o console_output_style=count \
		--durations=30 $(ARGS) </dev/null

# The floor is a measured figure, rounded down.
coverage: setup ## measure the coverage of planner and contract by fast tests; below 88 % it fails
	@$(BIN)/python -m pytest -q -m "fast and not slow" tests/contract tests/planner contract planner \
		--cov=anabranch_contract --cov=anabranch_planner --cov-branch --cov-report=term:skip-covered \
		--cov-fail-under=88 $(ARGS) </dev/null

release-check: setup ## compare version, tag and changelog, build and run the wheel (ARGS="--tag v0.1.0")
	@$(BIN)/python scripts/release_check.py $(ARGS)

check: setup docs ## lint, formatting, types, import contracts, and the site
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy --strict
	@$(BIN)/lint-imports --no-logo

# A page outside the navigation, a broken link or a missing anchor fails (not so with --quiet, which
# drops the warnings).
docs: setup ## build the site into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: setup ## show the site while pages change (ARGS="-a 127.0.0.1:8001")
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve $(ARGS)

# Linters of their own environment: nothing else needs them, and they are large.
.venv-deploy/.installed: deploy/requirements.txt constraints.txt
	@$(PYTHON) -m venv .venv-deploy
	@.venv-deploy/bin/python -m pip install -qq --no-input -c constraints.txt -r deploy/requirements.txt </dev/null
	@touch $@

check-deploy: .venv-deploy/.installed ## lint the chart, the manifests and the Dockerfile of deploy/
	@.venv-deploy/bin/python deploy/check.py

format: setup ## format the code and apply the safe fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

reference: setup ## renew the pages of docs/ that are made from the code (REST, CLI, settings, errors)
	@$(BIN)/python -m scripts.reference

golden: setup ## renew the golden texts of the planner's passes (review them as a diff)
	@$(BIN)/python -m tests.planner.golden_passes

kafka: setup ## run a Kafka broker on port 9092 (Maven fetches 40 MB into .kafka/; ARGS="--port 9192")
	@$(BIN)/python -m scripts.kafka $(ARGS)

postgres: setup ## run a PostgreSQL server on port 5432 (of Debian's package; ARGS="--port 5433")
	@$(BIN)/python -m scripts.postgres $(ARGS)

# dbt in an environment of its own: its pins are not ours.
.venv-dbt/.installed: client/dbt_anabranch/requirements.txt constraints.txt
	@$(PYTHON) -m venv .venv-dbt
	@.venv-dbt/bin/python -m pip install -qq --no-input -r client/dbt_anabranch/requirements.txt </dev/null
	@touch $@

dbt: .venv-dbt/.installed ## install dbt for the test of the adapter (tests/e2e/test_dbt.py)

demo: setup ## five TPC-H queries, planned jointly, run on Spark and checked (ARGS=--keep)
	@$(BIN)/anabranch demo $(ARGS)

# A benchmark prints its line when everything has been measured and checked, else nothing.
bench: setup ## measure throughput and planning, write docs/benchmarks.md (ARGS: throughput's)
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.throughput --json $(ARGS) >> docs/benchmarks/throughput.jsonl
	@$(BIN)/python -m benchmarks.planner --json >> docs/benchmarks/planner.jsonl
	@$(BIN)/python -m benchmarks.report

# Hours on a small machine; ARGS="--seeds 3 --limit 10" or ARGS="--only targets" take minutes.
bench-planner: setup ## measure planning only, rewrite docs/benchmarks.md (ARGS: the planner's)
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.planner --json $(ARGS) >> docs/benchmarks/planner.jsonl
	@$(BIN)/python -m benchmarks.report

# An hour on a small machine; ARGS="--only sharing latency" takes some of it. For the options of one,
# run its module: python -m benchmarks.runtime.sharing --help
bench-runtime: setup ## measure the runtime, write docs/benchmarks-runtime.md (ARGS: --only NAMES)
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.runtime --json $(ARGS) >> docs/benchmarks/runtime.jsonl
	@$(BIN)/python -m benchmarks.runtime.report

# Half an hour on a small machine, and privileges for caps on memory; writes TPC-DS data below TMPDIR.
bench-state: setup ## measure state backends and UMJoin's experiments, write docs/benchmarks-state.md
	@mkdir -p docs/benchmarks
	@for part in operations amplification caps budgets crossover sensitivity; do \
		$(BIN)/python -m benchmarks.state.$$part --json >> docs/benchmarks/state.jsonl || exit 1; \
	done
	@$(BIN)/python -m benchmarks.state.report

# A quarter of an hour on a small machine; ARGS="--only drifting --seeds 1" takes some of it.
bench-dppick: setup ## measure probe orders chosen at run time, write docs/benchmarks-dppick.md
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.dppick --json $(ARGS) >> docs/benchmarks/dppick.jsonl
	@$(BIN)/python -m benchmarks.dppick --report

# Half an hour on a small machine, most of it for live runs; each part can be run by itself.
bench-jaqpot: setup ## measure and simulate limited CPU, write docs/benchmarks-jaqpot.md (ARGS: overload's)
	@mkdir -p docs/benchmarks
	@for part in simulation forests budgets cost; do \
		$(BIN)/python -m benchmarks.papers jaqpot $$part --json >> docs/benchmarks/jaqpot.jsonl || exit 1; \
	done
	@for workload in selective results tpch; do \
		$(BIN)/python -m benchmarks.papers jaqpot overload --json --workload $$workload $(ARGS) \
			>> docs/benchmarks/jaqpot.jsonl || exit 1; \
	done
	@$(BIN)/python -m benchmarks.papers jaqpot report

# Three quarters of an hour on a small machine, most of it for live runs. Half an hour of few queries
# is not part of it: python -m benchmarks.queries.churn --json --steady-minutes 30
bench-queries: setup ## measure many queries, write docs/benchmarks-queries.md
	@mkdir -p docs/benchmarks
	@for part in registration epochs batches activation live churn \
		"live --queries 10000 --streams 100 --rate 2000 --seconds 60"; do \
		$(BIN)/python -m benchmarks.queries.$$part --json >> docs/benchmarks/queries.jsonl || exit 1; \
	done
	@$(BIN)/python -m benchmarks.queries.report

bench-cluster: setup ## measure hosts that share nothing, write docs/benchmarks-cluster.md
	@mkdir -p docs/benchmarks
	@for part in hosts changes traffic media meeting; do \
		$(BIN)/python -m benchmarks.cluster.$$part --json >> docs/benchmarks/cluster.jsonl || exit 1; \
	done
	@$(BIN)/python -m benchmarks.cluster.report

bench-pmjoin: setup ## simulate placements, measure skew, write docs/benchmarks-pmjoin.md
	@mkdir -p docs/benchmarks
	@for part in simulation skew defaults partial looking_ahead hot_keys; do \
		$(BIN)/python -m benchmarks.pmjoin.$$part --json >> docs/benchmarks/pmjoin.jsonl || exit 1; \
	done
	@$(BIN)/python -m benchmarks.pmjoin.report

bench-ranking: setup ## measure whether prices rank plans as CPU does, write docs/benchmarks-ranking.md
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.cost_constants --json >> docs/benchmarks/ranking.jsonl
	@$(BIN)/python -m benchmarks.ranking.plans --json $(ARGS) >> docs/benchmarks/ranking.jsonl
	@$(BIN)/python -m benchmarks.ranking.report

bench-nexmark: setup ## check and measure Nexmark's queries, write docs/benchmarks-nexmark.md
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.nexmark exact --json --seeds 1-3 >> docs/benchmarks/nexmark.jsonl
	@$(BIN)/python -m benchmarks.nexmark --json $(ARGS) >> docs/benchmarks/nexmark.jsonl
	@$(BIN)/python -m benchmarks.nexmark report

# Half an hour on a small machine, 600 MB of downloads, and Maven; ARGS: of Nexmark's joins.
bench-rivals: setup ## measure joins here, in Flink, Pathway, Spark and DuckDB, write docs/benchmarks-rivals.md
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.rivals install flink pathway
	@$(BIN)/python -m benchmarks.rivals tpch --json >> docs/benchmarks/rivals.jsonl
	@$(BIN)/python -m benchmarks.rivals rules --json >> docs/benchmarks/rivals.jsonl
	@$(BIN)/python -m benchmarks.rivals nexmark --json --singles none $(ARGS) \
		>> docs/benchmarks/nexmark.jsonl
	@$(BIN)/python -m benchmarks.rivals report
	@$(BIN)/python -m benchmarks.nexmark report

bench-sql: setup ## measure filters with functions, write docs/benchmarks-sql.md (ARGS: the filters')
	@mkdir -p docs/benchmarks
	@$(BIN)/python -m benchmarks.sql.filters --json $(ARGS) >> docs/benchmarks/sql.jsonl
	@$(BIN)/python -m benchmarks.sql.report

clean: ## remove everything that make created
	rm -rf $(VENV) .venv-deploy .venv-dbt .rivals build dist .hypothesis .import_linter_cache
	find . \( -name __pycache__ -o -name '.*_cache' \) -type d -prune -exec rm -rf {} +
