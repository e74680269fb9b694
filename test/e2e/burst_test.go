//go:build e2e

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

// The default limits, a burst beyond both of them, and the default of SEND_CONCURRENCY.
const (
	limitGlobal   = 100
	limitCategory = 10
	categories    = 20
	each          = 12
	concurrency   = 8
	gracePeriod   = "35" // seconds
)

// burst gives the categories of the burst's events in their order, in which they run into the global limit.
func burst(prefix string) (order []string) {
	for range each {
		for n := range categories {
			order = append(order, fmt.Sprintf("%s%02d", prefix, n))
		}
	}
	return order
}

// account sorts published events by their outcome.
type account struct {
	sent, dropped map[string]bool
}

// accountFor checks that the log's lines account for every published event, within the limits. A worker that
// dies after it has logged an event and before it has acknowledged it makes another one log it again; the
// lines must agree. One that dies after it has recorded an event as sent and before it has logged that leaves
// a duplicate as the event's only line, at most one for each of its posts at the same time.
func accountFor(t *testing.T, published map[string]string, lines []logLine) account {
	t.Helper()
	a := account{sent: map[string]bool{}, dropped: map[string]bool{}}
	duplicates := map[string]bool{}
	for _, line := range lines {
		if category, known := published[line.EventID]; !known || line.Category != category {
			t.Errorf("the log has %+v, which was not published in this category", line)
		}
		switch {
		case line.Outcome == "sent":
			a.sent[line.EventID] = true
		case line.Reason == "duplicate":
			duplicates[line.EventID] = true
		case line.Reason == "global" && line.Limit == "100/30m":
			a.dropped[line.EventID] = true
		default:
			t.Errorf("neither sent nor dropped by the global limit: %+v", line)
		}
	}
	unlogged := 0
	for id := range duplicates {
		if !a.sent[id] {
			a.sent[id] = true // checkPosts looks whether Slack has it
			unlogged++
		}
	}
	if unlogged > concurrency {
		t.Errorf("%d count as duplicates, but were never sent; the worker that died could post %d at a time", unlogged, concurrency)
	}
	for id := range published {
		if a.sent[id] == a.dropped[id] {
			t.Errorf("%s: sent is %v and dropped is %v, expected one of them", id, a.sent[id], a.dropped[id])
		}
	}
	if len(a.sent) != limitGlobal {
		t.Errorf("%d sent, the limit is %d", len(a.sent), limitGlobal)
	}
	return a
}

// checkPosts compares Slack's inbox with the log. Up to again events may have been posted twice.
func (a account) checkPosts(t *testing.T, posts map[string]int, again int) (twice int) {
	t.Helper()
	for id, count := range posts {
		if !a.sent[id] {
			t.Errorf("Slack has %s, which the log does not say was sent", id)
		}
		twice += count - 1
	}
	for id := range a.sent {
		if posts[id] == 0 {
			t.Errorf("the log says that %s was sent, but Slack does not have it", id)
		}
	}
	if twice > again {
		t.Errorf("%d posts too many, expected at most %d", twice, again)
	}
	return twice
}

// testKill: three workers share the limits, also when one of them is killed while it posts; they exit 0
// on SIGTERM, and the windows outlive them. These are the real services with a fake Slack.
func testKill(t *testing.T, e *engine) {
	const service, victim = "notifier", 2
	p := e.project(t, "kill", []string{slackFile}, unpaced(t, fakeSlack...)...)
	services := []string{"--wait", service, "fake-slack"}
	p.up(t, services...)
	p.checkHardening(t)
	p.checkPorts(t)
	p.checkStrangers(t)
	p.checkPasswords(t)
	slack := p.slack(t)
	// so that a kill hits posts in flight
	if _, err := slack.ask(http.MethodPost, "/fake/faults", `{"delay":"1s"}`); err != nil {
		t.Fatal(err)
	}

	published := p.publish(t, "kill", burst("kill"))
	p.until(t, "Slack has some and the victim has settled some", func() (bool, string) {
		own, _ := p.settled(t, service, victim)
		accepted := slack.accepted(t)
		if accepted >= limitGlobal {
			t.Fatal("all posts are through before the kill")
		}
		return accepted > 0 && len(own) > 0, fmt.Sprintf("%d posts, %d settled by the victim", accepted, len(own))
	})
	p.docker(t, "kill", "--signal", "KILL", p.replicas(t, service)[victim-1])
	p.untilSettled(t, service, len(published))
	p.untilAcknowledged(t)
	lines, broken := p.settled(t, service, 0) // with those that were settled again
	if broken > 1 {                           // the victim's last one may be cut off
		t.Errorf("%d lines of the logs are not JSON", broken)
	}
	twice := accountFor(t, published, lines).checkPosts(t, slack.posts(t), concurrency)
	t.Logf("%d published, posted a second time: %d", len(published), twice)

	p.compose(t, "stop", "--timeout", gracePeriod, service)
	for i, id := range p.replicas(t, service) {
		code := p.docker(t, "inspect", "-f", "{{.State.ExitCode}}", id)
		if i != victim-1 && code != "0" {
			t.Errorf("replica %s exited with %s after stop, expected 0", id, code)
		}
	}

	// The windows are on disk: events of other categories find the global one full.
	p.compose(t, "down")
	p.compose(t, append([]string{"up", "-d", "--no-build", "--pull", "never"}, services...)...)
	slack = p.slack(t)
	after := p.publish(t, "later", burst("later"))
	lines, _ = p.untilSettled(t, service, len(after))
	for _, line := range lines {
		if _, known := after[line.EventID]; !known || line.Reason != "global" {
			t.Errorf("after down and up: %+v, expected an event of now that the global limit drops", line)
		}
	}
	if accepted := slack.accepted(t); accepted != 0 {
		t.Errorf("after down and up: %d posts, expected none", accepted)
	}
	p.checkCommands(t)
}

// fakeSlack are settings for the service of slackFile.
var fakeSlack = []string{
	"SLACK_API_URL=https://fake-slack:8090/api/", "SSL_CERT_FILE=/slack.pem", "SLACK_BOT_TOKEN=xoxb-e2e", "SLACK_CHANNEL=#e2e",
}

// unpaced adds the setting for bursts that must not take minutes, and notes it in the test's log.
func unpaced(t *testing.T, settings ...string) []string {
	t.Log("posts are not paced: SLACK_PACE=off")
	return append(slices.Clone(settings), "SLACK_PACE=off")
}
