# The commands of the project; CONTRIBUTING.md explains them. Everything runs in .venv/.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
# The program alone, with what the first steps in README.md use; the environment adds all extras, and the tools of tests.
PROGRAM := .venv/.program
EXTRAS := demo,image,plot,mpi
# Under pytest every worker gets one thread: the machine's cores are shared out by -n.
WORKERS ?= auto
# Tests start hundreds of processes, which are not to compile the same modules each; empty: Python writes bytecode.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help env demo test test-all coverage check lint types contract bench proto combinations docs dist clean
help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

env: $(STAMP)  ## make the environment in .venv/ (Python >= 3.10), with all extras, tests and tools

$(PROGRAM): setup.cfg pyproject.toml scripts/constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "error: $(PYTHON) is older than 3.10; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv || { echo "error: no venv module (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "Installing bpt and all that its first steps use into .venv/; PyTorch is large: this may take minutes"
	$(BIN)/python -m pip install --quiet --constraint scripts/constraints.txt --editable '.[$(EXTRAS)]'
	@touch $(PROGRAM)

$(STAMP): $(PROGRAM)
	@echo "Installing what all of bpt and its tests use, too"
	$(BIN)/python -m pip install --quiet --constraint scripts/constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: $(PROGRAM)  ## train LeNet on handwritten digits, in less than a minute; installs bpt in .venv/, without tests and tools
	$(BIN)/python scripts/make_digits.py
	$(BIN)/bpt train --solver prototxt/lenet/solver.prototxt
	@echo
	@echo "LeNet is trained; 'Test net output #0: accuracy' above is its score on digits it has never seen. Next:"
	@echo "  $(BIN)/bpt test --model prototxt/lenet/train_val.prototxt --iterations 4 \\"
	@echo "    --weights snapshots/lenet/lenet_iter_1000.caffemodel"

test: env  ## run the tests, but for those marked slow
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not slow'

test-all: env  ## run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

coverage: env  ## print how many lines of bpt/ the tests run, but for those marked slow; takes longer than the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m 'not slow' --cov=bpt --cov-report=
	@echo "lines of bpt/ that the tests run: $$($(BIN)/python -m coverage report --format=total) %"

check: lint types contract test  ## all that must pass before a commit

lint: env  ## ruff: rules, and the formatter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: env  ## mypy
	$(BIN)/mypy

contract: env  ## the import contract: who may import whom
	$(BIN)/lint-imports

bench: env  ## time bpt against a plain PyTorch loop, and on 2 ranks against DistributedDataParallel
	$(BIN)/python scripts/bench loop
	$(BIN)/python scripts/bench ddp

combinations: env  ## write the page of what combines with what anew
	$(BIN)/python -m bpt.train.rules.combinations > docs/combinations.md

proto: env  ## compile bpt/config/proto/bpt.proto and bpt/perf/trace/perfetto_trace.proto
	$(BIN)/python -m bpt.config.proto.compile

docs: env  ## write the documentation as a site to build/site/, all warnings being errors
	$(BIN)/python -m pip install --quiet --constraint scripts/constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict
	@echo "build/site/index.html"

dist: env  ## make wheel and sdist in dist/, and try each in a clean environment
	PYTHON=$(PYTHON) scripts/make_dist

clean:  ## remove what can be made again, but not data/ and snapshots/
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage
