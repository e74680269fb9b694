package recent_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/recent"
	"notifier/internal/testkit"
)

// Ten thousand questions of all kinds cost a few requests, and each is answered.
func TestManyWhoAskCostLittle(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.recorder.Record(outcomeOf("rare", outcome.Dead, outcome.Malformed, "r-1"))
	b.eventually(t, recent.Filter{}, 1)
	tail := recent.NewTail(b.reader)
	asked, err := nats.Connect(b.server.URL())
	testkit.Check(t, err)
	defer asked.Close()
	requests, err := asked.SubscribeSync("$JS.API.DIRECT.GET.NOTIFY_EVENTS")
	testkit.Check(t, err)
	testkit.Check(t, asked.Flush())
	var clients sync.WaitGroup
	for i := range 20 {
		clients.Go(func() {
			for j := range 500 {
				filter := []recent.Filter{{}, {Outcome: outcome.Dead}, {Category: "rare"}, {Category: fmt.Sprint("c", i, j)}}[j%4]
				answer, err := tail.List(t.Context(), t.Context(), filter)
				if want := 1 - j%4/3; err != nil || len(answer.Outcomes) != want && filter.Category != "rare" {
					t.Errorf("%+v: %v, %d outcomes, expected %d", filter, err, len(answer.Outcomes), want)
				}
			}
		})
	}
	clients.Wait()
	testkit.Check(t, asked.Flush())
	// A storm of unknown categories may take a second or more, each with ten readings and one of what is new.
	if n, _, err := requests.Pending(); err != nil || n > 1000 {
		t.Errorf("%d requests, %v", n, err)
	}
}

// A tail goes on where it was, keeps the newest of each outcome, and begins anew with another stream.
func TestATailFollows(t *testing.T) {
	t.Parallel()
	b := start(t)
	tail := recent.NewTail(b.reader)
	list := func(filter recent.Filter) []recent.Outcome {
		answer, err := tail.List(t.Context(), t.Context(), filter)
		if err != nil {
			return nil
		}
		return answer.Outcomes
	}
	has := func(id string, n int) {
		t.Helper()
		testkit.Eventually(t, id+" is there", func() bool {
			found := list(recent.Filter{})
			return len(found) == n && found[0].EventID == id
		})
	}
	b.recorder.Record(outcomeOf("errors", outcome.Sent, "", "e-1"))
	has("e-1", 1)
	b.recorder.Record(outcomeOf("errors", outcome.Dead, outcome.Malformed, "e-2"))
	b.recorder.Record(outcomeOf("other", outcome.Dropped, outcome.Global, "e-3"))
	has("e-3", 3)
	if found := list(recent.Filter{Outcome: outcome.Dead}); len(found) != 1 || found[0].EventID != "e-2" {
		t.Errorf("%+v", found)
	}
	if found := list(recent.Filter{Category: "errors", Limit: 1}); len(found) != 1 || found[0].EventID != "e-2" {
		t.Errorf("%+v", found)
	}
	testkit.Check(t, b.js.DeleteStream(t.Context(), b.place.Stream))
	b.recorder.Record(outcomeOf("errors", outcome.Sent, "", "e-4"))
	has("e-4", 1)
}
