# Every target sets up what it needs first: `make run` is all that a fresh machine takes.

# The first interpreter that is new enough; `make PYTHON=/path/to/python3 ...` takes another.
ifndef PYTHON
PYTHON := $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
endif

VENV := .venv
BIN := $(VENV)/bin
# Stamps: an install is done again when its lock or pyproject.toml is newer.
BASE := $(VENV)/.base
RECONCILE := $(VENV)/.reconcile
DEV := $(VENV)/.dev
# Where `make run` leaves its delivery logs for the report.
LOGS := build/delivery-logs
# The same of `make demo-cluster`.
CLUSTER_LOGS := build/cluster-delivery-logs
CHECKED := bridge cluster dedup tests
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# What Spark runs on; empty where there is none.
JAVA := $(shell command -v $${JAVA_HOME:+$$JAVA_HOME/bin/}java)
UV ?= uv
# Tests wait for other processes some of the time: more of them at a time than there are cores.
JOBS ?= 4
# Tests start hundreds of processes: each finds the modules compiled, even where the environment wants no such files.
unit quick: export PYTHONDONTWRITEBYTECODE =
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11

# Installs what is not there where that is possible, else names it: $(call needed,PROGRAM,PACKAGE,NAME).
# In runlevel 1 an installed package starts no service.
APT := RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq -y
define needed
@PATH="$$PATH:/usr/sbin"; command -v $(1) >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	{ $(APT) install $(2) >/dev/null 2>&1 || { $(APT) update && $(APT) install $(2); } >/dev/null; }; } || \
	{ echo "needed: $(3) (Debian and Ubuntu: apt install $(2))" >&2; exit 1; }
endef

.DEFAULT_GOAL := help
.PHONY: help setup run report wheel serve test lint quick unit coverage needs needs-kafka needs-proxies test-cluster-long test-crash test-hostile test-artemis-long test-filters-long test-kafka-long test-lines-long test-spark-long kafka-up kafka-down demo-kafka demo-cluster bench bench-reconcile format lock clean

help: ## says what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 17

setup: $(BASE) ## makes .venv with .venv/bin/core-bridge

run: $(BASE) ## relays real data through a cut and two kills, and proves that nothing is lost or doubled
	@rm -rf $(LOGS)
	@$(BIN)/core-bridge demo --logs $(LOGS) $(ARGS)
	@$(MAKE) --no-print-directory report

demo-cluster: $(BASE) ## `make run` over a cluster: a node joins, one is killed, one drains; readers and clients at all
	@rm -rf $(CLUSTER_LOGS)
	@$(BIN)/core-bridge demo --cluster --logs $(CLUSTER_LOGS) $(ARGS)
	@$(MAKE) --no-print-directory report LOGS=$(CLUSTER_LOGS)

