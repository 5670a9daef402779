# The front door. `make` alone says what there is.
.DEFAULT_GOAL := help
CARGO ?= cargo
DATA_DIR ?=
TIME ?= 360
TARGET = $(or $(CARGO_TARGET_DIR),target)
BUILT = $(TARGET)/debug
RELEASE = $(TARGET)/release
REALKUBE = $(basename $(notdir $(wildcard tests/realkube/tests/*.rs)))

.PHONY: help shim up demo demo-fleet quick test test-clients test-realkube test-vm client wheel test-wheel lint fmt gen pictures bench crash kill-fleet fuzz

help: ## what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 15

# What runs pods takes it in.
up demo demo-fleet test test-realkube test-clients pictures bench crash kill-fleet: shim

shim: ## build the small program that stands beside each pod, which pumice carries within itself
	$(CARGO) shim

up: ## build quickly and bring the platform up on this machine
	$(CARGO) ship --profile quick
	$(TARGET)/quick/pumice up $(if $(DATA_DIR),--data-dir $(DATA_DIR))

# What incremental builds keep costs a whole one a fifth.
demo test test-realkube test-clients test-vm crash: export CARGO_INCREMENTAL = 0

demo: ## build, run the tour, leave nothing behind
	$(CARGO) build --workspace --bin pumice --bin jobctl --bin rendezvous
	./tests/demo/run $(BUILT)

demo-fleet: ## build, send 20,000 jobs (or PUMICE_DEMO_JOBS) to a fleet of clusters that come and go, leave nothing behind
	$(CARGO) ship --release
	./tests/demo/fleet $(RELEASE)

# Tests wait as much as they compute.
TEST_THREADS = $$(($$(nproc) * 3 / 2))

quick: ## check what changed, in minutes: format, rules, clippy, unit tests of changed crates; SINCE=REVISION: since then
	$(CARGO) build --quiet --workspace --bin xtask
	$(BUILT)/xtask quick $(SINCE)

test: ## every test, through the real binaries too
	./tests/prerequisites
	$(CARGO) build --workspace --bins --lib
	RUST_TEST_THREADS=$${RUST_TEST_THREADS:-$(TEST_THREADS)} $(CARGO) test --workspace
	./tests/python/run test $(BUILT)

test-realkube: ## the tests on a real Kubernetes; the first time builds one from source, which takes minutes
	./tests/prerequisites
	./tests/realkube/build
	$(CARGO) build --workspace --bin pumice --bin jobctl
	$(CARGO) test --workspace --no-fail-fast --features pumice-realkube/lane $(REALKUBE:%=--test %) -- --test-threads=3

test-clients: ## clients and operators of others on `pumice up`; the first time builds them from source, which takes minutes
	./tests/prerequisites
	./tests/realkube/build clients
	$(CARGO) build --workspace --bin pumice
	$(CARGO) test --workspace --features pumice-realkube/lane --test clients -- --test-threads=1

test-vm: ## what takes another kernel, on Debian in a virtual machine with KVM; the first time makes an image of it, which takes minutes; VM_ACCEL=tcg: without KVM, slower
	./tests/prerequisites
	$(CARGO) build --workspace --bin pumice --bin jobctl
	$(CARGO) test --workspace --test ways_out --no-run
	./tests/vm/run $(BUILT)

client: ## build jobctl alone, for those who only talk to a platform elsewhere, into target/release
	$(CARGO) client --release

wheel: ## build the Python wheel, with jobctl and pumice in it, into target/wheels; CLIENT=1: without pumice
	PUMICE_WHEEL_CLIENT=$(CLIENT) ./python/wheel

test-wheel: ## build it, install it where nothing is, and run a job from it
	./tests/python/wheel $$(./python/wheel)

# Of the fuzz targets a check links nothing, so that libFuzzer itself, in C++, need not be built.
lint: ## format, clippy, the rules of the house
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features pumice-realkube/lane --quiet -- -D warnings
	CUSTOM_LIBFUZZER_PATH=./none $(CARGO) check --locked --quiet --manifest-path fuzz/Cargo.toml --target-dir $(TARGET)
	$(CARGO) build --quiet --workspace --bin xtask
	$(BUILT)/xtask tidy
	./tests/python/run lint

fmt: ## format everything
	$(CARGO) fmt --all
	./tests/python/run fmt

gen: ## write generated sources anew
	$(CARGO) build --quiet --workspace --bin xtask
	$(BUILT)/xtask codegen

pictures: ## record the documents' pictures of terminals anew
	$(CARGO) ship --release
	./tests/python/run pictures $(RELEASE)

bench: ## measure; NAME=admission, api (a million objects, ten minutes), engine, endtoend, fleet (a million queued jobs, ten minutes), history, idle, images (beside podman), latency, jobs (ten minutes), large or tasks (of Python, too), pods (real ones, beside runc and HyperQueue), quality (schedules, on the logs of PUMICE_BENCH_TRACES, too), record (a day of the scheduler), realkube (on a real Kubernetes, built first) or soak (the long one): only that; writes bench/results/latest.jsonl
	$(CARGO) ship --release
	$(CARGO) bench --workspace --no-fail-fast $(addprefix --bench ,$(or $(NAME),admission engine endtoend idle latency))

crash: ## take the power from under the API server 600 times, kill -9 the platform in the middle of a job of 200 pods, 20 seeds, the controllers 200 times in jobs of 1,000, 180 writers of results, and a twentieth of 5,000 pods
	$(CARGO) build --workspace --bins
	PUMICE_KILL_POINTS=600 $(CARGO) test --workspace --test api power -- --nocapture
	PUMICE_CRASH_SEEDS=20 $(CARGO) test --workspace --test e2e crash:: -- --nocapture
	PUMICE_KILLED_PODS=5000 $(CARGO) test --workspace --test e2e results::every_row -- --nocapture
	PUMICE_KILL_ALL=1 $(CARGO) test --workspace --test cluster killed -- --nocapture
	PUMICE_KILL_ROUNDS=120 $(CARGO) test --workspace --test bundle killed -- --nocapture

kill-fleet: ## kill -9 servers, executors, clusters and Postgres of a fleet 200 times (or PUMICE_KILL_COUNT) under jobs, ten minutes; with the PUMICE_KILL_SEED of an earlier run the same choices are made
	$(CARGO) ship --release
	./tests/python/with-client $(RELEASE) tests/python/kill_fleet.py

FUZZ_TARGETS = $(patsubst fuzz/fuzz_targets/%.rs,%,$(wildcard fuzz/fuzz_targets/*.rs))
fuzz: ## throw TIME seconds (360: an hour together) of strange input at each fuzz target, or at NAME only; needs a nightly compiler and cargo-fuzz
	$(CARGO) +nightly fuzz build
	set -e; for target in $(or $(NAME),$(FUZZ_TARGETS)); do \
		mkdir -p fuzz/corpus/$$target; \
		$(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target $$(ls -d fuzz/seeds/$$target 2>/dev/null) -- \
			-max_total_time=$(TIME) -timeout=10 -rss_limit_mb=2048 -max_len=4096 -len_control=0 -print_final_stats=1; \
	done
