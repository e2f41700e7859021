# The commands of this project. Each is a thin layer over CMake presets (CMakePresets.json); `make help` lists them.
JOBS ?= $(shell nproc)
MODEL ?= models/tiny-moe-q4_0.gguf
PROMPT ?= The captain looked at the sea
# Tests that ThreadSanitizer runs: those with threads of their own.
TSAN_TESTS ?= worker_pool_test sys_test cuda_test doorbell_test sample_row_test

CTEST := ctest --output-on-failure --no-tests=error --parallel $(JOBS)
space := $(subst ,, )
tsan_pattern := ^($(subst $(space),|,$(strip $(TSAN_TESTS))))$$
# Where a build puts the command-line program.
bellhop = $$(find build/$(1) -type f -name bellhop -perm -u+x | head -n 1)

.PHONY: help deps server-test-deps demo test build-release build-dev build-tsan check format bench \
        gpu-package gpu-test gpu-bench clean

help:
	@echo "make demo     install what is missing, build the program, let it write with the shipped model"
	@echo "make test     everything that needs no GPU: layer and format checks, unit and golden tests,"
	@echo "              the same under ASan and UBSan, the thread tests under TSan"
	@echo "make check    the checks that need no build: layers, sizes, formatting"
	@echo "make format   format the sources (clang-format 14)"
	@echo "make bench    micro-benchmarks, the speed of one layer of experts and of the shipped model"
	@echo "make gpu-package  the tests and programs for a machine with a GPU and its driver, in build/gpu-package"
	@echo "make gpu-test     builds it and runs its tests here; without a GPU they fail"
	@echo "make gpu-bench    builds it and runs its benchmarks here: calibration and a residency sweep of MODEL"
	@echo "make clean    remove build/"
	@echo
	@echo "Variables: JOBS=$(JOBS)  MODEL=$(MODEL)  PROMPT=\"$(PROMPT)\""
	@echo "           GPU_ARCH=90-real (all)  SANITIZER=1 (gpu-test: also under compute-sanitizer)"

deps:
	@tools/install_deps.sh

demo: deps
	cmake --preset release --log-level=WARNING
	cmake --build --preset release --parallel $(JOBS) --target bellhop
	$(call bellhop,release) run $(MODEL) -p "$(PROMPT)" -n 64 --stats

build-release: deps
	cmake --preset release --log-level=WARNING
	cmake --build --preset release --parallel $(JOBS)

build-dev: build-release
	cmake --preset dev --log-level=WARNING
	cmake --build --preset dev --parallel $(JOBS)

build-tsan: build-dev
	cmake --preset tsan --log-level=WARNING
	cmake --build --preset tsan --parallel $(JOBS) --target $(TSAN_TESTS)

server-test-deps:
	@tools/install_deps.sh --server-tests

# The whole suite comes last, so that its summary ends the output.
test: server-test-deps check build-release build-dev build-tsan
	$(CTEST) --test-dir build/tsan -R '$(tsan_pattern)'
	$(CTEST) --test-dir build/dev
	$(CTEST) --test-dir build/release

check: deps
	python3 tools/check_layers.py
	python3 tools/check_format.py

format: deps
	python3 tools/check_format.py --fix

bench:
	@tools/install_deps.sh --bench
	cmake --preset release --log-level=WARNING -B build/bench -DBELLHOP_BENCHMARKS=ON -DBELLHOP_TESTS=OFF
	cmake --build build/bench --parallel $(JOBS)
	@set -e; for program in $$(find build/bench/bench -maxdepth 1 -type f -perm -u+x -name '*_bench'); do \
	  echo "== $$program"; $$program; done
	$(call bellhop,bench) opbench --format q4_0,q4_k,q8_0,int4_b32,int3_b64,mxfp4 --isa auto \
	  --inter 768 --rows 1,8,64 --rotate 1GiB
	$(call bellhop,bench) bench $(MODEL)

gpu-package:
	tools/gpu_package.sh --jobs $(JOBS) $(if $(GPU_ARCH),--arch "$(GPU_ARCH)")

gpu-test: gpu-package
	build/gpu-package/run_tests.sh --out build/gpu-results $(if $(SANITIZER),--sanitizer)

gpu-bench: gpu-package
	build/gpu-package/run_benches.sh $(MODEL) --out build/gpu-results

clean:
	rm -rf build
