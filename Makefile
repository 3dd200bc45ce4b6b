# Everything is built by CMake and done by scripts/: this file only forwards.
PREFIX ?= /usr/local

help:
	@echo 'make demo      install what is missing, build, make a data set of real photographs, run three tasks on it'
	@echo 'make check     the tests: release, and AddressSanitizer + UndefinedBehaviorSanitizer (minutes)'
	@echo 'make bench     the benchmarks, with their peers; alone on a quiet machine (perf/run NAME... for some)'
	@echo 'make soak      the long forms of the tests, restartable (hours)'
	@echo 'make lint      clang-format, clang-tidy, cppcheck, shellcheck'
	@echo 'make format    rewrite the C files in the format of the tree'
	@echo 'make install   install to PREFIX=$(PREFIX)'
	@echo 'make wheel     the Python package, as build/wheel/forebay-*.whl'
	@echo 'make clean     remove build/'

demo check soak lint:
	@scripts/$@
bench:
	@perf/run --all
format:
	@scripts/lint --fix
install:
	@scripts/setup build
	@cmake --preset release -DBUILD_TESTING=OFF -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	@cmake --build --preset release
	@cmake --install build/release
wheel:
	@scripts/setup build check
	@build/venv/bin/pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/wheel .
clean:
	@rm -rf build

.PHONY: help demo check soak lint bench format install wheel clean
