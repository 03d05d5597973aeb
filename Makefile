# Everything that a fresh Debian or Ubuntu with Go needs is installed by
# scripts/need, which these targets call. Plain `go build ./...`,
# `go vet ./...` and `go test ./...` work too.

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
# One static program: gVisor re-executes it and cannot live in a dynamic one.
BUILD   := CGO_ENABLED=0 go build -trimpath -buildvcs=false
# Programs, tests and lint share what was compiled, in every checkout.
export GOFLAGS := $(GOFLAGS) -trimpath
LDFLAGS := -s -w -X main.version=$(VERSION)
# What vendors' types, flags, surfaces that translate, and files take does not matter, and without inlining
# they are a megabyte smaller. TestWeight builds with the same.
SMALL   := -gcflags=github.com/openai/openai-go/v3/...=-l -gcflags=github.com/anthropics/anthropic-sdk-go/...=-l -gcflags=github.com/goccy/go-yaml/...=-l -gcflags=github.com/coder/acp-go-sdk/...=-l -gcflags=github.com/modelcontextprotocol/go-sdk/...=-l -gcflags=github.com/danielgtaylor/huma/v2/...=-l -gcflags=go.yaml.in/yaml/v4/...=-l -gcflags=mvdan.cc/sh/v3/...=-l -gcflags=github.com/skete-dev/skete/cmd/skete/...=-l -gcflags=github.com/spf13/...=-l -gcflags=github.com/santhosh-tekuri/...=-l -gcflags=github.com/segmentio/encoding/...=-l -gcflags=github.com/skete-dev/skete/server/route=-l -gcflags=github.com/skete-dev/skete/template/...=-l -gcflags=github.com/skete-dev/skete/acp=-l -gcflags=github.com/skete-dev/skete/mcp/...=-l -gcflags=github.com/skete-dev/skete/skill/...=-l -gcflags=github.com/skete-dev/skete/cowork/...=-l -gcflags=github.com/skete-dev/skete/sandbox/docker/...=-l -gcflags=github.com/skete-dev/skete/sandbox/qemu/...=-l -gcflags=github.com/skete-dev/skete/sandbox/remote/...=-l -gcflags=github.com/skete-dev/skete/plugin/...=-l -gcflags=github.com/skete-dev/skete/server/envd/...=-l -gcflags=github.com/skete-dev/skete/server/vercel/...=-l -gcflags=github.com/skete-dev/skete/server/workflow=-l -gcflags=github.com/skete-dev/skete/server/share=-l -gcflags=github.com/skete-dev/skete/server/login=-l -gcflags=github.com/skete-dev/skete/client=-l -gcflags=github.com/skete-dev/skete/egress/registry=-l -gcflags=github.com/skete-dev/skete/audit=-l -gcflags=github.com/nats-io/jwt/...=-l -gcflags=github.com/google/...=-l
GUEST   := guest/binary/dist/skete-guest.zst
AGENT   := guest/binary/dist/skete-agent.zst
RUNSC   := sandbox/gvisor/binary/dist/skete-runsc.zst
TOOL    := go tool -modfile=tools/go.mod
FUZZ    ?= 20s
# Packages that boot virtual machines, after the others: without KVM each of them
# keeps a core busy; and the one whose pages are to be quick. The longest is first.
EMULATE := ./test/e2e ./test/ui ./sandbox/manager ./sandbox/qemu ./sandbox/microvm ./template/recipe ./workspace/replica

RACE    := CGO_ENABLED=1 go test -race -short -json -vet=off -timeout 20m -p 3

.PHONY: hello run test check bench eval eval-small dist dist-npm dist-python build guest agent runsc lint fuzz clean need need-test race generate web

build: guest agent runsc ## bin/skete, with the guest program, the agent's and gVisor's inside
	$(BUILD) $(SMALL) -tags packed -ldflags '$(LDFLAGS)' -o bin/skete ./cmd/skete

hello:
	@test -e bin/skete || echo 'make: fetching modules and compiling; the first time this takes three to six minutes on two cores' >&2

.build/pack: hello FORCE
	@mkdir -p .build
	@$(BUILD) -o $@ ./internal/packed/pack
FORCE:

guest: .build/pack
	$(BUILD) -ldflags '$(LDFLAGS)' -o .build/skete-guest ./cmd/skete-guest
	@rm -f guest/binary/dist/skete-guest # as earlier versions left it
	@.build/pack .build/skete-guest $(GUEST)

# After the guest: two builds at once would compile the same packages twice.
agent: .build/pack | guest # without a version: machines keep it as long as it is the same
	$(BUILD) -ldflags '-s -w' -o .build/skete-agent ./cmd/skete-agent
	@.build/pack .build/skete-agent $(AGENT) $(GUEST)

runsc: .build/pack | agent # without a version: it changes only when gVisor or its wiring does
	$(BUILD) -ldflags '-s -w' -o .build/skete-runsc ./cmd/skete-runsc
	@.build/pack .build/skete-runsc $(RUNSC)

need:
	@scripts/need git python3 zstd mkfs.ext4:e2fsprogs

