//go:build e2e

package e2e_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"
)

// The default limits, a burst beyond both of them, and the default of SEND_CONCURRENCY.
const (
	limitGlobal   = 100
	limitCategory = 10
	categories    = 20
	oneByOne      = 8 // categories whose events come one category after the other; those of the others come mixed
	each          = 12
	concurrency   = 8
	gracePeriod   = 35 * time.Second
)

// burst gives the categories of the burst's events in their order: first whole categories, which run into their own
// limit, then the other ones mixed, which run into the global limit.
func burst(prefix string) (first, then []string) {
	name := func(n int) string { return fmt.Sprintf("%s%02d", prefix, n) }
	for n := range oneByOne {
		for range each {
			first = append(first, name(n))
		}
	}
	for range each {
		for n := oneByOne; n < categories; n++ {
			then = append(then, name(n))
		}
	}
	return first, then
}

// account is what became of published events, by their ids.
type account struct {
	sent    map[string]bool
	dropped map[string]string // the reason
}

// accountFor checks that the log's lines account for every published event, once, within the limits.
// A worker that dies after it has logged and before it has acknowledged makes another one log the event again; only
// where restarts is true may an event have several lines, and they must agree.
func accountFor(t *testing.T, published map[string]string, lines []logLine, restarts bool) account {
	t.Helper()
	a := account{sent: map[string]bool{}, dropped: map[string]string{}}
	perCategory := map[string]int{}
	seen := map[string]bool{}
	duplicates := map[string]bool{}
	for _, line := range lines {
		category, known := published[line.EventID]
		if !known || line.Category != category {
			t.Errorf("the log has %+v, which was not published in this category", line)
		}
		if seen[line.EventID] && !restarts {
			t.Errorf("%s is settled twice: %+v", line.EventID, line)
		}
		seen[line.EventID] = true
		switch {
		case line.Outcome == "sent" && line.Msg == "notification sent":
			if !a.sent[line.EventID] {
				perCategory[category]++
			}
			a.sent[line.EventID] = true
		case line.Outcome == "dropped" && line.Msg == "notification dropped" && line.Reason == "duplicate" && restarts:
			duplicates[line.EventID] = true
		case line.Outcome == "dropped" && line.Msg == "notification dropped" && (line.Reason == "global" || line.Reason == "category"):
			if want := map[string]string{"global": "100/30m", "category": "10/30m"}[line.Reason]; line.Limit != want {
				t.Errorf("%s was dropped by the limit %q, expected %q", line.EventID, line.Limit, want)
			}
			a.dropped[line.EventID] = line.Reason
		default:
			t.Errorf("neither sent nor dropped by a limit: %+v", line)
		}
	}
	for id := range published {
		_, dropped := a.dropped[id]
		if a.sent[id] == dropped {
			t.Errorf("%s: sent is %v and dropped is %v, expected one of them", id, a.sent[id], dropped)
		}
	}
	for id := range duplicates {
		if !a.sent[id] {
			t.Errorf("%s counts as a duplicate, but was never sent", id)
		}
	}
	for category, count := range perCategory {
		if count > limitCategory {
			t.Errorf("%d of %s were sent, the limit is %d", count, category, limitCategory)
		}
	}
	if total := categories * each; len(a.sent) != limitGlobal || len(a.dropped) != total-limitGlobal {
		t.Errorf("%d sent and %d dropped, expected %d and %d", len(a.sent), len(a.dropped), limitGlobal, total-limitGlobal)
	}
	return a
}

// checkPosts checks that Slack has what the log says it has; again is how many may be there a second time.
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

// checkReasons checks which limit each dropped event is said to have met. An event of a category that has used its limit is
// dropped for that, because it frees last; any other one can only have met the global limit. How many there are of each
// depends on the order in which replicas get the events.
func (a account) checkReasons(t *testing.T, published map[string]string) {
	t.Helper()
	sent := map[string]int{}
	for id := range a.sent {
		sent[published[id]]++
	}
	for id, reason := range a.dropped {
		want := "global"
		if sent[published[id]] == limitCategory {
			want = "category"
		}
		if reason != want {
			t.Errorf("%s was dropped by %q with %d of %s sent, expected %q", id, reason, sent[published[id]], published[id], want)
		}
	}
}

func (a account) reasons() map[string]int {
	counts := map[string]int{}
	for _, reason := range a.dropped {
		counts[reason]++
	}
	return counts
}

// dropped counts the lines of dropped events by their reasons.
func dropped(lines []logLine) map[string]int {
	counts := map[string]int{}
	for _, line := range lines {
		if line.Outcome == "dropped" {
			counts[line.Reason]++
		}
	}
	return counts
}

// testDemo: "docker compose --profile demo up" shows what it promises, without any setting.
func testDemo(t *testing.T, e *engine) {
	p := e.project(t, "demo", []string{"demo"}, unpaced(t))
	p.up(t)
	const events = 50
	lines, _ := p.untilSettled(t, "notifier-demo", events)
	counts := map[string]int{}
	for _, line := range lines {
		counts[line.Outcome+line.Reason]++
	}
	if accepted := p.slack(t).accepted(t); accepted != limitCategory || counts["sent"] != limitCategory || counts["droppedcategory"] != events-limitCategory {
		t.Errorf("%d posts, and the log says %v; expected %d sent and the other %d dropped", accepted, counts, limitCategory, events-limitCategory)
	}
}

