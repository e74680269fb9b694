package ratelimit_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// trace returns the only event with this id.
func (c caller) trace(id string) ratelimit.Trace {
	c.t.Helper()
	traces := c.traces(id)
	if len(traces) != 1 {
		c.t.Fatalf("%d events with the id %s, expected one: %+v", len(traces), id, traces)
	}
	return traces[0]
}

func (c caller) traces(id string) []ratelimit.Trace {
	c.t.Helper()
	traces, err := c.Trace(c.t.Context(), id)
	kit.Check(c.t, err)
	return traces
}

// An event is found by its id alone until the id is forgotten, even if it was sent long after its admission.
func TestTraceFindsAnEventUntilItsIDIsForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("1000/30m", "1000/30m", ""), 2*time.Hour)
		e := from("/ci", event("e", "a"))
		limiter.admits(e)
		s.advance(t, 29*time.Minute) // held for almost the longest window
		limiter.sent(e)
		for i := range 11 {
			s.advance(t, 10*time.Minute)
			limiter.admits(events(100, fmt.Sprint("other", i, "-"), "b")...) // some of them trim the index
		}
		if found := limiter.traces("e"); len(found) != 1 || found[0].Source != "/ci" {
			t.Fatalf("after 1h50m: %+v, expected it", found)
		}
		// The id was sent longer ago than the dedupe window. Its entry in the index is older than the dedupe
		// window and the longest window together.
		s.advance(t, 12*time.Minute)
		if found := limiter.traces("e"); len(found) != 0 {
			t.Errorf("after 2h2m: %+v, expected nothing", found)
		}
		entries := func() []string { return s.ZRange(t.Context(), "{n}:categories", 0, -1).Val() }
		for i := 0; slices.Contains(entries(), "a /ci"); i++ { // one call in 16 trims it
			if i > 500 {
				t.Fatalf("after %d more admissions the index has %q", i, entries())
			}
			limiter.admits(event(fmt.Sprint("after", i), "b"))
		}
		if got := entries(); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the index has %q, expected b alone", got)
		}
	})
}

// Only admissions add entries to the index. Recent lists a category until its latest admission has left the
// longest window.
func TestIndexHoldsWhatWasAdmitted(t *testing.T) {
	eachLimiter(t, "100/30m", "1/30m", func(t *testing.T, s *store, limiter caller) {
		index := func() []string { return s.ZRange(t.Context(), "{n}:categories", 0, -1).Val() }
		limiter.admits(event("e", "a"))
		s.Del(t.Context(), "{n}:categories")
		limiter.admit(event("f", "a"), from("/refused", event("g", "a")), from("/ci", event("h", "b")), from("/late", event("i", "b")))
		if entries, want := index(), []string{"b /ci"}; !slices.Equal(entries, want) {
			t.Errorf("the index has %q, expected %q", entries, want)
		}
		categories, entries, err := limiter.Recent(t.Context(), 10)
		if err != nil || !slices.Equal(categories, []string{"b"}) || entries != 1 {
			t.Errorf("categories %q of %d entries, %v; expected b, and 1", categories, entries, err)
		}
		s.advance(t, 31*time.Minute)
		if categories, entries, err := limiter.Recent(t.Context(), 10); err != nil || len(categories) != 0 || entries != 0 || len(index()) != 1 {
			t.Errorf("when its slots are free: categories %q, %v, index %q; expected none listed and one kept", categories, err, index())
		}
	})
}

// Recent lists the categories with the latest admissions.
func TestRecentListsTheLatest(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := s.limiter(t, kit.Rules("100/30m", "10/30m", "z=1/1m,a=1/1m"), day)
		for i, category := range []string{"c", "a", "b"} {
			limiter.admits(event(fmt.Sprint(i), category))
			s.advance(t, 2*time.Second)
		}
		limiter.admit(from("/ci", event("x", "c")))
		got, entries, err := limiter.Recent(t.Context(), 2) // c /ci, b
		if err != nil || !slices.Equal(got, []string{"c", "b"}) || entries != 4 {
			t.Errorf("%q of %d entries, %v; expected c and b of 4", got, entries, err)
		}
		if got := limiter.Configured(); !slices.Equal(got, []string{"a", "z"}) {
			t.Errorf("configured: %q", got)
		}
	})
}

// Trace looks up a thousand categories with one command, and searches all chunks.
func TestTraceSearchesThousandsOfCategories(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("e", "a"))
		at := s.score(t, "{n}:categories", "a")
		others := make([]redis.Z, 2500)
		for i := range others {
			others[i] = zAt(at, fmt.Sprint("other", i))
		}
		kit.Check(t, s.ZAdd(t.Context(), "{n}:categories", others...).Err())
		s.advance(t, time.Minute)
		limiter.admits(event("e", "z"))
		traces := limiter.traces("e")
		if len(traces) != 2 || traces[0].Category != "z" || traces[1].Category != "a" {
			t.Errorf("%+v, expected the events of two categories, the latest first", traces)
		}
	})
}

func TestTraceDoesNotTrustWhatItReads(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		limiter.admits(event("e", "a"))
		s.HSet(t.Context(), "{n}:inflight", "a:e", "soon")
		if trace, err := limiter.Trace(t.Context(), "e"); err == nil || !strings.Contains(err.Error(), "{n}:inflight") {
			t.Errorf("%+v, %v; expected an error that names the key", trace, err)
		}
	})
}
