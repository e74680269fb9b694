package post

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/consume/availability"
	"notifier/internal/slackout"
)

// Slack's rate limit names a different wait each time, but counts as one reason.
func TestLookupFailureIsLoggedOncePerReason(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	var l lookups
	for seconds := range 5 {
		l.impossible(zap.New(core), &slackout.Error{
			Class: slackout.RetryAfter, Code: "ratelimited", RetryAfter: time.Duration(10+seconds) * time.Second,
		})
		l.impossible(zap.New(core), errors.New("no scope"))
	}
	if n := logs.Len(); n != 2 {
		t.Errorf("%d lines, expected one for each of 2 reasons", n)
	}
}

// The message may be in the channel, so it is not posted without a search when an outage of Slack ends.
func TestSearchIsNotGivenUpDuringAnOutage(t *testing.T) {
	held := func(availability.Dependency) int { return 0 }
	settings := Settings{Tracker: availability.New(zap.NewNop(), held), Log: zap.NewNop()}
	p := &posting{mustSearch: true}
	a := &attempt{s: &Sender{settings: settings}, p: p, job: &p.job}
	for range 10 * maxSearches {
		a.notSearched(&slackout.Error{Class: slackout.Retry, Code: "timeout", Workspace: true})
	}
	if !p.mustSearch {
		t.Error("given up during an outage")
	}
	for range maxSearches {
		a.notSearched(&slackout.Error{Class: slackout.Retry, Code: "http_500"})
	}
	if !p.mustSearch {
		t.Error("given up too early")
	}
	a.notSearched(&slackout.Error{Class: slackout.Retry, Code: "http_500"})
	if p.mustSearch {
		t.Error("not given up although only the search fails")
	}
}
