# Everything a newcomer runs. Needs Python 3.11+, a C++20 compiler and make; the rest comes into .venv.
TORCH  ?= 2.13.0
JOBS   ?= $(shell nproc)
PYTHON ?= $(firstword $(foreach candidate,python3 python3.13 python3.12 python3.11,\
            $(shell $(candidate) -c 'import sys; sys.version_info >= (3, 11) and print("$(candidate)")' 2>/dev/null)))

VENV := .venv
BIN  := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Without compiled files each of the thousands of processes that tests start would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet

PYTEST := $(BIN)/python -m pytest --quiet
# Side by side: each worker begins with a stretch of the tests, and who has finished takes some of another's. Two more
# than there are processors, as much of the time of many tests is waiting: for a time-out, a death, another process.
# What must run alone sees to that itself (tests/conftest.py).
SIDE_BY_SIDE := --numprocesses $(shell expr $(JOBS) + 2) --dist worksteal
WHICH := not soak and not sweep
STUBS := _core _solve _cuda _emulation
CXX_FILES = $(shell find csrc tests/csrc/fuzz tests/csrc/faults tests/csrc/model -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh')

.DEFAULT_GOAL := help
.PHONY: help build stubs view-libraries programs demo wheel docs test test-all test-clients fuzz sanitize test-aarch64 cuda nccl-tuner test-cuda lint tidy tidy-all format clean

help: ## this list
	@echo 'make TARGET [TORCH=$(TORCH)] [PYTHON=$(PYTHON)] [JOBS=$(JOBS)]'
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

# ---- set-up: each stamp lies in what it vouches for, so deleting that is enough to redo it ---------------------------
$(BIN)/python:
	@test -n "$(PYTHON)" || { echo 'syntony needs Python 3.11 or newer: say make PYTHON=/path/to/python3' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

DEPENDENCIES := $(VENV)/dependencies-torch-$(TORCH)
$(DEPENDENCIES): pyproject.toml | $(BIN)/python
	@echo 'installing dependencies and torch $(TORCH) into $(VENV)'
	@$(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	  print(*p["build-system"]["requires"], *p["project"]["dependencies"], *p["project"]["optional-dependencies"]["dev"], \
	  sep="\n")' > $(VENV)/requirements.txt
	@$(PIP) -r $(VENV)/requirements.txt 'torch==$(TORCH)'
	@rm -f $(VENV)/dependencies-torch-*
	@touch $@

build/editable/installed: pyproject.toml $(DEPENDENCIES)
	@echo 'building the extension and linking this source tree into $(VENV)'
	@CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(PIP) --no-build-isolation --no-deps --editable .
	@touch $@

build: build/editable/installed ## set everything up; after an edit, rebuild what changed
	@cmake --build build/editable --parallel $(JOBS) -- --quiet

# nanobind's own generator, from what csrc/bindings says of each function; committed, since type checkers read sources that
# nobody has built. _torch is torch's pybind11's: its stub is written by hand.
stubs: build ## write the type stubs of the compiled modules anew, after an edit of csrc/bindings
	@for module in $(STUBS); do \
	  $(BIN)/python -m nanobind.stubgen -q -m syntony.$$module -p csrc/bindings/stub_patterns.txt -o src/syntony/$$module.pyi || exit; \
	done

# What the pages of `syntony view` bring along of others' work: pinned, with its licence.
UPLOT := 1.6.32
view-libraries: ## fetch uPlot $(UPLOT), which draws the curves of `syntony view`, anew (needs npm)
	@folder=$$(mktemp -d) && (cd $$folder && npm pack --silent uplot@$(UPLOT) > /dev/null && tar -xzf uplot-$(UPLOT).tgz) && \
	  cp $$folder/package/dist/uPlot.iife.min.js $$folder/package/dist/uPlot.min.css $$folder/package/LICENSE src/syntony/view/page/uplot/ && \
	  rm -rf $$folder

programs: build ## what tests compile (make test does it first)
	@cmake --build build/editable --parallel $(JOBS) --target test_programs -- --quiet

# As pip hides the environment from an isolated build, CMakeLists.txt looks for its torch there by itself.
wheel: $(DEPENDENCIES) ## what a release would upload, into dist/: the sdist, and the wheel for this Python and torch
	@$(PIP) $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["release"])')
	@rm -rf dist/wheel && mkdir -p dist/wheel
	@$(BIN)/python -m build --sdist --no-isolation --outdir dist .
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist/wheel dist/syntony-*.tar.gz
	@auditwheel repair --wheel-dir dist --exclude 'libtorch*' --exclude 'libc10*' dist/wheel/syntony-*.whl && rm -r dist/wheel

docs: build ## the documentation as a site, in dist/site
	@$(PIP) $$($(BIN)/python -c 'import tomllib; \
	  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@NO_MKDOCS_2_WARNING=1 mkdocs build --quiet

# ---- what one does with it -------------------------------------------------------------------------------------------
demo: build ## the story on one screen: detect, synthesize, prove, execute, benchmark, train
	@$(BIN)/python -m syntony.benchmarks.demo

test: programs ## the test suite, or with TESTS=.. that part of it
ifdef TESTS
	@$(PYTEST) $(TESTS)
else
	@$(PYTEST) $(SIDE_BY_SIDE) -m '$(WHICH)'
endif

test-all: WHICH := not soak
test-all: test ## the same with whole sweeps: every rank count, torch's own suite at 2 and 4 ranks

fuzz: programs ## millions of frames, messages, Programs and files that nobody wrote, under sanitizers; every system call fails once (minutes)
	@$(PYTEST) -m soak tests/csrc/test_fuzz.py tests/csrc/faults tests/synth/formats/test_hostile_files.py

# Programs of others, in an environment of their own with the wheel that a user would build.
CLIENTS := build/clients
$(CLIENTS)/installed: tests/clients/requirements.txt $(DEPENDENCIES)
	@$(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet -r tests/clients/requirements.txt
	@touch $@

test-clients: $(CLIENTS)/installed ## accelerate, Lightning, DeepSpeed, Ray, .. on gloo and on Syntony, losses compared (half an hour, 2 GB)
	@$(CLIENTS)/bin/python -m pip install --quiet --force-reinstall --no-deps .
	@$(CLIENTS)/bin/python -m tests.clients $(SCRIPTS)

sanitize: programs ## the runtime under the address, undefined behaviour and thread sanitizers (minutes)
	@$(PYTEST) -m 'soak or not soak' tests/csrc/test_tcp.py tests/csrc/runtime/test_sanitizers.py \
	  tests/csrc/cuda/test_interpreter.py

test-aarch64: build ## the core for 64-bit Arm, cross-compiled, under qemu-user; says why not where these are missing (minutes)
	@$(PYTEST) -rs -m soak tests/csrc/test_aarch64.py

cuda: build ## the CUDA executor for every GPU that nvcc knows of ours: all of it, no warning allowed
	@cmake --build build/editable --parallel $(JOBS) --target syntony_cuda _cuda -- --quiet

nccl-tuner: ## build/libnccl-tuner-syntony.so, the tuner plugin for stock NCCL (needs a C compiler only)
	@mkdir -p build
	@$(or $(CC),cc) -std=c11 -O2 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden csrc/nccl_tuner/tuner.c -o build/libnccl-tuner-syntony.so

test-cuda: build ## everything that needs a GPU; says why not where there is none
	@$(PYTEST) -rs -m 'soak or not soak' tests/csrc/cuda/test_gpu_*.py tests/collectives/cuda/test_gpu_*.py tests/benchmarks/cuda/test_gpu_*.py || [ $$? -eq 5 ]  # 5: all skipped at import

lint: build ## ruff, mypy and clang-format
	@ruff check --quiet .
	@ruff format --check --quiet .
	@mypy --no-error-summary
	@clang-format --dry-run -Werror $(CXX_FILES)

# Files are compiled by folder (CMakeLists.txt); clang-tidy reads them one by one, so that each includes what it uses.
# Its static analyzer is nine tenths of the work: one file in eight meets it, other ones tomorrow.
ANALYZED := 8
TIDY := clang-tidy --quiet -p build/editable --extra-arg=-Wno-error  # what clang warns of is no check of ours unless .clang-tidy says so
tidy: build ## clang-tidy over the core, its analyzer over an eighth of it
	@grep -rohE 'csrc/(core|solve|emulation)/[^" ]*\.cpp' build/editable/CMakeFiles/*/Unity build/editable/compile_commands.json | sort -u | awk -v n=$(ANALYZED) -v today=$$(date +%j) \
	  '{ print "--checks=" (NR % n == today % n ? "" : "-clang-analyzer-*"), $$0 }' | xargs -P $(JOBS) -n 2 \
	  $(TIDY) 2>build/tidy.log || { cat build/tidy.log; exit 1; }

tidy-all: ANALYZED := 1
tidy-all: tidy ## the same with all of it analyzed (minutes)

format: $(DEPENDENCIES) ## rewrite sources in the house style
	@ruff check --quiet --fix . ; ruff format --quiet .
	@clang-format -i $(CXX_FILES)

clean: ## remove what was built (the .venv stays)
	rm -rf build dist src/syntony/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