run: ## sets up all it needs, ends with a program that ran in a sandbox
	@$(MAKE) --no-print-directory -j2 need build # packages install while programs compile
	@scripts/demo bin/skete

need-test: need # machines with kernels of their own, container engines, templates, pages in a browser
	@scripts/need --bare qemu-system-x86_64:qemu-system-x86 mmdebstrap busybox:busybox-static dockerd:docker.io podman runc umoci mkfs.xfs:xfsprogs chromium node:nodejs npm pip3:python3-pip xz:xz-utils pdftotext:poppler-utils curl wget

test: need-test build ## every test; skipped ones are named with their reason at the end
	@go build -o .build/summary ./test/summary
	@echo 'go test of all packages; a line each, and what fails at once'
	@{ go test -json -vet=off -timeout 20m -p 3 $(filter-out $(shell go list $(EMULATE)),$(shell go list ./...)); \
		go test -json -vet=off -timeout 60m -p 2 $(EMULATE); } | .build/summary

race: need-test ## the tests of packages where goroutines meet, under the race detector
	@scripts/need gcc
	@echo 'go test -race -short of all packages but programs and whole runs'
	@mkdir -p .build && go build -o .build/summary ./test/summary
	@$(RACE) $(shell go list ./... | grep -v -e /cmd/ -e /test/) | .build/summary -again .build/again
	@test ! -s .build/again || $(RACE) $$(cat .build/again) | .build/summary

check: ## the fast inner loop, under three minutes: the packages, and a few whole runs
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo 'gofmt the files above' >&2; exit 1; }
	go vet ./...
	go test -short -vet=off -timeout 5m $(filter-out $(shell go list ./test/...),$(shell go list ./...))
	go test -short -vet=off -timeout 5m -run '^(TestRun|TestRun_survivesKill9|TestForkAndReplay)$$' ./test/e2e

bench: need build ## JSON lines on stdout; ONLY=brain chooses, RECORD=1 appends them to test/bench/results.jsonl too
	@scripts/need bwrap:bubblewrap
	@scripts/need --bare qemu-system-x86_64:qemu-system-x86 mmdebstrap busybox:busybox-static podman runc umoci skopeo
	@scripts/peers .build/peers || echo 'bench: goes on without them' >&2
	@go run ./test/bench -skete bin/skete $(if $(ONLY),-only $(ONLY)) $(if $(RECORD),| tee -a test/bench/results.jsonl)

# What is the same for all evaluations.
EVAL = go run ./test/eval $(if $(ONLY),-only $(ONLY)) $(if $(EACH),-each $(EACH)) $(if $(JOBS),-jobs $(JOBS)) $(if $(LIMIT),-limit $(LIMIT))

eval: need build ## the tasks of test/eval with MODEL=ollama/qwen3:8b; ONLY=fix, CALLING=json, MODEL_URL=URL, PEER=deepagents beside us: docs/eval.md
	@test -n '$(MODEL)' || { echo 'eval: which model? make eval MODEL=ollama/qwen3:8b' >&2; exit 1; }
	@$(EVAL) -model '$(MODEL)' $(if $(MODEL_URL),-model-url '$(MODEL_URL)') $(if $(MODEL_KEY_ENV),-model-key-env $(MODEL_KEY_ENV)) $(if $(CALLING),-calling $(CALLING))
ifneq ($(PEER),)
	@scripts/need bwrap:bubblewrap && scripts/peer-deepagents .build/peer && \
		$(EVAL) -peer $(PEER) -model '$(MODEL)' -model-url '$(MODEL_URL)' $(if $(MODEL_KEY_ENV),-model-key-env $(MODEL_KEY_ENV)) || \
		echo 'eval: goes on without $(PEER)' >&2
endif

eval-small: EACH ?= 2
eval-small: LIMIT ?= 2m
eval-small: need build ## ten tasks with a model that fits everywhere, by native and by JSON calls: that no run hangs
	@scripts/small-model sh -c 'for calling in native json; do $(EVAL) -calling $$calling -model "$$MODEL" -model-url "$$MODEL_URL" || exit; done'

lint: ## the linters, and whether a function is dead
	$(TOOL) golangci-lint run ./...
	@scripts/dead

fuzz: ## each fuzz target for FUZZ (default 20s)
	@scripts/fuzz $(FUZZ)

generate: ## guest/wire and server/envd/protocol from their .proto files
	@scripts/need protoc:protobuf-compiler
	@mkdir -p .build && go build -modfile=tools/go.mod -o .build/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	PATH="$(CURDIR)/.build:$$PATH" go generate ./guest/wire ./server/envd/protocol

web: ## web/dist of web/ui, which only who edits the UI needs
	@scripts/need --bare node:nodejs npm
	@scripts/web

dist: dist-npm dist-python ## the packages of the SDKs, in dist/

dist-npm: ## dist/skete-VERSION.tgz for npm; that it installs and imports is tried
	@scripts/need --bare node:nodejs npm
	@scripts/dist-npm dist

dist-python: ## the wheel of sdk/python, and that it installs and imports
	@scripts/need pip3:python3-pip
	@scripts/wheel sdk/python dist

clean:
	rm -rf bin dist .build $(GUEST) $(AGENT) $(RUNSC)
