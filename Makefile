# Every target sets itself up: a clean checkout needs Python 3.11 or newer and the package index, nothing else.
# `tools/install.py` installs what a target needs, and only when something that decides it has changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := @$(PYTHON) tools/install.py
# The compilers of the kernels, where tools/install.py puts them.
DIST := dist
BUILD_TOOLS := $(CURDIR)/.cache/build-tools

# Extras of pyproject.toml by purpose.
FOR_TESTS := test spark capture pipelines otel
FOR_LINT := $(FOR_TESTS) lint
FOR_DOCS := test docs
EVERYTHING := $(FOR_TESTS) lint docs

# Files of one suite share nodes and virtual machines, so that whole files go to a worker. There are more workers than
# cores: tests that start programs wait for them most of the time. Those of `make test-rest` start several each.
# tests/conftest.py orders the files: xdist would start those with few tests last, which are the longest.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
test: WORKERS := 4
test-rest: WORKERS := 3

# Compiled modules halve the time to start a node; an environment that forbids them would slow every test.
unexport PYTHONDONTWRITEBYTECODE

# The theme's notice about its successor is no news to a reader of the build.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup install for-run for-tests for-lint for-docs for-everything run wheel test test-rest test-all foreign js-clients java-clients go-clients rust-clients period-clients axe kafka-jars keycloak lint format bench torture spark-versions browser prometheus docs changelog clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: for-everything ## create .venv with everything that the other targets need

install: for-run ## create .venv with the package alone; EXTRAS="capture otel" adds extras
for-run:
	$(INSTALL) $(EXTRAS)
for-tests:
	$(INSTALL) $(FOR_TESTS)
for-lint:
	$(INSTALL) $(FOR_LINT)
for-docs:
	$(INSTALL) $(FOR_DOCS)
for-everything:
	$(INSTALL) $(EVERYTHING)

run: for-run ## start a node on the default ports; ARGS="--as basic" adds flags
	@exec $(BIN)/hubmere up $(ARGS)

wheel: for-run ## build a wheel with the compiled kernels into dist/
	@rm -rf build/lib* build/bdist*
	@PYTHONPATH=$(BUILD_TOOLS) $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(DIST) .
	@ls $(DIST)/*.whl

test: for-tests ## run every test that needs Python and Java alone; ARGS="-k name" narrows them
	$(PYTEST) -m "not full" $(ARGS)

test-rest: for-everything foreign ## run the tests that `make test` leaves out
	$(PYTEST) -m full $(ARGS)

test-all: test test-rest ## run every test: other languages' clients, the browser, clusters and short torture as well

foreign: for-tests ## fetch the foreign clients and the browser that tests use; those that cannot be fetched are skipped
	-@$(MAKE) --no-print-directory browser
	-@$(MAKE) --no-print-directory prometheus
	-@$(MAKE) --no-print-directory js-clients
	-@$(MAKE) --no-print-directory axe
	-@$(MAKE) --no-print-directory java-clients
	-@$(MAKE) --no-print-directory kafka-jars
	-@$(MAKE) --no-print-directory keycloak
	-@$(MAKE) --no-print-directory go-clients
	-@$(MAKE) --no-print-directory rust-clients
	-@$(MAKE) --no-print-directory period-clients

# Foreign clients for tests/conformance, into .cache; where they cannot be had, their tests are skipped with the reason.
js-clients java-clients go-clients rust-clients period-clients: for-tests
	@$(BIN)/python tests/conformance/clients.py $(@:-clients=)

axe: for-tests ## fetch axe-core, by which the portal's pages are checked for accessibility
	@$(BIN)/python tests/conformance/clients.py axe

keycloak: for-tests ## fetch Keycloak, the identity provider that tests sign in with
	@$(BIN)/python tests/conformance/clients.py keycloak

kafka-jars: for-tests ## fetch Apache Kafka: its broker, tools, clients, Connect and Streams, for tests and benchmarks
	@$(BIN)/python tests/conformance/clients.py kafka

# The portal's tests drive a real browser; without one they are left out and say so.
browser: ## install Chromium by apt, if it is missing and we are root
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
		echo "no Chromium: tests of the portal in a browser are left out"

# promtool checks metrics, rules and the dashboard; without it these tests are skipped and say so.
prometheus: ## install Prometheus and promtool by apt, if they are missing and we are root
	@command -v promtool >/dev/null && command -v prometheus >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus >/dev/null; } || \
		echo "no Prometheus: tests of metrics with promtool are left out"

lint: for-lint ## check format, rules, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: for-lint ## format the source
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: for-tests ## run the benchmarks, with physical limits and other brokers for comparison
	@for bench in $(filter-out bench/__init__.py,$(wildcard bench/*.py)); do \
		name=$$(basename $$bench .py); echo "== $$name"; $(BIN)/python -m bench.$$name || exit 1; done

torture: for-tests kafka-jars ## crash runs and attacks that take minutes, including MirrorMaker with a real Kafka
	$(BIN)/python -m pytest tests/torture tests/cluster tests/attack $(addprefix tests/pipeline/,test_crash.py test_cluster.py \
		test_cold_crash.py test_history_crash.py test_on_gateways.py test_project_crash.py test_sink_crash.py capture/test_power_cut.py \
		test_project.py) --torture $(ARGS)

spark-versions: for-tests ## run the Spark source on Spark 4.0, 4.1 and 4.2, which are fetched into .cache/spark
	@$(BIN)/python tests/pipeline/spark_versions.py $(ARGS)

docs: for-docs ## build the manual into site/
	$(BIN)/python docs/generate.py
	$(BIN)/python tests/conformance/report.py
	$(BIN)/mkdocs build --strict --quiet

changelog: ## render CHANGELOG.md from the fragments in changelog.d
	@$(PYTHON) tools/changelog.py

clean: ## remove the files that other targets have created, but no data folder
	rm -rf $(VENV) build dist site htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench docs \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	find src -name '*.so' -delete
