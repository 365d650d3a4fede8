# gangd: build, try out, test. `make help` lists the targets.

SHELL := bash
.DEFAULT_GOAL := help

VERSION ?= $(shell .tools/version)
LDFLAGS := -s -w -X main.version=$(VERSION)
SOAK    ?= 30m

# Commands, and the package that each is made of.
gangd        := ./gangd
gangd-device := ./plugins/device
gangd-driver := ./plugins/driver
gangd-ddim   := ./jobspecs/ddim
COMMANDS     := gangd gangd-device gangd-driver gangd-ddim

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: cc
cc:
	@command -v go >/dev/null || { echo "go is not on PATH: install the version that go.mod names, or newer" >&2; exit 1; }
	@command -v "$$(go env CC)" >/dev/null || { echo "no C compiler ($$(go env CC)) on PATH: go-nvml needs cgo. Debian, Ubuntu: apt-get install gcc libc6-dev" >&2; exit 1; }

.PHONY: tools
tools: cc ## Put nomad, consul and terraform into .bin: from PATH, else built (12 minutes, once)
	@.tools/provide

.PHONY: build
build: cc ## Build gangd, both Nomad plugins and the reference runner into .bin
	@mkdir -p .bin
	$(foreach c,$(COMMANDS),go build -buildvcs=false -ldflags '$(LDFLAGS)' -o .bin/$(c) $($(c)) &&) true

.PHONY: demo
demo: tools build ## From an HCL file to a video: start a cluster, run a gang of 16 GPUs, end the cluster
	@.tools/demo

.PHONY: dev
dev: tools build ## Start a development cluster and leave it running
	@.tools/dev

.PHONY: down
down: ## End the development cluster
	@.tools/cluster down dev

.PHONY: test
test: test-unit lint vuln test-e2e ## Unit and end-to-end tests, lint, vuln: what CI runs

.PHONY: test-unit
test-unit: tools ## Tests that need no cluster; some run a Nomad or a Consul alone
	go test $$(go list ./... | grep -v '/e2e$$')
	go -C .tools/vulndb test .

.PHONY: test-e2e
test-e2e: tools build ## Tests against real Nomad and Consul
	go test -count=1 -timeout 30m -v ./e2e/...

.PHONY: lint
lint: tools ## gofmt, go vet, staticcheck, terraform fmt
	@.tools/lint/run

.PHONY: vuln
vuln: cc ## Known vulnerabilities that our code reaches and a newer dependency mends
	@.tools/vulndb/run

.PHONY: proto
proto: ## Generate the Go code of the .proto files
	@.tools/proto/generate

.PHONY: bench
bench: tools build ## Benchmarks, those against a real cluster included
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: soak
soak: tools build ## Run all tests again and again: make soak SOAK=2h
	@.tools/soak $(SOAK)

# Each property prints its first seed and the number of its events; -rapid.seed=SEED begins there again.
.PHONY: properties
properties: cc ## Try each property of the engine for a time, from a fresh seed: make properties SOAK=1h
	go test -count=1 -timeout 0 -v -run 'Always|Strict|Equal|Random|Share|Wide|Flood' ./internal/schedule ./internal/sim -soak=$(SOAK)

.PHONY: clean
clean: ## Remove what was built; tools and videos stay
	rm -f $(addprefix .bin/,$(COMMANDS) staticcheck govulncheck judge-vulnerabilities)
	rm -rf .bin/vulndb
