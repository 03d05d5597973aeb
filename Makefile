# Everything that a fresh Debian or Ubuntu with Go needs is installed by
# scripts/need, which these targets call. Plain `go build ./...`,
# `go vet ./...` and `go test ./...` work too.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# One static program: gVisor re-executes it and cannot live in a dynamic one.
BUILD   := CGO_ENABLED=0 go build -trimpath -buildvcs=false
LDFLAGS := -s -w -X main.version=$(VERSION)
GUEST   := guest/binary/dist/skete-guest
RUNSC   := sandbox/gvisor/binary/dist/skete-runsc.zst
TOOL    := go tool -modfile=tools/go.mod
FUZZ    ?= 20s

.PHONY: run test check bench build guest runsc lint fuzz clean need need-test race generate

build: guest runsc ## bin/skete, with the guest program and gVisor's inside
	$(BUILD) -ldflags '$(LDFLAGS)' -o bin/skete ./cmd/skete

guest:
	$(BUILD) -ldflags '$(LDFLAGS)' -o $(GUEST) ./cmd/skete-guest

runsc: # without a version: it changes only when gVisor or its wiring does
	@mkdir -p .build
	$(BUILD) -ldflags '-s -w' -o .build/skete-runsc ./cmd/skete-runsc
	@$(BUILD) -o .build/pack ./sandbox/gvisor/binary/pack
	@.build/pack .build/skete-runsc $(RUNSC)

need:
	@scripts/need git python3 mkfs.ext4:e2fsprogs

run: need build ## sets up all it needs, ends with a program that ran in a sandbox
	@scripts/demo bin/skete

need-test: need # machines with kernels of their own, container engines, templates, pages in a browser
	@scripts/need --bare qemu-system-x86_64:qemu-system-x86 mmdebstrap busybox:busybox-static dockerd:docker.io podman runc umoci mkfs.xfs:xfsprogs chromium

test: need-test build ## every test; skipped ones are named with their reason at the end
	go test -json -timeout 20m ./... | go run ./test/summary

race: ## the tests of packages where goroutines meet, under the race detector
	@scripts/need gcc
	CGO_ENABLED=1 go test -race -short -json -timeout 20m $(shell go list ./... | grep -v -e /cmd/ -e /test/) | go run ./test/summary

check: ## the fast inner loop, under three minutes
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt the files above' >&2; exit 1; }
	go vet ./...
	go test -short -timeout 5m ./...

bench: need build ## JSON lines on stdout; ONLY=brain chooses, RECORD=1 appends them to test/bench/results.jsonl too
	@scripts/need bwrap:bubblewrap
	@scripts/need --bare qemu-system-x86_64:qemu-system-x86 mmdebstrap busybox:busybox-static podman runc umoci skopeo
	@scripts/peers .build/peers || echo 'bench: goes on without them' >&2
	@go run ./test/bench -skete bin/skete $(if $(ONLY),-only $(ONLY)) $(if $(RECORD),| tee -a test/bench/results.jsonl)

lint:
	$(TOOL) golangci-lint run ./...

fuzz: ## each fuzz target for FUZZ (default 20s)
	@scripts/fuzz $(FUZZ)

generate: ## guest/wire from guest.proto
	@scripts/need protoc:protobuf-compiler
	@mkdir -p .build && go build -modfile=tools/go.mod -o .build/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	PATH="$(CURDIR)/.build:$$PATH" go generate ./guest/wire

clean:
	rm -rf bin .build $(GUEST) $(RUNSC)
