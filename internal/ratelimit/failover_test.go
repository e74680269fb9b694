package ratelimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// watched are a primary and two replicas under Sentinels, and a replica of notifier that finds them.
type watched struct {
	*redistest.Sentinels
	caller
}

func startWatched(t *testing.T, rules ratelimit.Rules, extra ...string) watched {
	t.Helper()
	sentinels := redistest.StartSentinels(t, 2, extra...)
	limiter, err := ratelimit.New(kit.OpenRedis(t, sentinels.URL()), "n", rules, day)
	kit.Check(t, err)
	return watched{Sentinels: sentinels, caller: caller{Limiter: limiter, t: t}}
}

// replicated waits until both replicas have all that the primary has.
func (w watched) replicated() {
	w.t.Helper()
	acknowledged, err := w.Primary.Client(w.t).Wait(w.t.Context(), 2, 10*time.Second).Result()
	if err != nil || acknowledged != 2 {
		w.t.Fatalf("%d replicas have all, expected 2 (%v)", acknowledged, err)
	}
}

// decided asks until there is an answer.
func (c caller) decided(request ratelimit.Request) ratelimit.Decision {
	c.t.Helper()
	var decisions []ratelimit.Decision
	kit.EventuallyNil(c.t, func() (err error) {
		decisions, err = c.Admit(c.t.Context(), []ratelimit.Request{request})
		return err
	})
	return decisions[0]
}

func TestFailoverKeepsWhatWasReplicated(t *testing.T) {
	t.Parallel() // it takes some seconds until Sentinels know each other
	w := startWatched(t, kit.Rules("100/30m", "3/30m", ""))
	e := events(4, "e", "a")
	w.admits(e[:3]...)
	w.sent(e[0])
	w.refund(e[2])
	w.replicated()
	w.Failover(t)

	// While the Sentinels work, an answer is an error or the one that was given before.
	stop, asked := make(chan struct{}), make(chan struct{})
	calls, errors := 0, 0
	go func() {
		defer close(asked)
		for ; ; calls++ {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			decisions, err := w.Admit(t.Context(), []ratelimit.Request{e[0], e[1], by("another message", e[1])})
			if err != nil {
				errors++
			} else if want := []ratelimit.Verdict{ratelimit.Duplicate, ratelimit.Admitted, ratelimit.Duplicate}; !slices.Equal(verdicts(decisions), want) {
				t.Errorf("during the failover: %v", decisions)
				return
			}
		}
	}()
	primary := w.Promoted(t)
	w.Demoted(t) // until then the old one decides too, and what it admits is lost
	close(stop)
	<-asked
	t.Logf("%d calls during the failover, %d of them errors", calls, errors)

	if got := w.decided(e[3]); got.Verdict != ratelimit.Admitted { // the slot that was given back
		t.Errorf("%+v, expected that the third slot is free", got)
	}
	w.duplicates(e[0])
	w.admits(e[1])
	w.want(ratelimit.Category, event("x", "a"))
	for key, want := range map[string]int64{"{n}:global": 3, "{n}:category:a": 3} {
		if got := primary.Client(t).ZCard(t.Context(), key).Val(); got != want {
			t.Errorf("%s has %d slots taken on the new primary, expected %d", key, got, want)
		}
	}
}