# Installs Spark only now that the proof is there. Without Java it says what to install, which is no failure.
report: $(if $(JAVA),$(RECONCILE)) ## the second proof: Spark compares what both nodes of the last `make run` wrote down (needs Java)
	@test ! -d $(LOGS) || $(BIN)/core-bridge reconcile --logs $(LOGS)/* --output report $(if $(JAVA),,|| test $$? = 2)

# What an earlier build has left would be packed too.
wheel: $(BASE) ## builds dist/core_bridge-VERSION-py3-none-any.whl
	@rm -rf build/lib build/bdist.*
	@$(PIP_INSTALL:install=wheel) --no-deps --no-build-isolation --wheel-dir dist .

serve: $(BASE) ## starts a node with settings.toml
	@$(BIN)/core-bridge run --settings settings.toml

test: $(DEV) ## everything that must hold: lint, types, layers, tests
	@$(MAKE) --no-print-directory -j 2 lint unit

lint: $(DEV) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

quick: $(DEV) ## the tests that need no Java, brokers or processes, with fewer random examples
# Files are in memory where there is 1 GiB for them: else the tests wait for the disk for a sixth of the time.
	@memory=$$(test "$$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $$4 }')" -gt 1048576 2>/dev/null && echo /dev/shm); \
	TMPDIR=$${TMPDIR:-$$memory} HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-quick} \
		$(BIN)/pytest -q -n auto --dist worksteal -m "not processes" \
		tests/contracts tests/integration tests/property tests/unit $(ARGS)

unit: $(DEV) needs ## the tests
	@$(BIN)/python -m tests.kafka.cluster.distribution fetch
# The processes below find the tests compiled, their asserts rewritten; what cannot be collected they name themselves.
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true
	$(BIN)/$(MEASURED)pytest -p tests.sharing -n $(JOBS) -m "not artemis_long and not cluster_long and not crash and not hostile and not filters_long and not kafka_long and not lines_long and not spark_long" $(ARGS)

coverage: $(DEV) ## the tests, with branch coverage and its floor
	@$(BIN)/coverage erase
	@$(MAKE) --no-print-directory unit MEASURED="coverage run -m "
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

needs: needs-kafka needs-proxies ## what the tests take from the system
	$(call needed,openssl,openssl,the openssl program)
	$(call needed,chromium,chromium,Chromium to look at the report's page)

needs-proxies: ## the proxies that links go through in tests
	$(call needed,tinyproxy,tinyproxy,tinyproxy to open links through)
	$(call needed,microsocks,microsocks,microsocks to open links through)
	$(call needed,nginx,nginx,nginx in front of a node)
	$(call needed,haproxy,haproxy,HAProxy in front of a node)

needs-kafka: ## what Kafka takes from the system
	$(call needed,$${JAVA_HOME:+$$JAVA_HOME/bin/}java,default-jre-headless,Java 17 or newer to run Kafka)
	$(call needed,mvn,maven,Maven to fetch Kafka)

test-crash: $(DEV) ## 200 rounds of kills and cuts (`make test` does 4, and each named point), 50 of volumes that are filled, 600 of damaged journals
	$(BIN)/pytest -m crash $(ARGS)

test-cluster-long: $(DEV) ## clusters: chaos of five nodes with 100,000 messages, and of chains and rings; 500 random histories, twenty nodes
	$(BIN)/pytest -m cluster_long $(ARGS)

test-hostile: $(DEV) ## 100,000 cases of hostile peers and clients on a node, in any order, and 10,000 that leave in mid-body (`make test` does each kind)
	$(BIN)/pytest -m hostile $(ARGS)

test-artemis-long: $(DEV) needs-kafka ## queues, filters, bridges, IDs and clusters on real Artemis brokers and here, case by case
	$(BIN)/pytest -m artemis_long $(ARGS)

test-filters-long: $(DEV) needs-kafka ## 100,000 random conditions and 40,000 broken ones, here and at Artemis's own filter
	$(BIN)/pytest -m filters_long $(ARGS)

test-kafka-long: $(DEV) needs ## Kafka with 200,000 messages through kills, pauses and leader changes at both ends
	@$(BIN)/python -m tests.kafka.cluster.distribution fetch
	$(BIN)/pytest -m kafka_long $(ARGS)

# Rows wait for their lines nearly all of the time.
test-lines-long: $(DEV) needs ## node to node over lines of 16 to 1,000 kbit/s, far, lossy, cut, reset and swallowing: some two hours
	$(BIN)/pytest -n $(JOBS) -m lines_long tests/lines tests/kafka $(ARGS)

test-spark-long: $(DEV) needs ## Spark: reports of whole runs, kills while it follows, spark-submit
	$(BIN)/pytest -m spark_long $(ARGS)

kafka-up: $(DEV) needs-kafka ## two Kafka clusters to try things with (make kafka-up ARGS="PORT_A PORT_B" takes other ports)
	@$(BIN)/python -m tests.kafka.cluster.two_clusters up $(ARGS)

kafka-down: $(DEV) ## ends them and takes their data away
	@$(BIN)/python -m tests.kafka.cluster.two_clusters down

# Clusters that ran before go on running. The last line of stdout is the proof.
demo-kafka: $(DEV) needs-kafka ## `make run` between two Kafka clusters, which are started for it
	@$(BIN)/python -m tests.kafka.cluster.two_clusters running && ran=yes; \
	$(BIN)/python -m tests.kafka.cluster.two_clusters up >&2 && $(BIN)/core-bridge demo --kafka $(ARGS); code=$$?; \
	test "$$ran" || $(BIN)/python -m tests.kafka.cluster.two_clusters down >&2; exit $$code

bench: $(DEV) needs-kafka ## what one machine reaches, next to raw SQLite and MirrorMaker 2 (ARGS=kafka, nodes, clients, delivery-log, cluster, lines: one part)
	$(BIN)/python -m benchmarks $(ARGS)

bench-reconcile: $(DEV) ## Spark's reconciliation of 100 million and of a billion messages, DuckDB beside it (up to 3 GiB of disk)
	$(call needed,$${JAVA_HOME:+$$JAVA_HOME/bin/}java,default-jre-headless,Java 17 or newer to run Spark)
	$(BIN)/python -m benchmarks.reconcile $(ARGS)

format: $(DEV) ## formats the code and mends what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolves the lock files anew (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: install it with 'pipx install uv'" >&2; exit 1; }
	$(COMPILE) $(ARGS) pyproject.toml requirements/build.in --output-file requirements/base.txt
	$(COMPILE) $(ARGS) --constraint requirements/base.txt --extra reconcile pyproject.toml requirements/build.in \
		--output-file requirements/reconcile.txt
	$(COMPILE) $(ARGS) --constraint requirements/reconcile.txt --extra dev pyproject.toml requirements/build.in \
		--output-file requirements/dev.txt

clean: ## takes away what was made here, data excepted
	rm -rf $(VENV) build dist report *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find $(CHECKED) -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "core-bridge needs Python 3.11 or newer; found \
	$$(python3 --version 2>/dev/null || echo none). Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "core-bridge needs Python 3.11 or \
	newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian \
	and Ubuntu: apt install $$($(PYTHON) -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'))" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv --clear $(VENV)

$(BASE): requirements/base.txt pyproject.toml | $(VENV)/bin/python
	@echo "installing what core-bridge needs (requirements/base.txt)" >&2
	@$(PIP_INSTALL) --require-hashes --requirement requirements/base.txt
	@$(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(RECONCILE): requirements/reconcile.txt $(BASE)
	@echo "installing PySpark and PyArrow for the report, once: some 700 MB (requirements/reconcile.txt)" >&2
	@$(filter-out --quiet,$(PIP_INSTALL)) --require-hashes --requirement requirements/reconcile.txt >&2
	@touch $@

$(DEV): requirements/dev.txt $(BASE)
	@echo "installing what the tests need (requirements/dev.txt)" >&2
# What is imported is compiled then; most of it never is.
	@$(PIP_INSTALL) --no-compile --require-hashes --requirement requirements/dev.txt
	@touch $(RECONCILE) $@
