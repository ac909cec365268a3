# `make demo` shows what visterm does; `make test` runs the whole test suite. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST := $(BIN)/python -m pytest
KERNEL_TESTS := $(wildcard $(foreach folder,tests research/tests,$(folder)/test_*kernel.py $(folder)/test_*kernels.py))

# Commands that tests start, and Ray's workers, find visterm compiled. On two cores a third process works while others
# wait for servers and processes, and none needs more threads.
TESTING := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
QUICK_TESTS := $(TESTING) $(PYTEST) -n 3 --dist loadfile --no-loadscope-reorder -m "not slow" --durations 10

.PHONY: help demo test test-product test-research test-kernels test-slow bench lint format docs site constraints clean
help:  ## Show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.base  ## Draw a photo library, learn its tags, tag and search it, write demo/report.html
	$(BIN)/visterm demo -o demo

test: test-product test-research  ## Run the whole test suite in three processes: visterm's part, then visterm-research's

test-product: $(VENV)/.dev
	$(QUICK_TESTS) tests

test-research: $(VENV)/.dev
	$(QUICK_TESTS) research/tests

test-kernels: $(VENV)/.dev  ## Run the kernels' tests with bounds checked, and again without compiling
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(VENV)/numba-checked $(PYTEST) -q $(KERNEL_TESTS)
	NUMBA_DISABLE_JIT=1 $(PYTEST) -q $(KERNEL_TESTS)

test-slow: $(VENV)/.dev  ## Run the tests that take longer, before a release
	$(TESTING) $(PYTEST) -m slow

bench: $(VENV)/.dev  ## Measure speed and quality before a release, two hours at most; PARTS="search warp" runs these parts
	$(BIN)/python benchmarks/bench.py $(PARTS)

lint: $(VENV)/.dev  ## Run ruff, mypy and import-linter, and count what is tangled or hard to read
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config research/pyproject.toml
	$(BIN)/python benchmarks/house.py --check
	$(BIN)/python docs/plain_english.py --check

format: $(VENV)/.dev  ## Put the code into form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.base  ## Renew the tables in docs/ that are made from the registry, and share/: man page and completions
	$(BIN)/python docs/make_tables.py
	$(BIN)/python docs/make_share.py
	$(BIN)/python docs/make_walks.py

site: $(VENV)/.site  ## Build the documentation site in build/site, without a warning; VISTERM_GALLERY=1 runs its examples
	$(BIN)/python -m sphinx -c docs -d build/doctrees -W --keep-going --quiet . build/site

constraints: $(VENV)/.site  ## Write constraints.txt anew from what is installed
	(sed '/^[^#]/d' constraints.txt; $(PIP) freeze --exclude-editable | sed 's/+cpu$$//') > constraints.new && mv constraints.new constraints.txt

clean:  ## Remove the virtual environment and what the demo wrote
	rm -rf $(VENV) demo build docs/generated

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "visterm needs Python 3.11 or later; set it with: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml research/pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e . -e research
	@touch $@

$(VENV)/.dev: pyproject.toml research/pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e '.[dev,faiss,implicit,lance,map,onnx,parquet,plot,raw,ray,s3,text,torch]' -e './research[torch]'
	@touch $@ $(VENV)/.base

$(VENV)/.site: $(VENV)/.dev
	$(PIP) install --quiet -c constraints.txt -e '.[docs]'
	@touch $@