// A primary that is cut off from its replicas and its Sentinels does not know that another has been made
// primary, and goes on deciding for the replicas of notifier on its side. What both admit together is above
// the limit by what the new primary has not seen.
func TestPartitionExceedsByUnseenAdmissionsOnPrimary(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		limit, before int // before: admitted and replicated before the cut
		extra         []string
		heal          bool
	}{
		"replicated in part":     {limit: 40, before: 10, heal: true},
		"nothing was replicated": {limit: 40},
		"min-replicas":           {limit: 2000, before: 10, extra: []string{"--min-replicas-to-write", "1", "--min-replicas-max-lag", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !test.heal {
				kit.Long(t)
			}
			t.Parallel()
			limit := fmt.Sprintf("%d/30m", test.limit)
			w := startWatched(t, kit.Rules(limit, limit, ""), test.extra...)
			old := oldSide(t, w.Primary, kit.Rules(limit, limit, ""))
			if test.before > 0 {
				for _, decision := range w.admit(events(test.before, "before", "a")...) {
					if decision.Verdict != ratelimit.Admitted {
						t.Fatalf("%+v", decision)
					}
				}
			}
			w.replicated()
			w.Front.Cut()

			byOld, wrote, refused := old.takesAll()
			switch {
			case test.extra == nil && refused != nil:
				t.Fatalf("the old primary: %v, expected that it decides", refused)
			case test.extra != nil && (refused == nil || !strings.Contains(refused.Error(), "NOREPLICAS")):
				t.Fatalf("the old primary: %v, expected an error that says NOREPLICAS", refused)
			case test.extra != nil && wrote > 6*time.Second: // the lag, and a second each for the two clocks that it is counted by
				t.Errorf("the old primary admitted for %s, with min-replicas-max-lag 1", wrote)
			}

			// The side of the Sentinels takes what the new primary gives.
			primary := w.Promoted(t)
			byNew := 0
			for w.decided(event(fmt.Sprint("new-", byNew), "a")).Verdict == ratelimit.Admitted {
				byNew++
			}
			excess := test.before + byOld + byNew - test.limit
			t.Logf("limit %d: %d before the cut, %d by the old primary in %s after it, %d by the new one: excess %d", test.limit, test.before, byOld, wrote.Round(100*time.Millisecond), byNew, excess)
			if excess > byOld || excess > test.limit || excess < 1 {
				t.Errorf("an excess of %d, expected 1 to %d, what the new primary has not seen, and at most the limit", excess, byOld)
			}
			if test.before == 0 && excess != test.limit {
				t.Errorf("an excess of %d, expected the limit: this is the worst case", excess)
			}

			// While the cut lasts neither side admits more; then the old primary follows the new one.
			if decisions, err := old.Admit(t.Context(), events(1, "late", "a")); err == nil && decisions[0].Verdict != ratelimit.Category {
				t.Errorf("the old primary goes on: %+v", decisions[0])
			}
			if !test.heal {
				return
			}
			w.Front.Heal()
			w.Demoted(t)
			if decisions, err := old.Admit(t.Context(), events(1, "later", "b")); err == nil && decisions[0].Verdict == ratelimit.Admitted {
				t.Errorf("admitted by a replica: %+v", decisions[0])
			}
			if got := primary.Client(t).ZCard(t.Context(), "{n}:global").Val(); got != int64(test.limit) {
				t.Errorf("the new primary counts %d, expected %d", got, test.limit)
			}
		})
	}
}

// oldSide is a replica of notifier that has not heard of the failover: the only Sentinel on its side names
// the old primary.
func oldSide(t *testing.T, primary *redistest.Server, rules ratelimit.Rules) caller {
	t.Helper()
	limiter, err := ratelimit.New(kit.OpenRedis(t, startSentinel(t, primary.Addr).url()), "n", rules, day)
	kit.Check(t, err)
	return caller{Limiter: limiter, t: t}
}

// takesAll asks for an event every few milliseconds until no more is admitted. It returns how many were, for
// how long, and the error that ended it; nil: the limit did.
func (c caller) takesAll() (admitted int, took time.Duration, refused error) {
	c.t.Helper()
	started := time.Now()
	for refused == nil && time.Since(started) < 20*time.Second {
		decisions, err := c.Admit(c.t.Context(), []ratelimit.Request{event(fmt.Sprint("old-", admitted), "a")})
		if refused = err; err == nil {
			if decisions[0].Verdict != ratelimit.Admitted {
				break
			}
			admitted++
		}
		time.Sleep(5 * time.Millisecond) // the rate of the old side's events
	}
	return admitted, time.Since(started), refused
}
