# bailey's few commands. `make help` says what each does.

# Every recipe is one bash that stops at the first error.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.PHONY: help demo test s3 vm check bench escapes fuzz sim soak

TARGET := $(or $(CARGO_TARGET_DIR),target)

# Arguments for the program that a command ends in: `make demo ARGS=--json`.
ARGS ?=
# Cases of each property under `make fuzz`, and seconds of each fuzz target.
CASES ?= 20000
SECONDS ?= 30
# Runs of the store's model under `make fuzz`, and children of it that are killed.
STORES ?= 2000
KILLS ?= 5000
# Storms of `make fuzz`, each a thousand packets of a box to its gate.
STORMS ?= 10000
# How long a box writes at full rate under `make soak`, in seconds.
SOAK ?= 3600
# Histories of `make sim`, a part of CI, and the first seed.
SEEDS ?= 10000
SEED ?= 1

help:
	@cat <<'EOF'
	make demo    build, then show the whole of bailey on this machine, offline
	make test    every test; the integration tests make networks of their own
	make s3      a mailbox that keeps its blobs in a bucket, on a server of this machine
	make vm      limits by cgroup v2, in a guest with systemd that needs no root
	make check   format, lints, licences
	make bench   figures, each beside its peer in the same run
	make escapes every attack on each tier, and on each peer that is installed: one table
	make fuzz    property tests, CASES=$(CASES) each; random bytes, SECONDS=$(SECONDS) a target;
	             STORMS=$(STORMS) storms of a thousand packets to a gate; STORES=$(STORES) runs of
	             the store's model on a failing disk, KILLS=$(KILLS) kills of its process
	make sim     SEEDS=$(SEEDS) histories of a few devices from SEED=$(SEED) on, each to be seen again

	make soak    a box at full rate for SOAK=$(SOAK) seconds, beside others and another device

	Each names the Debian packages it needs, and asks before it
	installs what is missing. YES=1 installs without asking, YES=0 never does.
	EOF

demo:
	@.ci/packages build run
	cargo build --release -p bailey-node -p bailey-fence -p bailey-gate -p bailey-helper-root \
	  -p bailey-mailbox
	.ci/demo "$(TARGET)/release" $(ARGS)

test:
	@.ci/packages build run test programs browser
	.ci/tun
	.ci/readers "$(TARGET)"
	cargo build --profile ci --workspace --bins
	if cargo nextest --version >/dev/null 2>&1; then
	  cargo nextest run --cargo-profile ci --workspace $(ARGS)
	else
	  cargo test --profile ci --workspace --lib --bins --tests --no-fail-fast $(ARGS)
	fi

s3:
	@.ci/packages build readers
	.ci/s3 "$(TARGET)" cargo test --profile ci -p bailey-mailbox --features s3 --lib

vm:
	@.ci/packages build vm
	cargo build --profile ci -p bailey-node -p bailey-fence -p bailey-gate
	.ci/vm "$(TARGET)/ci"

check:
	@.ci/packages build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --profile ci -- -D warnings
	if cargo deny --version >/dev/null 2>&1; then
	  cargo deny check bans licenses sources
	else
	  echo "cargo-deny is not installed: bans, licences and sources are not checked here"
	fi

bench:
	@.ci/packages build run bench
	.ci/tun
	cargo build --release --workspace --bins
	"$(TARGET)/release/bailey-bench" $(ARGS)

escapes:
	@.ci/packages build run escapes
	.ci/tun
	cargo build --profile ci --workspace --bins
	"$(TARGET)/ci/bailey-escapes" $(ARGS)

fuzz:
	@.ci/packages build
	PROPTEST_CASES=$(CASES) cargo test --profile ci --lib \
	  -p bailey-docs-store -p bailey-envelope -p bailey-gate-proto -p bailey-node
	PROPTEST_CASES=$(STORES) BAILEY_KILLS=$(KILLS) BAILEY_STRIDE=1 BAILEY_STATES=5 \
	  cargo test --profile ci -p bailey-docs-store --test store -- \
	  model:: states:: thinning:: kill_9
	cargo build --profile ci -p bailey-tests --bin bailey-fuzz
	"$(TARGET)/ci/bailey-fuzz" --seconds $(SECONDS) $(ARGS)
	"$(TARGET)/ci/bailey-fuzz" --target gate_packets --runs $(STORMS)

sim:
	@.ci/packages build
	cargo build --profile ci --workspace --bin bailey-sim
	"$(TARGET)/ci/bailey-sim" --seed $(SEED) --seeds $(SEEDS)

soak:
	@.ci/packages build run test
	.ci/tun
	cargo build --profile ci --workspace --bins
	BAILEY_FLOOD_SECONDS=$(SOAK) cargo test --profile ci -p bailey-tests --test it -- \
	  --exact store::a_box_at_full_rate_holds_up_neither_other_boxes_nor_other_devices
