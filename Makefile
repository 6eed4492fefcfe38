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
DEV := $(VENV)/.dev
CHECKED := bridge cluster dedup tests
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV ?= uv
COMPILE := $(UV) pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --python-version 3.11

.DEFAULT_GOAL := help
.PHONY: help setup run serve test lint unit needs test-crash bench format lock clean

help: ## says what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

setup: $(BASE) ## makes .venv with .venv/bin/core-bridge

run: $(BASE) ## relays real data through a cut and two kills, and proves that nothing is lost or doubled
	@$(BIN)/core-bridge demo $(ARGS)

serve: $(BASE) ## starts a node with settings.toml
	@$(BIN)/core-bridge run --settings settings.toml

test: lint unit ## everything that must hold: lint, types, layers, tests, coverage (less than 20 minutes on 2 cores)

lint: $(DEV) ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: $(DEV) needs lint ## the tests, with branch coverage and its floor
	@$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -m "not crash" $(ARGS)
	@$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

needs: ## what the tests take from the system
	@command -v openssl >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	apt-get install -qq -y openssl >/dev/null; } || { echo "the tests need the openssl program (Debian and Ubuntu: \
	apt install openssl)" >&2; exit 1; }

test-crash: $(DEV) ## 200 rounds of kills and cuts (`make test` does 20)
	$(BIN)/pytest -m crash $(ARGS)

bench: $(BASE) ## what one machine reaches, next to raw SQLite
	$(BIN)/python -m benchmarks $(ARGS)

format: $(DEV) ## formats the code and mends what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## resolves the lock files anew (needs uv)
	@command -v $(UV) >/dev/null || { echo "make lock needs uv: install it with 'pipx install uv'" >&2; exit 1; }
	$(COMPILE) $(ARGS) pyproject.toml requirements/build.in --output-file requirements/base.txt
	$(COMPILE) $(ARGS) --constraint requirements/base.txt --extra dev pyproject.toml requirements/build.in \
		--output-file requirements/dev.txt

clean: ## takes away what was made here, data excepted
	rm -rf $(VENV) build *.egg-info .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis \
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

$(DEV): requirements/dev.txt $(BASE)
	@echo "installing what the tests need (requirements/dev.txt)" >&2
	@$(PIP_INSTALL) --require-hashes --requirement requirements/dev.txt
	@touch $@
