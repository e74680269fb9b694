package ratelimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
)

// What the scripts write is read, by the same parser in the product and in its tests.
func TestInFlightRecordIsParsed(t *testing.T) {
	eachLimiter(t, "100/30m", "10/30m", func(t *testing.T, s *store, limiter caller) {
		e := by("a delivery: with 2 blanks\nand a line end", event("e", "a"))
		read := func() ratelimit.InFlight {
			t.Helper()
			record, err := ratelimit.ParseInFlight(s.HGet(t.Context(), "{n}:inflight", slot(e)).Val())
			kit.Check(t, err)
			return record
		}
		limiter.admits(e)
		if record, at := s.HGet(t.Context(), "{n}:inflight", slot(e)).Val(), s.takenAt(t, "{n}:global", slot(e)); record != fmt.Sprint(at, ":0:0: ", e.Delivery) {
			t.Errorf("the record is %q, expected the admission at %d without a post", record, at)
		}
		want := ratelimit.InFlight{Admitted: time.UnixMicro(s.takenAt(t, "{n}:global", slot(e))).UTC(), Delivery: e.Delivery}
		if difference := cmp.Diff(want, read()); difference != "" {
			t.Errorf("admitted (-want +got):\n%s", difference)
		}
		limiter.posts(1, e, "", "p1")
		limiter.posts(2, e, "p1", "p2")
		got := read()
		if got.LastPost.Before(want.Admitted) {
			t.Errorf("the last post began at %s, before the admission at %s", got.LastPost, want.Admitted)
		}
		want.Posts, want.LastName, want.LastPost = 2, "p2", got.LastPost
		if difference := cmp.Diff(want, got); difference != "" {
			t.Errorf("with two posts (-want +got):\n%s", difference)
		}
	})
}

func TestMalformedInFlightRecordIsAnError(t *testing.T) {
	for _, text := range []string{"", "soon", "17", ":1:2:p d", "17:1:2 d", "17:1:p:2 d", "-17 d", "1795149541123457000 d"} {
		if record, err := ratelimit.ParseInFlight(text); err == nil {
			t.Errorf("%q is read as %+v, expected an error", text, record)
		}
	}
}
