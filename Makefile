# The commands of contributors. `make` alone lists them.
# Needs Python 3.11 or newer and make; all else is installed into .venv, pinned by requirements.lock. Without a
# C compiler, the build of Envoy's module downloads one.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LANGUAGE_MODELS := 'transformers==5.24.0' 'openai==3.57.0'
IMAGES ?= $(basename $(notdir $(wildcard manifests/images/*.Containerfile)))
PREFIX ?= localhost/slipway
TAG ?= $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
# From PyPI it is the build for CUDA. A path or a URL of a wheel names another one.
TORCH ?= torch==2.13.0
# Drivers of fsspec for the storages of models, such as gcsfs adlfs; installed into the image of the
# components.
STORAGE_DRIVERS ?=
BUILDAH ?= buildah
# Workers of the tests before those of tests/unit: one more than the cores of CI, as these tests wait for
# processes, clocks and disks for much of their time. With four, tests with limits of seconds missed them.
JOBS ?= 3

# Tests start hundreds of processes, and each would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv llm demo demo-llm test fuzz check lint bench test-cluster test-nodes kubeconfig images push-images \
  test-images lock docs proto clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(STAMP) ## Create the virtual environment with pinned, hash-checked dependencies

$(STAMP): requirements.lock pyproject.toml $(wildcard serving/router/envoy/module/*.[ch] tools/build_backend.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Slipway needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing $$(grep -c '^[a-z].*==' requirements.lock) pinned packages into $(VENV) (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.uv.lock && \
	  UV_HTTP_TIMEOUT=20 $(BIN)/uv pip install --python $(BIN)/python --require-hashes \
	    -r requirements.lock 2>$(VENV)/install.log || { \
	  echo "uv cannot install them here (its output is in $(VENV)/install.log); pip takes some minutes"; \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock; }
	@# With a C compiler all that builds it is pinned; otherwise the build downloads one
	@# (tools/build_backend.py).
	@echo '#include <stdlib.h>' | $${CC:-cc} -E - >/dev/null 2>&1 && pinned=--no-build-isolation; \
	  $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-deps $$pinned -e .
	@touch $@

llm: venv ## Install PyTorch, without GPU=1 its CPU build where an index has it, Transformers and OpenAI's client
	@$(BIN)/python -c 'import openai, torch, transformers' 2>/dev/null || { \
	  echo "Installing PyTorch, Transformers and openai (once) ..."; \
	  install() { UV_FIND_LINKS="$$PIP_FIND_LINKS" $(BIN)/uv pip install --quiet --python $(BIN)/python "$$@" \
	    2>>$(VENV)/install.log || $(BIN)/python -m pip install --quiet --disable-pip-version-check "$$@"; }; \
	  $(if $(GPU),,install 'torch==2.13.0+cpu' $(LANGUAGE_MODELS) ||) install 'torch>=2.9' $(LANGUAGE_MODELS); }

demo: venv ## From two training jobs to weighted traffic, and to zero and back, in about a minute
	@$(BIN)/slipway demo

demo-llm: llm ## The same with language models that it trains, in some four minutes; installs PyTorch; GPU=1 for a GPU
	@$(BIN)/slipway demo --llm $(if $(GPU),--gpu)

# One worker runs a whole file, as fixtures of a file are started once for each worker. The slow files come
# first, by name, and mostly wait: lint, and a background worker with the unit tests, run beside them.
test: venv ## Lint, types, import contracts and all tests (RETRY=1: failed tests run once more, alone)
	@{ nice $(MAKE) --no-print-directory lint >$(VENV)/lint.log 2>&1 || \
	  { echo "lint has failed; its output follows the tests, and is in $(VENV)/lint.log" >&2; exit 1; }; } & lint=$$!; \
	$(BIN)/python -m pytest --workers $(JOBS) --background tests/unit $(if $(RETRY),--retry-alone) tests; tests=$$?; \
	wait $$lint; linted=$$?; cat $(VENV)/lint.log; [ $$linted = 0 ] && exit $$tests

fuzz: venv ## New inputs for every property test, many for the API server; failing ones stay in .hypothesis/fuzz
	$(BIN)/python -m pytest --workers $(JOBS) --hypothesis-profile fuzz --timeout 3600 -m hypothesis \
	  tests/unit tests/integration/api tests/integration/router/language_models

lint: venv ## Ruff, mypy --strict and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=benchmarks $(BIN)/mypy --strict benchmarks/*.py benchmarks/rig
	$(BIN)/lint-imports

bench: venv ## Every benchmark; each prints one JSON line last (QUICK=1 for a minute each)
	@for file in benchmarks/[a-z]*.py; do echo "== $$file"; $(BIN)/python $$file $(if $(QUICK),--quick) || exit 1; done

test-cluster: kubeconfig venv ## The contract suite against the cluster of $KUBECONFIG
	SLIPWAY_CONTRACT_KUBECONFIG=$$KUBECONFIG $(BIN)/python -m pytest tests/contracts

test-nodes: kubeconfig venv ## Walk docs/cluster.md on the nodes of $KUBECONFIG, with the images REGISTRY=PREFIX, AUTHORITY=FILE
	@test -n '$(REGISTRY)' || { echo "make test-nodes needs two nodes, and REGISTRY=the prefix of the images \
	components, transfer, sklearn and python (make images, make push-images) in a registry without a login; \
	AUTHORITY=the file of its private authority, if it has one, which the image transfer trusts too; \
	CUT_OFF=a command that loses a node (COMMAND lose NODE) and brings it back (COMMAND return NODE), without \
	which no node is lost" >&2; exit 1; }
	SLIPWAY_NODES_KUBECONFIG=$$KUBECONFIG SLIPWAY_NODES_REGISTRY='$(REGISTRY)' SLIPWAY_NODES_AUTHORITY='$(AUTHORITY)' \
	  SLIPWAY_NODES_CUT_OFF='$(CUT_OFF)' $(BIN)/python -m pytest tests/nodes

kubeconfig:
	@test -n "$$KUBECONFIG" || { echo "set KUBECONFIG: make $(MAKECMDGOALS) KUBECONFIG=FILE" >&2; exit 1; }

docs: venv ## Generate the CRDs and the reference of kinds and settings
	$(BIN)/python tools/generate_crds.py
	$(BIN)/python tools/generate_reference.py

proto: venv ## Compile the messages of Envoy and of the Open Inference Protocol
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  serving/router/envoy/messages.proto serving/runtimes/grpc/messages.proto

images: ## Build IMAGES as PREFIX/NAME:TAG on BASE and BUILD_BASE (docs/cluster.md), with buildah
	@PREFIX='$(PREFIX)' TAG='$(TAG)' IMAGES='$(IMAGES)' BASE='$(BASE)' BUILD_BASE='$(BUILD_BASE)' \
	  TORCH='$(TORCH)' STORAGE_DRIVERS='$(STORAGE_DRIVERS)' BUILDAH='$(BUILDAH)' BUILD_OPTIONS='$(BUILD_OPTIONS)' manifests/images/build.sh

push-images: ## Push IMAGES to their registry
	@for name in $(IMAGES); do $(BUILDAH) push '$(PREFIX)'/$$name:'$(TAG)' || exit 1; done

test-images: venv ## Build the images without PyTorch, train in one and serve from another (root, minutes)
	@$(MAKE) --no-print-directory images IMAGES='components python sklearn transfer'
	SLIPWAY_IMAGES='$(PREFIX)/%s:$(TAG)' BUILDAH='$(BUILDAH)' $(BIN)/python -m pytest --timeout 900 \
	  tests/integration/images/test_slipway_images.py

lock: ## Refresh requirements.lock, and the requirements of images, from pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/uv pip freeze --quiet --python $(BIN)/python | grep '^uv==' | $(BIN)/uv pip compile --quiet --universal \
	  --generate-hashes --no-config --no-emit-index-url --no-emit-find-links --no-header \
	  --output-file requirements.uv.lock -
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-config \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --extra dev \
	  --output-file requirements.lock pyproject.toml
	for name in build $(basename $(notdir $(wildcard manifests/images/*.Containerfile))); do \
	  [ $$name = components ] && from=pyproject.toml || from="--group $$name"; \
	  $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade --no-config \
	    --no-emit-index-url --no-emit-find-links --no-annotate --custom-compile-command "make lock" \
	    --constraints requirements.lock --output-file manifests/images/requirements/$$name.txt $$from || exit 1; \
	done

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
