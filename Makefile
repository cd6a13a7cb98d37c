# Every target sets up what it needs; a second run starts in seconds.
BIN := .venv/bin
# Of `make demo`: one prompt instead of its three; code: Qwen2.5-Coder, which YES=1 fetches unasked.
export PROMPT ?=
DEMO ?=
YES ?=
export UV_PROJECT_ENVIRONMENT := .venv
# Of `make images`: what stands before their names, such as registry.example/team/; cpu (without
# torch) or cuda.
REGISTRY ?=
DEVICE ?= cpu
# Of `make images`: the kind cluster that gets both images.
KIND ?=
# Of `make check`: anything but nothing for all unit tests, not only those of what has changed.
ALL ?=
# Of `make gpu`: the Python that has the machine's own torch and triton.
PYTHON ?= python3

.PHONY: help sync run-sync test-sync demo check test test-full test-arm e2e lint docs proto bench gpu images

help: ## print these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

SYNC = uv=$$(tools/bootstrap) && { "$$uv" sync --locked $(1) --check --quiet 2>/dev/null || "$$uv" sync --locked $(1); }

sync: ## make .venv match uv.lock, with a pinned uv if there is none
	@$(call SYNC,--group dev)

run-sync: # what runs, without torch and without what tests need; more that is there stays
	@$(call SYNC,--inexact)

test-sync: # what `make test` needs, without torch; more that is there stays
	@$(call SYNC,--inexact --no-default-groups --group everyday)

demo: run-sync ## answer three questions, or PROMPT, with and without the draft; DEMO=code: an edit by a larger pair
ifeq ($(DEMO),code)
	@$(BIN)/python -m bench.sides.code_demo $(if $(YES),--yes)
else
	@if [ -n "$$PROMPT" ]; then set -- --prompt "$$PROMPT"; fi; $(BIN)/outrider demo "$$@"
endif

check: lint ## lint, and unit tests of what has changed; ALL=1 for all of them, 3 minutes
	@tests=$$($(if $(ALL),echo tests/unit,$(BIN)/python -m tools.changed_tests)) && \
		if [ -n "$$tests" ]; then $(BIN)/pytest -q -n auto --dist worksteal $$tests; \
		else echo "no unit test is concerned by what has changed; all of them: make check ALL=1"; fi

test: test-sync ## run the everyday tests, without torch and Kubernetes; 10 minutes on two cores
	$(BIN)/python -m tests.parts everyday

test-full: sync ## run every test; the first time, this makes Kubernetes' servers
	$(BIN)/python -m tests.parts all

test-%: sync # one part of tests/parts.toml, such as test-cluster or test-processes
	$(BIN)/python -m tests.parts $*

test-arm: sync ## run the CPU kernels' tests on emulated Arm processors; needs qemu-user-static and mmdebstrap
	$(BIN)/python -m tests.arm

e2e: sync ## run everything on a real node and record it; as root, 15 minutes or more
	$(BIN)/python -m tests.e2e --recording docs/recordings/e2e.md

lint: sync ## style, formatting, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin
	$(BIN)/lint-imports

docs: ## build the site of all pages in site/; a link that leads nowhere is an error
	@$(call SYNC,--inexact --no-default-groups --group docs --no-install-project)
	@npm ci --prefix tools/site --ignore-scripts --no-audit --no-fund --silent || echo "diagrams stay text: no npm"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

proto: sync ## write the stubs beside their .proto files
	$(BIN)/python protos/generate.py

bench: sync ## measure speculation; writes bench/results/
	$(BIN)/python -m bench.speculation

gpu: ## on a machine with a GPU: its tests and benchmarks with PYTHON's torch; up to 45 minutes
	$(PYTHON) -m bench.device

images: ## build both images, with docker, podman or buildah; REGISTRY=host/team/ DEVICE=cpu or cuda
	@tools/images "$(REGISTRY)" "$(DEVICE)" "$(KIND)"
