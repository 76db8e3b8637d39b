# make report | report-large | record | gpu | figures | test | test-long | test-docs | bench | gate | lint | docs | upstreams | peers | wheel: each sets up its virtual environment first, when needed.
# GPU=1 uses a second environment, with the CUDA builds of torch and fbgemm; `make gpu` uses it, too.

PYTHON ?= python3.11
ifeq ($(MAKECMDGOALS),gpu)
GPU := $(if $(filter cpu,$(DEVICE)),,1)
endif
VENV := .venv$(if $(GPU),-gpu)
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
FBGEMM := fbgemm-gpu$(if $(GPU),,-cpu)==1.8.0
REC := torchrec==1.9.2

.PHONY: setup upstreams report report-large record gpu figures figures-check
.PHONY: test test-long test-all test-docs test-slow test-torch history bench bench-smoke gate lint docs docs-serve clean peers wheel

setup: $(READY)

# torch goes first and pinned, so that no other package can pull another build of it. torchrec goes
# in with --no-deps: it declares fbgemm-gpu, the CUDA build, whose files would overwrite those of
# fbgemm-gpu-cpu and break the import on a machine without CUDA. Compiled kernels are kept beside
# their sources; here they are compiled once, and not by all processes of a first run at a time.
$(READY): requirements.txt pyproject.toml Makefile
	@$(if $(GPU),$(PYTHON) -c "import ctypes; ctypes.CDLL('libnvidia-ml.so.1')" 2> /dev/null || \
		{ echo "The CUDA build of fbgemm needs NVIDIA's driver: libnvidia-ml.so.1 was not found."; exit 2; })
	@echo "Setting up $(VENV) (two to six minutes, once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) "$$(grep '^torch==' requirements.txt)"
	@$(PIP) -r requirements.txt $(FBGEMM)
	@$(PIP) --no-deps $(REC)
	@$(PIP) --no-deps --editable .
	@for each in $(wildcard planners/*/search/warm_up.py); do $(BIN)/python -P $$each || exit 1; done
	@touch $@

# Real releases to compare with, each in a folder of its own; nothing else needs them.
upstreams: setup
	@planners/dimspec/upstream/install.sh $(BIN)/python upstreams
	@planners/reshard/upstream/install.sh $(BIN)/python upstreams
	@planners/experts/upstream/install.sh $(BIN)/python upstreams

# MINUTES limits the time for measuring; the headlines come first.
report: setup
	$(BIN)/shardbench report $(if $(MINUTES),--minutes $(MINUTES))

# The suite of record/ at the sizes of published claims (three hours), the figures and tables that
# README and docs draw from it, and a check that they are up to date. TORCHREC is a path or an
# address of its repository, for its commits; STALE=1 measures what changed sources made old.
record: setup
	@mkdir -p upstreams
	@test -z "$(TORCHREC)" || test -d upstreams/torchrec.git || \
		git clone --quiet --mirror "$(TORCHREC)" upstreams/torchrec.git
	$(BIN)/shardbench record $(if $(STALE),--stale) \
		$(if $(TORCHREC)$(wildcard upstreams/torchrec.git),--repository torchrec=upstreams/torchrec.git)

# The suite of record/gpu on a machine with a GPU; DEVICE=cpu tries it out without one.
gpu: setup
	$(BIN)/shardbench record record/gpu --device $(or $(DEVICE),cuda)

COG := $(BIN)/cog -U --verbosity=1 -p "import cog; from reports.docs import blocks as record"
figures: setup
	$(COG) -r README.md docs/*.md
	$(BIN)/python -m reports.docs.figures

figures-check: setup
	$(COG) --check --diff README.md docs/*.md
	$(BIN)/python -m reports.docs.figures --check

# The large problems too; this takes far longer.
report-large: setup
	$(BIN)/shardbench report --large --budget 200 --out report-large

# A worker takes half of the tests, in their order, and then tests that another has not begun.
ON_ALL_CORES := -n auto --dist worksteal

test: setup
	$(BIN)/python -m pytest -m "not long and not slow and not docs" $(ON_ALL_CORES)

# Examples, releases and what else takes many seconds; CI runs them too.
test-long: setup
	$(BIN)/python -m pytest -m "long and not slow" $(ON_ALL_CORES)

# Both in one run, which loads the libraries once, and has short tests for the last idle core.
test-all: setup
	$(BIN)/python -m pytest -m "not slow and not docs" $(ON_ALL_CORES)

# Every command that README and docs show, and the documentation site in a browser.
test-docs: setup docs
	$(BIN)/python -m pytest tests/docs -m docs -n auto

# The dtensor family under another release of torch, which the index has with CUDA only (5.4 GB).
TORCH ?= 2.15.0
test-torch:
	@planners/dtensor/upstream/install.sh $(PYTHON) upstreams $(TORCH)
	PYTHONPATH=. upstreams/torch-$(TORCH)/bin/python -m pytest tests/dtensor -m "not slow" -p no:cacheprovider

test-slow: setup
	$(BIN)/python -m pytest -m slow

bench: setup
	$(BIN)/python -m asv run

# Every kind of benchmark once, on two variants of each family; nothing stored.
bench-smoke: setup
	SHARDBENCH_ASV_SMOKE=1 $(BIN)/python -m asv run -E existing --quick --dry-run

# TorchRec's own commits: TORCHREC is a path or an address of its repository, RANGE is A..B. Counts
# and the page are kept in history/.
UPSTREAM := upstreams/torchrec.git
history: setup
	@mkdir -p upstreams
	@test -d $(UPSTREAM) || git clone --quiet --mirror "$(TORCHREC)" $(UPSTREAM)
	@git -C $(UPSTREAM) remote update > /dev/null
	$(BIN)/shardbench history torchrec $(RANGE) --repository $(UPSTREAM)

# What the planners decide, count and cost, against expectations.toml. A ratio that is inconclusive
# on a busy machine (exit code 2) is told and is no failure.
gate: setup
	$(BIN)/shardbench gate expectations.toml || [ $$? -eq 2 ]

# Upstream's own tests without and with the drop-ins; docs/ci.md says which checkouts.
peers: setup
	@$(if $(PYTORCH),$(PIP) expecttest==0.3.0)
	$(BIN)/python -m tests.peers --torchrec "$(TORCHREC)" --colossalai "$(COLOSSALAI)" \
		--pytorch "$(PYTORCH)" $(if $(INSTALLED),--installed) -- $(PYTEST_ARGS)

# sdist and wheel in build/wheel/dist, checked. README's snippets run from the wheel under each of
# Python 3.11, 3.12 and 3.13 on the path, in environments of their own.
wheel:
	@$(PYTHON) tests/installed/release.py $(FBGEMM) $(REC)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation site, into build/docs; `make docs-serve` shows it while it is being written.
DOCS := .venv-docs
$(DOCS)/.ready: requirements-docs.txt
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/python -m pip --disable-pip-version-check install --quiet -r requirements-docs.txt
	@touch $@

docs: $(DOCS)/.ready
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet
	@echo "build/docs/index.html, to open without a server"

docs-serve: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs serve

clean:
	rm -rf .venv .venv-gpu .venv-docs .asv .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf build profiles report report-large results *.egg-info
