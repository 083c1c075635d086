# Every target sets itself up: a clean checkout needs Python 3.11 or newer and the package index, nothing else.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CONSTRAINTS := $(wildcard constraints.txt)
# What the compiled kernels are made from: a change means a new build.
KERNELS := $(wildcard setup.py src/hubmere/records/kernels/*.py src/hubmere/pipeline/_decode.pyx src/hubmere/records/_validate.pyx)

# Compiled modules halve the time to start a node; an environment that forbids them would slow every test.
unexport PYTHONDONTWRITEBYTECODE

# The theme's notice about its successor is no news to a reader of the build.
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup run test foreign js-clients java-clients go-clients rust-clients period-clients kafka-jars lint format bench torture spark-versions browser docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## make .venv with everything that the other targets need

# Installs only when something that decides what is installed has changed.
$(STAMP): pyproject.toml $(CONSTRAINTS) $(KERNELS)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS:%=-c %) -e '.[test,spark,capture,pipelines,otel,lint,docs]'
	@touch $@

run: $(STAMP) ## start a node on the default ports; ARGS="--as basic" adds flags
	@exec $(BIN)/hubmere up $(ARGS)

test: $(STAMP) ## run every test; ARGS="-k name" narrows them
	@$(MAKE) --no-print-directory foreign
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

foreign: $(STAMP) ## fetch the foreign clients and the browser that tests drive; what cannot be had is skipped
	-@$(MAKE) --no-print-directory browser
	-@$(MAKE) --no-print-directory js-clients
	-@$(MAKE) --no-print-directory java-clients
	-@$(MAKE) --no-print-directory kafka-jars
	-@$(MAKE) --no-print-directory go-clients
	-@$(MAKE) --no-print-directory rust-clients
	-@$(MAKE) --no-print-directory period-clients

# Foreign clients for tests/conformance, into .cache; where they cannot be had, their tests are skipped with the reason.
js-clients java-clients go-clients rust-clients period-clients: $(STAMP)
	@$(BIN)/python tests/conformance/clients.py $(@:-clients=)

kafka-jars: $(STAMP) ## fetch Apache Kafka: its broker, tools, clients, Connect and Streams, that tests and bench drive
	@$(BIN)/python tests/conformance/clients.py kafka

# The portal's tests drive a real browser; without one they are left out and say so.
browser: ## install Chromium by apt, if it is missing and we are root
	@command -v chromium chromium-browser google-chrome >/dev/null || { \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
		echo "no Chromium: tests of the portal in a browser are left out"

lint: $(STAMP) ## check format, rules, types and import contracts
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## put the source into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP) ## measure, beside physical limits and peers
	@for bench in $(filter-out bench/__init__.py,$(wildcard bench/*.py)); do \
		name=$$(basename $$bench .py); echo "== $$name"; $(BIN)/python -m bench.$$name || exit 1; done

torture: $(STAMP) kafka-jars ## crash runs and attacks that take minutes, MirrorMaker beside a real Kafka among them
	$(BIN)/python -m pytest tests/torture tests/cluster tests/attack $(addprefix tests/pipeline/,test_crash.py test_cluster.py \
		capture/test_power_cut.py test_project.py) --torture $(ARGS)

spark-versions: $(STAMP) ## run the Spark source on Spark 4.0, 4.1 and 4.2, which are fetched into .cache/spark
	@$(BIN)/python tests/pipeline/spark_versions.py $(ARGS)

docs: $(STAMP) ## build the manual into site/
	$(BIN)/python docs/generate.py
	$(BIN)/python tests/conformance/report.py
	$(BIN)/mkdocs build --strict --quiet

clean: ## remove everything that the other targets made, but no data folder
	rm -rf $(VENV) build dist site htmlcov .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests bench docs \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
	find src -name '*.so' -delete
