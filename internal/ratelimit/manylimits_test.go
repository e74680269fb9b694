package ratelimit_test

import (
	"fmt"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// A call has the rules of its own scopes alone: however many limits there are for others, it sends Redis as much.
func TestManyLimitsForOthersCostACallNothing(t *testing.T) {
	server := redistest.Start(t)
	limiter := newLimiter(t, server, testkit.Rules("1000/30m", "1000/30m", "a.>=900/30m"), day)
	client := server.Client(t)
	sent := func(id string) (bytes int) {
		t.Helper()
		input := func() (n int) {
			info, err := client.InfoMap(t.Context(), "stats").Result()
			testkit.Check(t, err)
			_, err = fmt.Sscan(info["Stats"]["total_net_input_bytes"], &n)
			testkit.Check(t, err)
			return n
		}
		before := input()
		if _, err := limiter.Admit(t.Context(), []ratelimit.Request{event(id, "a.x"), event(id, "b")}); err != nil {
			t.Fatal(err)
		}
		return input() - before
	}
	limiter.Admit(t.Context(), []ratelimit.Request{event("first", "a.x"), event("first", "b")}) // loads the script
	few := sent("e")
	var pairs []string
	for i := range 1000 {
		pairs = append(pairs, fmt.Sprint("category/c", i), "5/1h+3/10s")
	}
	limiter.SetTemporary(forAWhile(pairs...))
	if many := sent("f"); many > few+500 {
		t.Errorf("%d bytes with 1,000 limits for others, %d without", many, few)
	}
}
