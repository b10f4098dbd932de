# Everything here sets itself up from python3 >= 3.10, make and pip alone.
#   make demo PYTHON=python3.12    choose the interpreter of the virtual environment
#   make test PYTEST_ARGS="-k mmd" pass options on to pytest
#   make fuzz SECONDS=600 SEED=0   also KIND=cases, oracle, kills or tamper

PYTHON ?= python3
VENV ?= .venv
PYTEST_ARGS ?=
SECONDS ?= 600
SEED ?= 0
KIND ?= all
DEMO := build/demo

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# An interpreter named by the user replaces an environment made with another one; a default does not.
PYTHON_IS_CHOSEN := $(filter-out file default,$(subst undefined,file,$(origin PYTHON)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test fuzz lint format bench docs package clean distclean FORCE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed ## Split the sample data and show the result
	@mkdir -p build
	$(BIN)/clustersplit split sample_data/gas.parquet --standardize zscore \
	    --format npy --format txt --out $(DEMO) --force
	@echo "The first validation rows, from $(DEMO)/val.txt:"
	@head -n 8 $(DEMO)/val.txt | paste -s -d ' ' -
	@echo "The command is $(BIN)/clustersplit, or clustersplit after: . $(BIN)/activate"

test: $(VENV)/.installed-dev ## Run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

fuzz: $(VENV)/.installed-dev ## Attack the program with generated inputs, kills and changed reports
	$(BIN)/python -m tests.campaign --seconds $(SECONDS) --seed $(SEED) --kind $(KIND)

lint: $(VENV)/.installed-dev ## Check style, formatting and types
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict

format: $(VENV)/.installed-dev ## Format the code and fix what can be fixed
	$(BIN)/python -m ruff check --fix-only .
	$(BIN)/python -m ruff format .

bench: $(VENV)/.installed-dev ## Measure speed against limits of the same machine; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks.speed.suite --write

# The theme prints a notice about its successor on every build, which is no warning about this site.
docs: $(VENV)/.installed-docs ## Build the documentation into build/site
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "Open build/site/index.html"

# Both packages are tried as a user gets them: in a new environment, away from the repository.
package: $(VENV)/.installed-dev ## Build wheel and sdist into dist, check them and try them in a new environment
	@rm -rf dist build/fresh && mkdir -p build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m venv build/fresh
	cd build/fresh && bin/python -m pip --disable-pip-version-check --quiet install $(CURDIR)/dist/*.whl
	cd build/fresh && bin/clustersplit --version && bin/clustersplit split $(CURDIR)/sample_data/gas.parquet --quiet --out first
	cd build/fresh && bin/python -m pip --disable-pip-version-check --quiet install --force-reinstall --no-deps $(CURDIR)/dist/*.tar.gz
	cd build/fresh && bin/clustersplit split $(CURDIR)/sample_data/gas.parquet --quiet --out second && cmp first/val.npy second/val.npy
	if command -v uvx >/dev/null; then uvx --from . clustersplit --version; else echo "note: uvx is not installed, so it was not tried"; fi

clean: ## Remove caches and everything that was built
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find clustersplit clustersplit_cli tests sample_data -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the virtual environment too
	rm -rf $(VENV)

# The stamps hold the folder they were made in: an environment does not survive being moved.
$(VENV)/.installed: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "Installing clustersplit into $(VENV) ..."
	@$(PIP) install --editable .
	@echo "$(CURDIR)" > $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "Installing clustersplit and its development tools into $(VENV) ..."
	@$(PIP) install --editable ".[dev]"
	@echo "$(CURDIR)" | tee $(VENV)/.installed > $@

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.installed-dev
	@echo "Installing what builds the documentation into $(VENV) ..."
	@$(PIP) install --editable ".[docs]"
	@echo "$(CURDIR)" > $@

# Looked at on every run, made only when there is no usable one. The recipe leaves the file alone
# otherwise, so what depends on it stays up to date.
$(VENV)/pyvenv.cfg: FORCE
	@usable() { \
	    "$(BIN)/python" -c 'import pip, sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || return 1; \
	    for stamp in $(VENV)/.installed $(VENV)/.installed-dev $(VENV)/.installed-docs; do \
	        test ! -f $$stamp || test "$$(cat $$stamp)" = "$(CURDIR)" || return 1; \
	    done; \
	    test -n "$(PYTHON_IS_CHOSEN)" || return 0; \
	    test "$$("$(BIN)/python" -c "$$base")" = "$$("$(PYTHON)" -c "$$base" 2>/dev/null)"; \
	}; \
	base='import sys; print(sys.version_info, sys.base_prefix)'; \
	if usable; then exit 0; fi; \
	if ! version=$$("$(PYTHON)" -c 'import platform; print(platform.python_version())' 2>/dev/null); then \
	    echo "error: $(PYTHON) does not run; name another Python >= 3.10, as in: make demo PYTHON=python3.12" >&2; \
	    exit 1; \
	fi; \
	if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then \
	    echo "error: clustersplit needs Python >= 3.10, $(PYTHON) is $$version; name another, as in: make demo PYTHON=python3.12" >&2; \
	    exit 1; \
	fi; \
	echo "Making a virtual environment with Python $$version in $(VENV) ..."; \
	"$(PYTHON)" -m venv --clear "$(VENV)"

FORCE:
