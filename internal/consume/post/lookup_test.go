package post

import (
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

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
