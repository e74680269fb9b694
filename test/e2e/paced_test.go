//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"
)

// testPaced: three workers keep the pace of one channel together, so that a Slack that takes a little more than that refuses
// nothing.
func testPaced(t *testing.T, e *engine) {
	const service, events, pace = "notifier-demo", 25, 10
	const window = 5 * time.Second
	p := e.project(t, "paced", []string{"demo"}, fmt.Sprintf("SLACK_PACE=%d/%s", pace, window))
	p.up(t, "--wait", service, "fake-slack")
	slack := p.slack(t)
	if _, err := slack.ask(http.MethodPost, "/fake/mode", fmt.Sprintf(`{"channel_limit":"%d/%s"}`, pace+2, window)); err != nil {
		t.Fatal(err)
	}

	var order []string
	for n := range events { // no category reaches its limit of 10
		order = append(order, fmt.Sprint("paced", n%3))
	}
	published := p.publish(t, "nats-demo", "paced", order)
	lines, _ := p.untilSettled(t, service, events)
	p.untilAcknowledged(t, "nats-demo")
	for _, line := range lines {
		if line.Outcome != "sent" {
			t.Errorf("%+v, expected all to be sent", line)
		}
	}
	posts := slack.posts(t)
	for id := range published {
		if posts[id] != 1 {
			t.Errorf("%s was posted %d times, expected once", id, posts[id])
		}
	}
	var stats struct{ Requests, Accepted int }
	slack.read(t, "/fake/stats", &stats)
	if stats.Requests != events || stats.Accepted != events {
		t.Errorf("%d posts with %d accepted, expected %d and none refused", stats.Requests, stats.Accepted, events)
	}
	if took := slack.took(t); took < 2*window {
		t.Errorf("%d posts in %s, expected at most %d in each %s", events, took, pace, window)
	}
}

// took is the time from the first message to the last one.
func (s slack) took(t *testing.T) time.Duration {
	t.Helper()
	var inbox struct{ Messages []struct{ Time time.Time } }
	s.read(t, "/inbox.json", &inbox)
	if len(inbox.Messages) == 0 {
		t.Fatal("no messages")
	}
	first, last := inbox.Messages[0].Time, inbox.Messages[0].Time
	for _, message := range inbox.Messages {
		if message.Time.Before(first) {
			first = message.Time
		}
		if message.Time.After(last) {
			last = message.Time
		}
	}
	return last.Sub(first)
}
