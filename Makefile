# walrelay. Everything here is a short form of a go command; "make help" lists it.

SHELL    := /bin/sh
GO       ?= go
VERSION  := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# The race detector needs a C compiler; without one the tests run without it, and "make test" says so.
RACE     := $(if $(shell command -v $$($(GO) env CC) 2>/dev/null),-race)
ARGS     ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Everything on this machine, with live latencies: make demo ARGS='--for 15s'
	@$(GO) run -ldflags '$(LDFLAGS)' ./cmd/walrelay demo $(ARGS)

.PHONY: build
build: ## Build bin/walrelay, static
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/walrelay ./cmd/walrelay

.PHONY: test
test: lint ## All checks and all tests, with real PostgreSQL and real Kafka: what CI runs
	@$(GO) run ./test/harness/cmd/up -- $(MAKE) --no-print-directory vuln tests \
	  && echo "make test: ok" || { echo "make test: FAILED"; exit 1; }

# What could not be run goes into the list that the harness prints at the end.
NOTE := tee -a $${HARNESS_NOT_RUN:-/dev/null}

.PHONY: tests
tests:
	@$(if $(RACE),:,echo "the race detector: no C compiler" | $(NOTE))
	$(GO) test $(RACE) -timeout 14m $(ARGS) ./...
	@$(if $(RACE),echo "the simulation again without the race detector and with more histories")
	$(if $(RACE),$(GO) test $(ARGS) -run TestHistories ./test/simulation)

.PHONY: test-fast
test-fast: ## Tests that need no server: seconds
	$(GO) test -short $(ARGS) ./...

.PHONY: chaos
chaos: ## Ten minutes of crashes and outages for each mode: make chaos ARGS='-chaos.for=1h -chaos.seed=7'
	@$(GO) run ./test/harness/cmd/up -kafka=false -postgres=false -- \
	  $(GO) test ./test/chaos -run TestChaos -v -timeout 24h -chaos.for=10m $(ARGS)

.PHONY: lint
lint: ## gofmt, go vet and staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not gofmt'ed:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

.PHONY: vuln
vuln: ## Known vulnerabilities (govulncheck), where its database can be reached
	@mkdir -p .cache
	@status=0; $(GO) tool govulncheck ./... > .cache/govulncheck 2>&1 || status=$$?; \
	case $$status in \
	0) echo "govulncheck: ok" ;; \
	3) cat .cache/govulncheck; exit 1 ;; \
	*) tail -n 1 .cache/govulncheck; echo "govulncheck: its database cannot be reached" | $(NOTE) ;; \
	esac

.PHONY: fuzz
fuzz: ## Fuzz each target for a while: make fuzz FOR=1m
	@for dir in $$(git grep -l '^func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$dir/*_test.go); do \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FOR),30s) ./$$dir || exit 1; \
	  done; \
	done

.PHONY: settings
settings: ## Write the table of settings in README.md anew
	$(GO) test ./internal/config -run TestReadmeHasTheTable -update

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin .cache

.PHONY: bench
bench: ## Measure drain, memory and latency with real servers, about twelve minutes: make bench ARGS='--only drain'
	@mkdir -p .cache
	$(GO) run ./test/bench --json .cache/bench.json $(ARGS)

.PHONY: mutants
mutants: ## Plant deliberate bugs in a copy and show which test notices each: make mutants ARGS='-only carr'
	$(GO) run ./test/mutants $(ARGS)
