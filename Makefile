# What one does with this project, by name. Go and a network are enough for most of it; e2e, image and up need Docker.

GO      ?= go
VERSION ?= $(shell cat internal/buildinfo/VERSION)
COMMIT  ?= $(shell git describe --always --abbrev=40 --exclude '*' --dirty 2>/dev/null)
LDFLAGS := -s -w -X notifier/internal/buildinfo.version=$(VERSION) -X notifier/internal/buildinfo.commit=$(COMMIT)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME ?= 1m
CHAOSTIME ?= 10m
N       ?= 1000
ROUNDS  ?= 20

.DEFAULT_GOAL := help
.PHONY: help build test test-long test-matrix race chaos chaos-cluster isolation survive upgrade promise prove mutants lint vulnerabilities \
  check-rules pictures demo dev fuzz e2e bench bench-storm bench-regressions bench-backlog bench-peers test-peers ci nightly release-check \
  image up down clean

# What nightly runs, and what a release needs in addition.
NIGHTLY := test-long test-matrix chaos chaos-cluster upgrade isolation survive e2e fuzz vulnerabilities bench-regressions
RELEASE := mutants prove test-peers bench-peers

help: ## list the targets
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F '\t' '{printf "  make %-18s %s\n", $$1, $$2}'

build: ## bin/notifier, as released: static, without the embedded servers
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o bin/notifier ./cmd/notifier

test: ## the everyday tests, in about two minutes on two processors
	$(GO) test ./...

test-long: ## those and the long ones, on a real Redis
	NOTIFIER_TEST_LONG=1 NOTIFIER_TEST_REDIS=require $(GO) test -count=1 -v -timeout 30m ./...

test-matrix: ## the limiter on each kind of store that there is, and a table; Redis 8 and Valkey 8 need Docker
	@$(GO) run ./test/redistest/matrix

race: ## the everyday tests with the race detector, in random order, on a real Redis
	NOTIFIER_TEST_REDIS=require $(GO) test -race -shuffle=on -count=1 ./...

chaos-cluster: ## kill the leaders of a NATS cluster and of Sentinel under load for CHAOSTIME (10m), and a table of the stalls; needs redis-server
	NOTIFIER_TEST_REDIS=require NOTIFIER_TEST_LONG=1 NOTIFIER_CHAOS_TIME=$(CHAOSTIME) \
	  $(GO) test -run '^TestCluster$$' -count=1 -v -timeout 0 ./test/chaos

chaos: ## kill, stop and cut everything off, and lose stores, for CHAOSTIME (10m), then account for every event; needs redis-server
	NOTIFIER_TEST_REDIS=require NOTIFIER_TEST_LONG=1 NOTIFIER_CHAOS_TIME=$(CHAOSTIME) \
	  $(GO) test -run '^(TestChaos|TestStoreLoss)$$' -count=1 -v -timeout 0 ./test/chaos

isolation: ## what one slow channel or flood costs the others, at full scale, and a table; needs redis-server
	NOTIFIER_TEST_REDIS=require NOTIFIER_ISOLATION=full $(GO) test -count=1 -v -timeout 0 ./test/isolation

survive: ## failovers and empty restarts of Redis under load, ROUNDS (20) of each kind, and a table; needs redis-server
	NOTIFIER_TEST_REDIS=require NOTIFIER_SURVIVE_ROUNDS=$(ROUNDS) $(GO) test -count=1 -v -timeout 0 ./test/survival

upgrade: ## roll from the release before to this code and back under load, for CHAOSTIME (10m); needs git with its history, and redis-server
	program=$$(.ci/release-before) && NOTIFIER_TEST_RELEASE=$$program NOTIFIER_TEST_REDIS=require \
	  NOTIFIER_TEST_LONG=1 NOTIFIER_CHAOS_TIME=$(CHAOSTIME) \
	  $(GO) test -run '^TestRollingUpgrade$$' -count=1 -v -timeout 0 ./test/chaos

