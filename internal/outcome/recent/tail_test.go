package recent_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

// Ten thousand requests for all categories cost a few readings. Of requests for one category ten a second are
// served.
func TestManyWhoAskCostLittle(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(outcomeOf("rare", outcome.Dead, outcome.Malformed, "r-1"))
	b.eventually(t, recent.Filter{}, 1)
	tail := recent.NewTail(b.reader)
	asked, err := nats.Connect(b.server.URL())
	kit.Check(t, err)
	defer asked.Close()
	requests, err := asked.SubscribeSync("$JS.API.DIRECT.GET.NOTIFY_EVENTS")
	kit.Check(t, err)
	kit.Check(t, asked.Flush())
	begun := time.Now()
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			for i := range 500 {
				filter := recent.Filter{Outcome: []string{"", outcome.Dead, outcome.Sent}[i%3], Limit: 100}
				answer, err := tail.List(t.Context(), t.Context(), filter)
				if found := len(answer.Outcomes) == 1; err != nil || found != (filter.Outcome != outcome.Sent) {
					t.Errorf("%+v: %v, %d outcomes", filter, err, len(answer.Outcomes))
				}
			}
		})
	}
	clients.Wait()
	var served atomic.Int64
	for i := range 300 {
		clients.Go(func() {
			_, err := tail.List(t.Context(), t.Context(), recent.Filter{Category: fmt.Sprint("c", i)})
			if err == nil {
				served.Add(1)
			} else if !strings.Contains(err.Error(), "try again") {
				t.Error(err)
			}
		})
	}
	clients.Wait()
	seconds := int64(time.Since(begun).Seconds()) + 1
	if n := served.Load(); n < 10 || n > 10+10*seconds || n == 300 {
		t.Errorf("%d readings of a category in %d s", n, seconds)
	}
	kit.Check(t, asked.Flush())
	// A reading of one of the three lists is two requests, every two seconds; one of an unknown category is one.
	if n, _, err := requests.Pending(); err != nil || int64(n) > served.Load()+6*(seconds/2+1) {
		t.Errorf("%d requests in %d s, %v", n, seconds, err)
	}
}

// A tail follows the stream, also into another one of the same name.
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
		kit.Eventually(t, id+" is there", func() bool {
			found := list(recent.Filter{})
			return len(found) == n && found[0].EventID == id
		})
	}
	b.add(outcomeOf("errors", outcome.Sent, "", "e-1"))
	has("e-1", 1)
	b.add(outcomeOf("errors", outcome.Dead, outcome.Malformed, "e-2"))
	b.add(outcomeOf("other", outcome.Dropped, outcome.Global, "e-3"))
	has("e-3", 3)
	if found := list(recent.Filter{Outcome: outcome.Dead}); len(found) != 1 || found[0].EventID != "e-2" {
		t.Errorf("%+v", found)
	}
	if found := list(recent.Filter{Category: "errors", Limit: 1}); len(found) != 1 || found[0].EventID != "e-2" {
		t.Errorf("%+v", found)
	}
	kit.Check(t, b.js.DeleteStream(t.Context(), b.place.Stream))
	if _, err := b.reader.List(t.Context(), recent.Filter{}); err == nil || !strings.Contains(err.Error(), "no stream") {
		t.Errorf("%v, expected that there is no stream", err)
	}
	b.add(outcomeOf("errors", outcome.Sent, "", "e-4"))
	has("e-4", 1)
}
