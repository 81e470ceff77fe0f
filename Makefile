# Everything that people and machines run here. Each target makes what it needs; a second call is quick.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= fixtures/simulated-input-bound-v100
REPORT ?= report.html
WORKERS ?= logical
TORCH ?= torch==2.13.0+cpu
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# Of what the packages bring, most is never imported; the rest is compiled once, not by each process that a test starts.
export PIP_NO_COMPILE := 1
unexport PYTHONDONTWRITEBYTECODE

# uv finds the versions that fit in seconds, pip in minutes; without uv, pip does it.
install = { $(BIN)/python -m pip install --quiet uv && $(BIN)/uv pip install --quiet --python $(BIN)/python --editable '$(1)'; } \
	|| $(BIN)/python -m pip install --quiet --editable '$(1)'

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test check cover fuzz soak docs pictures bench score frameworks truth

help: ## List these targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

demo: $(VENV)/.installed ## Check a sample profile and write report.html
	$(BIN)/advisor check $(DEMO) -o $(REPORT)
	@echo "The report: $(abspath $(REPORT))"

test: $(VENV)/.installed-torch ## Run the quick tests, in parallel (WORKERS=0: one after the other)
	$(PYTEST)

check: $(VENV)/.installed-test ## Lint, types, import directions, rule book, generated docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/advisor rules test
	$(BIN)/python docs/make.py --check

cover: $(VENV)/.installed-torch ## Run the quick tests and show the lines and branches that none of them takes
	$(PYTEST) --cov --cov-report=term-missing:skip-covered

fuzz: $(VENV)/.installed-test ## Property tests on many examples, then damaged files (FUZZ='--cases 5000 --keep DIR kineto')
	$(PYTEST) --dist worksteal -m hypothesis --hypothesis-profile=fuzz
	$(BIN)/python -m tests.fuzz $(FUZZ)

soak: $(VENV)/.installed-test ## Run all tests, the slow repetitions too
	$(PYTEST) -m "soak or not soak"

docs: $(VENV)/.installed-docs ## Write the docs that are generated from the code and the rules, and build site/
	$(BIN)/python docs/make.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python docs/build_site.py

pictures: $(VENV)/.installed-test ## Take the pictures of docs/img (needs Chromium)
	$(BIN)/python docs/pictures.py

bench: $(VENV)/.installed ## Compare reader and check with the floor, on 1 GB, and with XProf (BENCH=--peers: with more tools)
	$(BIN)/python benchmarks/kineto.py $(BENCH)
	$(BIN)/python benchmarks/ranks.py $(BENCH)
	$(BIN)/python benchmarks/xplane.py $(BENCH)
	$(BIN)/python benchmarks/nsys.py $(BENCH)
	$(BIN)/python benchmarks/counting.py
	$(BIN)/python benchmarks/rules.py

score: $(VENV)/.installed ## Score findings and savings on jobs whose truth is known, and on ways to record them; writes two pages of docs/
	$(BIN)/python benchmarks/scorecard.py
	$(BIN)/python benchmarks/styles.py

frameworks: $(VENV)/.installed-torch ## Record a program of each framework (PYTHONS='... ...' that have them); writes docs/frameworks.md
	$(BIN)/python benchmarks/frameworks.py $(or $(PYTHONS),$(BIN)/python)

truth: $(VENV)/.installed-torch ## Try the plain scripts of fixtures/make (PYTHONS='... ...' that have torch or jax); writes docs/truth.md
	$(BIN)/python benchmarks/truth.py $(or $(PYTHONS),$(BIN)/python)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(call install,.)
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(call install,.[test])
	@touch $@ $(VENV)/.installed

# The CPU build: as a wheel at hand, else from PyTorch's index. Tests of recording skip without it.
$(VENV)/.installed-torch: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet --no-index --no-deps '$(TORCH)' 2>/dev/null \
	  || $(BIN)/python -m pip install --quiet --no-deps --retries 1 --index-url https://download.pytorch.org/whl/cpu '$(TORCH)' 2>/dev/null \
	  || echo 'no CPU build of torch at hand: the tests of recording skip'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(call install,.[docs])
	@touch $@ $(VENV)/.installed

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; run: make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' || { echo "$(PYTHON) has no ensurepip; run: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
