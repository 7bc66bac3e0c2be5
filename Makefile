# The two commands that matter: `make serve` and `make test`. Each does all of its own set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch first and alone: some indexes have its CPU build at this version only, and a build chosen by another
# package's range would be CUDA's, of several gigabytes. Where CPU builds have another address:
# make serve TORCH_INDEX=ADDRESS
TORCH ?= torch==2.13.0
TORCH_OPTIONS := $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
PIP := $(BIN)/python -m pip install --disable-pip-version-check
HOST ?= 127.0.0.1
PORT ?= 8000
ARGS ?=
MINUTES ?= 30
export OMP_NUM_THREADS ?= 1

.PHONY: help serve test lint bench load load-ui soak rivals models setup dev-setup load-setup system-packages clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

serve: setup models ## set up, then serve on http://127.0.0.1:8000 (HOST, PORT, ARGS)
	@$(BIN)/voice-app serve --host $(HOST) --port $(PORT) $(ARGS)

test: dev-setup system-packages models lint ## set up, then lint and run all tests (ARGS goes to pytest)
	@echo "▸ tests"
	@$(BIN)/python -m pytest $(ARGS)

lint: dev-setup ## ruff and pyright
	@echo "▸ ruff and pyright"
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright

bench: dev-setup models ## measure the local pack
	@$(BIN)/voice-app bench local $(ARGS)

load: load-setup models ## how many people can talk at once: load/report/index.html (ARGS)
	@$(BIN)/python -m load ramp $(ARGS)

rivals: load-setup models ## pipecat beside it, on the same weights: about 10 minutes (ARGS)
	@$(BIN)/python -m load.rivals $(ARGS)

load-ui: load-setup models ## the same callers from locust's web page
	@$(BIN)/python -m load ui $(ARGS)

soak: load-setup models ## hold one load for MINUTES (30): does anything drift?
	@$(BIN)/python -m load soak --minutes $(MINUTES) $(ARGS)

setup: $(VENV)/.installed
models: $(VENV)/.models
dev-setup: $(VENV)/.installed-dev
load-setup: $(VENV)/.installed-load

$(VENV)/bin/python:
	@echo "▸ making $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.11 …"; exit 2; }
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv"; rm -rf $(VENV); exit 2; }

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	@echo "▸ installing torch (200 MB as a CPU build; 2.6 GB with CUDA, see TORCH_INDEX in the README)"
	@$(PIP) $(TORCH_OPTIONS) '$(TORCH)'
	@echo "▸ installing the app and its other packages"
	@$(PIP) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "▸ installing what the tests need"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/.installed-load: $(VENV)/.installed
	@echo "▸ installing what the load tests need"
	@$(PIP) -e '.[load]'
	@touch $@

$(VENV)/.models: $(VENV)/.installed voice_app/models/local/assets.py voice_app/models/local/catalogue.py
	@echo "▸ models of the local pack"
	@$(BIN)/voice-app pull
	@touch $@

system-packages:
	@bash tests/system-packages.sh

clean: ## remove the virtual environment (pulled models stay)
	@rm -rf $(VENV)
