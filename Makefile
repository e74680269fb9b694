# Targets need Go and a network. image and e2e need Docker, many tests redis-server.

GO      ?= go
VERSION ?= $(shell cat internal/buildinfo/VERSION)
COMMIT  ?= $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)
LDFLAGS := -s -w -X notifier/internal/buildinfo.version=$(VERSION) -X notifier/internal/buildinfo.commit=$(COMMIT)
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 1m
CHAOSTIME ?= 10m
N       ?= 1000
ROUNDS  ?= 20

# LONG runs long tests on a real Redis and shows their tables.
LONG := NOTIFIER_TEST_REDIS=require NOTIFIER_TEST_LONG=1 NOTIFIER_CHAOS_TIME=$(CHAOSTIME) $(GO) test -count=1 -v -timeout 0

NIGHTLY := test-long test-matrix chaos chaos-cluster upgrade isolation survive e2e fuzz vulnerabilities bench-regressions
RELEASE := mutants prove test-peers bench-peers # in addition

.DEFAULT_GOAL := help
.PHONY: help build image demo test real check nightly release-check promise pictures bench bench-storm bench-backlog $(NIGHTLY) $(RELEASE)

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-18s %s\n", $$1, $$2}'

build: ## bin/notifier, as released: static, without the embedded servers
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/notifier ./cmd/notifier

image: ## the production image, notifier:local
	docker build --build-arg VERSION="$(VERSION)" --build-arg COMMIT="$(COMMIT)" -t notifier:local .

demo: ## see the limits hold, in a few seconds, with nothing installed
	$(GO) run ./cmd/notifier-dev demo

test: ## the everyday tests; two minutes on two cores
	$(GO) test ./...

check: ## the gate for every change; ten to twenty minutes
	.ci/run

nightly: ## all tests that take too long for the gate, and a table of them; hours
	.ci/long $(NIGHTLY)

release-check: ## nightly, and in addition the targets from mutants to bench-peers
	N=2000 .ci/long $(NIGHTLY) $(RELEASE)

promise: ## record all names that a release promises (docs/compatibility.md)
	$(GO) test -count=1 -run '^TestWhatIsPromised$$' ./cmd/notifier -promise

pictures: ## the pictures of the README; needs Chromium
	$(GO) run ./docs/pictures

bench: ## Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-storm: ## drain a storm beside a consumer that only acknowledges, and write the tables
	$(GO) run ./bench/storm -write

bench-backlog: ## a worker's memory with backlogs of large messages
	$(GO) run ./bench/storm -backlog

test-long: ## the everyday tests and the long ones
	NOTIFIER_TEST_LONG=1 NOTIFIER_TEST_REDIS=require $(GO) test -count=1 -v -timeout 30m ./...

real: ## notifier with nginx, squid, Prometheus, a collector and others, and the table in docs/compatibility.md
	NOTIFIER_TEST_REAL=require NOTIFIER_TEST_REDIS=require $(GO) test -count=1 -v ./test/real -write

test-matrix: ## the limiter on each kind of store, and a table; Redis 8 and Valkey 8 need Docker
	@$(GO) run ./test/redistest/matrix

chaos: ## kill, stop and cut off everything for CHAOSTIME (10m), then account for every event
	$(LONG) -run '^(TestChaos|TestStoreLoss)$$' ./test/chaos

chaos-cluster: ## kill leaders of NATS and Redis under load for CHAOSTIME (10m), and a table of the stalls
	$(LONG) -run '^TestCluster$$' ./test/chaos

upgrade: ## roll from the release before to this code and back under load for CHAOSTIME (10m); needs git's history
	program=$$(.ci/release-before) && NOTIFIER_TEST_RELEASE=$$program $(LONG) -run '^TestRollingUpgrade$$' ./test/chaos

isolation: ## the cost of a slow channel or a flood for the others, at full scale, and a table
	NOTIFIER_TEST_REDIS=require NOTIFIER_ISOLATION=full $(GO) test -count=1 -v -timeout 0 ./test/isolation

survive: ## ROUNDS (20) failovers and empty restarts of Redis under load, and a table
	NOTIFIER_TEST_REDIS=require NOTIFIER_SURVIVE_ROUNDS=$(ROUNDS) $(GO) test -count=1 -v -timeout 0 ./test/survival

e2e: ## docker-compose.yml and its overrides in Docker
	.ci/compose

fuzz: ## each fuzz target for FUZZTIME (1m), until the first finding
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r package; do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

vulnerabilities: ## known vulnerabilities in the code that notifier calls
	@$(GO) install $(GOVULNCHECK) || { echo "SKIPPED: govulncheck cannot be installed"; exit 0; }; \
	code=0; timeout 300 "$$($(GO) env GOPATH)/bin/govulncheck" ./cmd/notifier || code=$$?; \
	case $$code in 0) ;; 3) exit 1 ;; *) echo "SKIPPED: govulncheck ended with status $$code" ;; esac

bench-regressions: ## warn if the code has become slower since bench-storm wrote the tables
	$(GO) run ./bench/storm -regressions

mutants: ## one mistake after the other in the limiter; each must fail a test. More than an hour
	NOTIFIER_TEST_REDIS=require $(GO) test -tags mutants -run '^TestEveryMutantIsCaught$$' -count=1 -v -timeout 3h ./internal/ratelimit

prove: ## write the limiter's test vectors, then play N (1000) random histories of each kind on each store
	NOTIFIER_TEST_REDIS=require $(GO) test -run '^TestVectors' -count=1 -v ./internal/ratelimit -write-vectors
	git diff --exit-code -- internal/ratelimit/testdata
	NOTIFIER_TEST_REDIS=require $(GO) test -run '^TestTheScriptsDecideLikeTheModel$$' -count=1 -v -timeout 0 ./internal/ratelimit -rapid.checks=$(N) -rapid.nofailfile

test-peers: ## the tests of bench/peers, a module of its own
	cd bench/peers && $(GO) vet ./... && $(GO) test -count=1 -v ./...

bench-peers: ## the same storm through other tools, and a table; ten minutes
	cd bench/peers && $(GO) run . -write