promise: ## for a release: note all names that it promises from now on (docs/compatibility.md)
	$(GO) test -count=1 -run '^TestWhatIsPromised$$' ./cmd/notifier -promise

prove: ## the limiter against its model, N random histories (1000) of each kind on each store; needs redis-server
	NOTIFIER_TEST_REDIS=require $(GO) test -run '^TestTheScriptsDecideLikeTheModel$$' -count=1 -v -timeout 0 ./internal/ratelimit -rapid.checks=$(N) -rapid.nofailfile

mutants: ## one mistake after the other in the limiter; each must be caught. About half an hour on two processors; needs redis-server
	NOTIFIER_TEST_REDIS=require $(GO) test -tags mutants -run '^TestEveryMutantIsCaught$$' -count=1 -v -timeout 3h ./internal/ratelimit

lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on:"; echo "$$unformatted"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags e2e ./test/e2e
	$(GO) vet -tags mutants ./internal/ratelimit
	$(GO) run $(STATICCHECK) ./...
	$(GO) run $(STATICCHECK) -tags e2e ./test/e2e

vulnerabilities: ## known ones in what notifier calls; needs the network
	@$(GO) install $(GOVULNCHECK) || { echo "SKIPPED: govulncheck cannot be installed"; exit 0; }; \
	code=0; timeout 300 "$$($(GO) env GOPATH)/bin/govulncheck" ./cmd/notifier || code=$$?; \
	case $$code in 0) ;; 3) exit 1 ;; *) echo "SKIPPED: govulncheck ended with status $$code" ;; esac

check-rules: ## Prometheus's configuration, the alert rules and the dashboard; needs promtool
	NOTIFIER_TEST_PROMTOOL=require $(GO) test -count=1 ./observability

pictures: ## the pictures of the README, anew; needs chromium. About a minute and a half
	$(GO) run ./docs/pictures

demo: ## see the limits hold, in a few seconds, with nothing installed
	$(GO) run ./cmd/notifier-dev demo

dev: ## NATS, Redis, a fake Slack with an inbox page and one worker, until Ctrl-C
	$(GO) run ./cmd/notifier-dev dev

fuzz: ## each fuzz target for FUZZTIME (1m), one after the other; the first finding ends it
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u | while read -r package; do \
	  for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz'); do \
	    echo "$$package $$target"; $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
	  done; \
	done

e2e: ## docker-compose.yml really run: replicas, limits, kills
	.ci/compose

bench: ## Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-storm: ## drain a storm beside a consumer that only acknowledges, and write the tables of it; needs redis-server
	$(GO) run ./bench/storm -write

bench-regressions: ## what has become slower since the tables were written; needs redis-server
	$(GO) run ./bench/storm -regressions

bench-backlog: ## the worker's memory with backlogs of large messages; needs redis-server
	$(GO) run ./bench/storm -backlog

test-peers: ## the tests of bench/peers, which is a module of its own and depends on the peers
	cd bench/peers && $(GO) vet ./... && $(GO) test -count=1 -v ./...

bench-peers: ## the same storm through other ways to do the job, and the table of it; about ten minutes, needs redis-server
	cd bench/peers && $(GO) run . -write

ci: ## the gate, as it is run before a change goes in: ten to twenty minutes on two processors
	.ci/run

nightly: ## what takes too long for the gate, one after the other, and a table of it
	.ci/long $(NIGHTLY)

release-check: ## nightly, and what a release needs in addition. It writes the table of peers
	N=2000 .ci/long $(NIGHTLY) $(RELEASE)

image: ## the production image, notifier:local
	docker build --build-arg VERSION="$(VERSION)" --build-arg COMMIT="$(COMMIT)" -t notifier:local .

up: ## the demo in containers: three workers and a fake Slack, until Ctrl-C
	docker compose --profile demo up

down: ## remove the demo's containers
	docker compose --profile demo down

clean: ## remove what was built
	rm -rf bin notifier notifier-dev
	$(GO) clean -testcache