// testLimits: three workers share the limits, each does its part, and they stop when asked to.
func testLimits(t *testing.T, e *engine) {
	const service = "notifier-demo"
	p := e.project(t, "limits", []string{"demo"}, unpaced(t))
	p.up(t, "--wait", "--scale", "burst=0")
	p.checkHardening(t, service)
	p.checkPorts(t)
	slack := p.slack(t)

	first, then := burst("calm")
	published := p.publish(t, "nats-demo", "first", first)
	lines, _ := p.untilSettled(t, service, len(published)) // before the others, so that each of these categories has room
	if got, want := dropped(lines), map[string]int{"category": oneByOne * (each - limitCategory)}; !maps.Equal(got, want) {
		t.Errorf("of the first events dropped by %v, expected %v", got, want)
	}
	maps.Copy(published, p.publish(t, "nats-demo", "then", then))
	lines, broken := p.untilSettled(t, service, len(published))
	p.untilAcknowledged(t, "nats-demo")
	if broken > 0 {
		t.Errorf("%d lines of the log are not JSON", broken)
	}
	account := accountFor(t, published, lines, false)
	account.checkReasons(t, published)
	account.checkPosts(t, slack.posts(t), 0)
	if accepted := slack.accepted(t); accepted != limitGlobal {
		t.Errorf("%d posts, expected %d", accepted, limitGlobal)
	}
	active := 0
	for index := 1; index <= 3; index++ {
		own, _ := p.settled(t, service, index)
		sent := 0
		for _, line := range own {
			if line.Outcome == "sent" {
				sent++
			}
		}
		t.Logf("replica %d: %d sent, %d dropped", index, sent, len(own)-sent)
		if len(own) > 0 {
			active++
		}
	}
	if active < 2 {
		t.Errorf("%d replicas took part, expected at least 2", active)
	}
	t.Logf("%d published, %d sent, dropped: %v", len(published), len(account.sent), account.reasons())

	started := time.Now()
	p.compose(t, "stop", service)
	if took := time.Since(started); took > gracePeriod {
		t.Errorf("stop took %s, the grace period is %s", took, gracePeriod)
	}
	for _, id := range p.replicas(t, service) {
		if code := p.docker(t, "inspect", "-f", "{{.State.ExitCode}}", id); code != "0" {
			t.Errorf("replica %s exited with %s after stop, expected 0", id, code)
		}
	}
}

// testKill: the real services with the production images, only that Slack is the fake one. One of the workers is killed
// while it posts, and later everything goes down and up again.
func testKill(t *testing.T, e *engine) {
	const service, victim = "notifier", 2
	p := e.project(t, "kill", []string{"slack", "demo"},
		"COMPOSE_FILE=docker-compose.yml:test/e2e/fake-slack.yml",
		"SLACK_API_URL=http://fake-slack:8090/api/", "SLACK_BOT_TOKEN=xoxb-e2e", "SLACK_CHANNEL=#e2e", unpaced(t))
	services := []string{"--wait", service, "fake-slack"}
	p.up(t, services...)
	p.checkHardening(t, service)
	p.checkPorts(t)
	p.checkStrangers(t)
	passwords := p.checkSecrets(t)
	slack := p.slack(t)
	if _, err := slack.ask(http.MethodPost, "/fake/always", `{"delay":"300ms"}`); err != nil { // so that a kill hits posts in flight
		t.Fatal(err)
	}

	first, then := burst("kill")
	published := p.publish(t, "nats", "kill", slices.Concat(first, then))
	p.until(t, "Slack has some and the victim has settled some", func() (bool, string) {
		own, _ := p.settled(t, service, victim)
		accepted := slack.accepted(t)
		if accepted >= limitGlobal {
			t.Fatal("all posts are through before the kill")
		}
		return accepted > 0 && len(own) > 0, fmt.Sprintf("%d posts, %d settled by the victim", accepted, len(own))
	})
	p.docker(t, "kill", "--signal", "KILL", p.replicas(t, service)[victim-1])
	before := slack.accepted(t)

	p.untilSettled(t, service, len(published))
	p.untilAcknowledged(t, "nats")
	lines, broken := p.settled(t, service, 0) // with those that were settled again
	if broken > 1 {                           // the victim's last one may be cut off
		t.Errorf("%d lines of the logs are not JSON", broken)
	}
	account := accountFor(t, published, lines, true)
	twice := account.checkPosts(t, slack.posts(t), concurrency)
	t.Logf("killed after %d posts; %d published, %d sent, dropped: %v, posted a second time: %d",
		before, len(published), len(account.sent), account.reasons(), twice)

	// The windows are on disk: events of other categories find the global one full.
	p.compose(t, "down")
	p.compose(t, append([]string{"up", "-d", "--no-build", "--pull", "never"}, services...)...)
	if after := p.passwords(t); !maps.Equal(after, passwords) {
		t.Error("down and up have changed the passwords")
	}
	slack = p.slack(t)
	_, other := burst("later")
	after := p.publish(t, "nats", "later", other)
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

// unpaced is the setting for bursts that must not take minutes; it notes that in the test's log.
func unpaced(t *testing.T) string {
	t.Log("posts are not paced: SLACK_PACE=off")
	return "SLACK_PACE=off"
}
