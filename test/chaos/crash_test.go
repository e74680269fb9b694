package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/wait"
	"notifier/test/kit"
)

// crashPoints lists the steps at which a build with the tag "crashpoints" can die. It dies at the nth
// time there. Batches pass the first two steps, events or batches the others.
var crashPoints = []struct {
	name string
	nth  int
}{
	{"after-pull", 2}, {"after-verdict", 2}, {"after-post", 3}, {"after-failure", 2},
	{"after-record", 3}, {"after-log", 3}, {"after-ack", 3},
}

// TestCrashAtEveryStep kills one worker at each step, and two workers at each pair of steps. Another
// worker finishes the remaining events, and the audit follows. Single steps run both with a channel in
// which a post can be found again and with an unreadable one; pairs alternate between the two.
func TestCrashAtEveryStep(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	for i, first := range crashPoints {
		at := fmt.Sprintf("%s:%d", first.name, first.nth)
		t.Run(first.name, func(t *testing.T) { crashAt(t, false, at) })
		t.Run(first.name+", unreadable", func(t *testing.T) { crashAt(t, true, at) })
		for j, second := range crashPoints[i:] {
			and := fmt.Sprintf("%s:%d", second.name, second.nth)
			t.Run(first.name+" and "+second.name, func(t *testing.T) { crashAt(t, j%2 == 0, at, and) })
		}
	}
}

// crashAt runs one scenario, with one dying worker for each of the points.
func crashAt(t *testing.T, unreadable bool, points ...string) {
	t.Parallel()
	d := newDeployment(t, time.Second, limits{global: "100/30s", category: "5/30s+4/20s"})
	d.unreadable.Store(unreadable)
	var failures []devstack.Response
	for _, at := range points {
		if strings.HasPrefix(at, "after-failure:") {
			failure := devstack.Response{Status: 503, Code: "service_unavailable"}
			// Several, because the other worker's posts may use some of them up.
			failures = append(failures, slices.Repeat([]devstack.Response{failure, {}}, 12)...)
		}
	}
	d.treatPosts(devstack.Next(failures...))
	categories := []string{"alpha", "beta", "gamma", "delta"}
	publish := func(e *event, withMessageID bool) {
		kit.Check(t, d.publisher.publish(t.Context(), e, withMessageID))
	}
	for i := range 40 {
		e := &event{id: fmt.Sprintf("plain-%02d", i), category: categories[i%len(categories)], cost: 1}
		switch i % 10 {
		case 7:
			e.id, e.malformed = fmt.Sprintf("malformed-%02d", i), true
		case 8:
			e.id, e.cost = fmt.Sprintf("costly-%02d", i), 2
		}
		publish(e, true)
		if i%10 == 9 {
			publish(e, false)
		}
	}
	var dying []*process
	for _, at := range points {
		k := d.addWorker(crashing, false)
		k.settings["BATCH_SIZE"], k.settings["SEND_CONCURRENCY"] = "3", "2"
		l, err := k.start("NOTIFIER_CRASH_AT=" + at)
		kit.Check(t, err)
		dying = append(dying, l)
	}
	// One worker may take all events before the other has started. So keep publishing until all have
	// died, each event to a new category, which has room.
	for i := 0; ; i++ {
		living := 0
		for _, l := range dying {
			if !l.Dead() {
				living++
			} else if !l.crashed() {
				t.Fatalf("%s ended by itself: %s", l.name, l.Complaints())
			}
		}
		if living == 0 {
			break
		}
		if i == 80 {
			t.Fatalf("%d workers do not come to where they are to die", living)
		}
		publish(&event{id: fmt.Sprintf("more-%02d", i), category: fmt.Sprintf("more-%02d", i), cost: 1}, true)
		pause := 50 * time.Millisecond
		if i >= 40 { // the machine is too busy to have started the workers: publish more slowly
			pause = 500 * time.Millisecond
		}
		wait.For(t.Context(), pause)
	}
	k := d.addWorker(crashing, false)
	_, err := k.start()
	kit.Check(t, err)
	a := d.reconcile()
	if a.sent == 0 || a.dropped["category"] == 0 || a.dead == 0 {
		t.Errorf("%d sent, %v dropped, %d dead: expected some of each", a.sent, a.dropped, a.dead)
	}
}
