# A thin face on Meson: `make help` lists what there is.

PREFIX ?= /usr/local
DESTDIR ?=
SECONDS ?= 60

.PHONY: build demo test test-long bench fuzz install uninstall dist deb format \
	clean help

build: ## build the program and the libraries in build/
	@tools/install-dependencies build
	@tools/setup build
	@ninja -C build

demo: build ## run the small shop of examples/ from end to end
	@tools/demo build

test: ## run every check and test
	@tools/install-dependencies test
	@tools/test

test-long: ## the same with the long scenarios at full size
	@tools/install-dependencies test
	@tools/test --long

bench: build ## measure against the ceilings of this machine
	@tools/bench --build build

fuzz: ## let each fuzzer run for SECONDS (60)
	@tools/install-dependencies fuzz
	@tools/fuzz $(SECONDS)

install: build ## install under PREFIX (/usr/local), below DESTDIR if given
	@meson configure build -Dprefix="$(PREFIX)"
	@tools/installed --before build "$(abspath $(DESTDIR))"
	@DESTDIR="$(abspath $(DESTDIR))" meson install -C build --quiet
	@tools/installed build "$(abspath $(DESTDIR))"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

uninstall: ## remove what install put there; PREFIX and DESTDIR as then
	@tools/setup build
	@meson configure build -Dprefix="$(PREFIX)"
	@ninja -C build build.ninja >/dev/null
	@tools/installed --remove build "$(abspath $(DESTDIR))"
	@if [ -z "$(DESTDIR)" ] && [ "$$(id -u)" -eq 0 ]; then ldconfig; fi

dist: ## a tarball of what is committed, with its checksum, in dist/
	@tools/package tar

deb: ## Debian packages of it as well
	@tools/install-dependencies deb
	@tools/package deb

format: ## let clang-format lay out the sources
	@tools/install-dependencies test
	@tools/format

clean: ## remove the build folders
	@rm -rf dist build build-test build-asan build-tsan build-clang build-fuzz

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile | expand -t 12
