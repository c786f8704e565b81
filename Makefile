# make run    set up, run the quick suite on real data, write its leaderboard
# make test   set up with the development tools, then lint (style, types, layers), test, and check that the report is not stale
# make check  of what differs from main: ruff, layers, types of the changed modules, tests of the changed files (under a minute)
# make format, make typecheck   ruff's formatter on changed files; mypy on all
# make catalogue   benchmark/suites/catalogue.json and cells.json anew, after a change of a method, dataset or suite
# make published   benchmark/suites/published.json anew (costs and scores by task), new clients into federations.csv, after a change of rows
# make site   the documentation with the leaderboards' pages as a site in build/site, which opens from a file
# Variables:  PYTHON (an interpreter of Python 3.10 to 3.12), TORCH (which torch to install), RESULTS, ARGS (more options for `fglbench run`)

FITS := import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.10 python3 python; do $$p -c '$(FITS)' 2>/dev/null && echo $$p && exit; done; uv python find --quiet 3.11 2>/dev/null || uv python install --quiet 3.11 && uv python find --quiet 3.11)
TORCH ?= torch==2.13.0
CPU_WHEELS := https://download.pytorch.org/whl/cpu
RESULTS ?= runs/quick
VENV := .venv
BIN := $(VENV)/bin
export DGLBACKEND := pytorch

.PHONY: help install run test lint check format typecheck catalogue published site clean

help:
	@sed -n 's/^# //p' Makefile

install: $(VENV)/.installed

# The stamps are written last, so an interrupted installation starts again. On Linux the plain torch wheel brings
# gigabytes of CUDA; the CPU build is taken where its index answers.
$(VENV)/.installed: setup.cfg pyproject.toml Makefile
	@test -n "$(PYTHON)" || { echo "no Python 3.10 to 3.12 found, and no uv to get one; install one and run: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c '$(FITS)' || { echo "$(PYTHON) is not Python 3.10, 3.11 or 3.12, for which alone DGL has builds" >&2; exit 2; }
	test -x $(BIN)/python && $(BIN)/python -c '$(FITS)' || $(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || { \
	  extra=; \
	  if $(BIN)/python -c 'import urllib.request as u; u.urlopen("$(CPU_WHEELS)/torch/", timeout=5)' 2>/dev/null; \
	  then extra="--extra-index-url $(CPU_WHEELS)"; fi; \
	  $(BIN)/python -m pip install $$extra "$(TORCH)"; }
	$(BIN)/python -m pip install -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install -e '.[dev]'
	@touch $@

run: $(VENV)/.installed
	@$(BIN)/fglbench run --quick --results $(RESULTS) $(ARGS); code=$$?; \
	test $$code -le 1 || exit $$code; \
	$(BIN)/fglbench report --results $(RESULTS) || exit $$?; \
	echo "leaderboard: $(CURDIR)/$(RESULTS)/LEADERBOARD.md"; exit $$code

lint: typecheck
	$(BIN)/ruff check .
	$(BIN)/python tools/check_words.py
	@# import-linter has no version for Python 3.10.
	test ! -x $(BIN)/lint-imports || $(BIN)/lint-imports

# The folder is the package but need not have its name: mypy finds it through a link that has.
typecheck: $(VENV)/.installed-dev
	@mkdir -p .mypy_cache/src && ln -sfn ../.. .mypy_cache/src/fglbench
	MYPYPATH=.mypy_cache/src $(BIN)/mypy -p fglbench

# Python files that differ from BASE, and the tests among or beside them: tests/<folder>/test_<name>.py.
BASE ?= main
CHANGED = $(shell { git diff --name-only --diff-filter=d $(BASE) -- '*.py'; git ls-files -o --exclude-standard '*.py'; } | sort -u)
NAMES = $(notdir $(basename $(filter-out tests/%,$(CHANGED))))
TESTS = $(sort $(filter tests/%,$(foreach f,$(CHANGED),$(if $(filter test_%,$(notdir $f)),$f))) $(foreach n,$(NAMES),$(wildcard tests/test_$n.py tests/*/test_$n.py tests/*/*/test_$n.py)))

check: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	test -z "$(CHANGED)" || $(BIN)/ruff format --check $(CHANGED)
	test ! -x $(BIN)/lint-imports || $(BIN)/lint-imports
	@mkdir -p .mypy_cache/src && ln -sfn ../.. .mypy_cache/src/fglbench
	test -z "$(filter-out tests/%,$(CHANGED))" || MYPYPATH=.mypy_cache/src $(BIN)/mypy --follow-imports=silent \
	  $(addprefix .mypy_cache/src/fglbench/,$(filter-out tests/%,$(CHANGED)))
	test -z "$(TESTS)" || OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	test -z "$(CHANGED)" || $(BIN)/ruff format $(CHANGED)

test: lint
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile
	@test ! -f results/LEADERBOARD.md || $(BIN)/fglbench report --check

catalogue: $(VENV)/.installed
	$(BIN)/python tools/catalogue.py

published: $(VENV)/.installed
	$(BIN)/python tools/published.py

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python -m pip install -e '.[docs]'
	@touch $@

site: $(VENV)/.installed-docs
	rm -rf results/site
	$(BIN)/fglbench report --html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site: $(CURDIR)/build/site/index.html"

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
