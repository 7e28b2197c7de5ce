# `make help` lists the targets. Everything runs in .venv, which each target makes first if needed.

PYTHON ?= python3
PROFILE ?= default

VENV_PYTHON := .venv/bin/python
# Without it some initialisers take seconds at random: OpenBLAS's threads fight over busy cores.
export OPENBLAS_NUM_THREADS = 1
# Two at a time on two cores, a file by one worker, so that what a file trains once is trained once;
# files in the order of tests/conftest.py.
PYTEST := $(VENV_PYTHON) -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile \
  --no-loadscope-reorder
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help setup peers reproduce test test-all lint types layers wheel clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup:  ## make .venv from setup.cfg and constraints.txt (PYTHON=python3.12 takes another Python)
	@sh tools/make_venv.sh "$(PYTHON)" test,dev,data,slurm

peers:  ## make .peers, environments of the systems that training is timed against
	@sh tools/make_peers.sh "$(PYTHON)"

reproduce:  ## run the experiments and write the report (PROFILE=smoke, default or full)
	@case "$(PROFILE)" in smoke|default|full) ;; *) \
	  echo "reproduce: no profile '$(PROFILE)': take smoke, default or full" >&2; exit 2 ;; esac
	@set -e; \
	begun=$$(date +%s); \
	$(MAKE) setup; \
	set_up=$$(date +%s); \
	$(VENV_PYTHON) -m launch.prepare --data=g2p,copy,reverse,lexicon,walk,greek_english/forms; \
	prepared=$$(date +%s); \
	failed=0; \
	$(VENV_PYTHON) -m launch.run --experiment=all --profile=$(PROFILE) --workdir=results || \
	  failed=$$?; \
	[ $$failed -lt 128 ] || exit $$failed; \
	shown=results/bottleneck/$(PROFILE)/checkpoints/g2p-attention-0; \
	[ ! -d $$shown ] || printf '%s\n' attention translation alignment neighbour thought | \
	  $(VENV_PYTHON) -m launch.attention --workdir=$$shown --output=results/report/attention.html; \
	$(VENV_PYTHON) -m launch.report --workdir=results --profile=$(PROFILE); \
	reported=$$(date +%s); \
	echo "set-up            $$((set_up - begun)) s"; \
	echo "data preparation  $$((prepared - set_up)) s"; \
	echo "experiments       $$((reported - prepared)) s, the report included"; \
	echo "open results/report/index.html"; \
	[ $$failed -eq 0 ] || echo "reproduce: an experiment failed, see above" >&2; \
	exit $$failed

test: setup  ## run the fast tests
	@$(PYTEST) -m "not slow"

test-all: setup  ## run all tests
	@$(PYTEST)

lint: setup  ## check the style (ruff)
	@$(VENV_PYTHON) -m ruff check .
	@$(VENV_PYTHON) -m ruff format --check .

types: setup  ## check the types of attn (mypy)
	@$(VENV_PYTHON) -m mypy

layers: setup  ## check which rooms import which (import-linter)
	@$(VENV_PYTHON) -c 'from importlinter import cli; cli.lint_imports_command()'

wheel: setup  ## build the wheel into dist/
	@rm -rf build dist
	@PYTHONDONTWRITEBYTECODE= $(VENV_PYTHON) -m build --wheel --no-isolation

clean:  ## remove what building and testing left (keeps .venv, data, runs and results)
	@rm -rf build dist attn.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	@find attn experiments launch tests -name __pycache__ -type d -prune -exec rm -rf {} +
