# make demo     set everything up and run all-MiniLM-L6-v2 through TensorRT-RTX and reference engines
# make test     set everything up, lint, and run the tests
# make lint     ruff, mypy --strict, clang-format
# make clean    remove what the others made
#
# Everything is installed into .venv; a second run finds it there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

NATIVE_SOURCES := CMakeLists.txt $(shell find trt_et/runtime -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)
FORMATTED := $(filter %.cpp %.h,$(NATIVE_SOURCES))
TOOLS := $(VENV)/.tools
INSTALLED := $(VENV)/.installed

.PHONY: demo test lint clean setup

setup: $(INSTALLED)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# executorch and the build tools first: the native part is compiled against the installed executorch.
$(TOOLS): constraints.txt | $(BIN)/python
	$(PIP) install --quiet --constraint constraints.txt torch executorch \
	  'scikit-build-core>=0.11' 'cmake>=3.28' ninja 'nlohmann-json<4'
	touch $@

$(INSTALLED): pyproject.toml $(TOOLS) $(NATIVE_SOURCES)
	$(PIP) install --quiet --constraint constraints.txt --no-build-isolation --editable '.[rtx,demo,dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/minilm.py

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

test: lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
