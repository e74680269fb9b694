package digest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"notifier/internal/testkit"
)

// Each call may be made twice, because its answer was lost: it gives the same again and changes nothing.
func TestEveryCallMayBeMadeTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := w.digest(true, nil)
		w.drop("category", "errors", 5)
		w.old()
		var answers [2]taken
		for i := range answers {
			var err error
			if answers[i], err = d.store.take(ctx, "token", time.Minute, interval); err != nil || answers[i].verdict != verdictAcquired {
				t.Fatalf("take: %+v, %v", answers[i], err)
			}
		}
		if diff := cmp.Diff(answers[0], answers[1], cmp.AllowUnexported(taken{}, posting{}), cmpopts.IgnoreFields(taken{}, "now")); diff != "" {
			t.Errorf("take (-first +second):\n%s", diff)
		}
		w.drop("category", "errors", 2)
		for range 2 {
			if begun, err := d.store.begin(ctx, "token"); err != nil || !begun {
				t.Errorf("begin: %t, %v", begun, err)
			}
		}
		for range 2 {
			if done, err := d.store.done(ctx, "token", result{reported: true}); err != nil || !done {
				t.Errorf("done: %t, %v", done, err)
			}
		}
		if n := w.redis.HGet(ctx, w.keys.Pending(), "category 10/30m errors").Val(); n != "2" {
			t.Errorf("%s drops are pending, want 2", n)
		}
		for _, token := range []string{"token", "another"} { // a second call of before, and somebody who has no lease
			if begun, err := d.store.begin(ctx, token); err != nil || begun {
				t.Errorf("begin of %s: %t, %v", token, begun, err)
			}
		}
		if done, err := d.store.done(ctx, "another", result{reported: true}); err != nil || done {
			t.Errorf("done of another: %t, %v", done, err)
		}
	})
}

// A clock that is set back holds the digest up for no longer than an interval.
func TestTheClockIsSetBack(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := w.digest(true, nil)
		w.drop("category", "errors", 5)
		future := time.Now().Add(100 * time.Hour).UnixMicro()
		testkit.Check(t, w.redis.HSet(ctx, w.keys.Pending(), "since", future).Err())
		testkit.Check(t, w.redis.HSet(ctx, w.keys.State(), "next", future).Err())
		testkit.Check(t, w.redis.Set(ctx, w.keys.Lease(), []byte(micros(time.Duration(future)*time.Microsecond)+" dead"), 0).Err())
		w.run(d)
		if texts := w.messages(1); said(t, texts[0]) != 5 {
			t.Errorf("%q", texts)
		}
	})
}

// Replies that the scripts never give are errors.
func TestUnexpectedReplies(t *testing.T) {
	w := newWorld(t, "redis://127.0.0.1:1")
	s := w.digest(true, nil).store
	good := func() []any {
		return []any{int64(1), int64(1), int64(0), int64(0), []any{"since", "1", "global 1/1s errors", "2"}, ""}
	}
	if answer, err := s.decode(good()); err != nil || answer.posting.err != nil || len(answer.posting.drops) != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	for name, change := range map[string]func(reply []any) []any{
		"short":          func(r []any) []any { return r[:5] },
		"verdict 3":      func(r []any) []any { r[0] = int64(3); return r },
		"no number":      func(r []any) []any { r[1] = "1"; return r },
		"failures":       func(r []any) []any { r[3] = int64(-1); return r },
		"no list":        func(r []any) []any { r[4] = "list"; return r },
		"odd":            func(r []any) []any { r[4] = []any{"since"}; return r },
		"no message":     func(r []any) []any { r[5] = int64(1); return r },
		"nothing at all": func([]any) []any { return nil },
	} {
		if _, err := s.decode(change(good())); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for name, fields := range map[string][]any{
		"no drops": {"since", "1"},
		"since":    {"since", "soon", "global 1/1s errors", "2"},
		"count":    {"since", "1", "global 1/1s errors", "-2"},
		"field":    {"since", "1", "errors", "2"},
		"a number": {int64(1), "1"},
	} {
		reply := good()
		reply[4] = fields
		answer, err := s.decode(reply)
		if err != nil || answer.posting.err == nil || !strings.Contains(answer.posting.err.Error(), w.keys.Pending()) {
			t.Errorf("%s: %v, %v", name, err, answer.posting.err)
		}
	}
	for _, text := range []string{"{", "[]", `{"drops":[{"count":0}]}`, `{"posted":"soon"}`} {
		if m, err := decodeMessage(text); err == nil {
			t.Errorf("%s is read as %+v", text, m)
		}
	}
}
