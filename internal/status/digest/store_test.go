package digest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

// Each call may be made twice, because its reply was lost: it gets the same again and changes nothing.
func TestEveryCallMayBeMadeTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := w.digest(true, nil)
		w.drop("category", "errors", 5)
		w.old()
		for range 2 {
			if acquired, err := d.store.acquire(ctx, "token", time.Minute); err != nil || !acquired {
				t.Fatalf("acquire: %t, %v", acquired, err)
			}
		}
		read, err := d.store.read(ctx)
		kit.Check(t, err)
		w.drop("category", "errors", 2)
		for range 2 {
			w.begin(d, attempt{read, "token"})
		}
		for range 2 {
			if done, err := d.store.finish(ctx, "token", result{reported: true, failures: 1}); err != nil || !done {
				t.Errorf("finish: %t, %v", done, err)
			}
		}
		if n := w.redis.HGet(ctx, w.keys.Pending(), "category 10/30m errors").Val(); n != "2" {
			t.Errorf("%s drops are pending, want 2", n)
		}
		// a request from before, and one of a replica without the lease
		for _, token := range []string{"token", "another"} {
			if begun, err := d.store.begin(ctx, token, time.Minute, read); err != nil || begun {
				t.Errorf("begin of %s: %t, %v", token, begun, err)
			}
		}
		if done, err := d.store.finish(ctx, "another", result{reported: true}); err != nil || done {
			t.Errorf("finish of another: %t, %v", done, err)
		}
		kit.Check(t, d.store.release(ctx, "another"))
		if n := w.redis.Exists(ctx, w.keys.Lease()).Val(); n != 1 {
			t.Error("another has released the lease")
		}
		for range 2 {
			kit.Check(t, d.store.release(ctx, "token"))
		}
		if n := w.redis.Exists(ctx, w.keys.Lease(), w.keys.Posting()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// A replica whose reply to taking the lease was lost does not wait for itself.
func TestTheReplyAboutTheLeaseIsLost(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.drop("category", "errors", 5)
		w.old()
		for _, again := range []bool{true, false} { // the client asks again, and does not
			d := w.digest(true, nil)
			d.config.Redis.AddHook(&loseSet{again: again})
			d.turn(t.Context())
			if n := w.redis.Exists(t.Context(), w.keys.Lease()).Val(); n != 0 {
				t.Errorf("asked again %t: the lease is not released", again)
			}
		}
		if n := w.slack.Requests(); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
	})
}

// loseSet loses the first reply to SET, and asks again.
type loseSet struct{ again bool }

func (loseSet) DialHook(next redis.DialHook) redis.DialHook { return next }

func (loseSet) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *loseSet) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if command.Name() != "set" || err != nil {
			return err
		}
		if l.again {
			return next(ctx, command)
		}
		err = errors.New("no reply")
		command.SetErr(err)
		return err
	}
}

// A clock that is set back holds the digest up for no longer than an interval.
func TestTheClockIsSetBack(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		d := w.digest(true, nil)
		w.drop("category", "errors", 5)
		future := time.Now().Add(100 * time.Hour).UnixMicro()
		kit.Check(t, w.redis.HSet(ctx, w.keys.Pending(), "since", future).Err())
		kit.Check(t, w.redis.HSet(ctx, w.keys.State(), "next", future).Err())
		kit.Check(t, w.redis.Set(ctx, w.keys.Lease(), strconv.FormatInt(future, 10)+" dead", 0).Err())
		w.run(d)
		if texts := w.messages(1); said(t, texts[0]) != 5 {
			t.Errorf("%q", texts)
		}
	})
}

// What is no lease of ours holds nobody up for ever.
func TestALeaseThatIsNone(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.drop("category", "errors", 5)
		for _, value := range []string{"", "junk", "1700000000000000 ended", "9999999999999999999999 huge"} {
			w.old()
			kit.Check(t, w.redis.Set(t.Context(), w.keys.Lease(), value, 0).Err())
			d := w.digest(true, nil)
			d.turn(t.Context())
			if acquired, err := d.store.acquire(t.Context(), "token", time.Minute); err != nil || !acquired {
				t.Errorf("%q: it has the lease: %t, %v", value, acquired, err)
			}
		}
	})
}

// What was not written by a Recorder is an error that names the key.
func TestForeignFieldsAreNotRead(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		for name, fields := range map[string][]any{
			"no drops": {"since", "1"},
			"a count":  {"since", "1", "global 1/1s errors", "-2"},
			"a field":  {"since", "1", "errors", "2"},
		} {
			kit.Check(t, w.redis.Del(t.Context(), w.keys.Pending()).Err())
			kit.Check(t, w.redis.HSet(t.Context(), w.keys.Pending(), fields...).Err())
			read, err := w.digest(true, nil).store.read(t.Context())
			if err != nil || read.invalid == nil || !strings.Contains(read.invalid.Error(), w.keys.Pending()) {
				t.Errorf("%s: %v, %v", name, read.invalid, err)
			}
		}
		for _, text := range []string{"{", "[]", `{"drops":[{"count":0}]}`, `{"posted":"soon"}`} {
			if m, err := decodeMessage(text); err == nil {
				t.Errorf("%s is read as %+v", text, m)
			}
		}
		kit.Check(t, w.redis.HSet(t.Context(), w.keys.State(), "next", "soon", "failures", "-7").Err())
		if read, err := w.digest(true, nil).store.read(t.Context()); err != nil || read.failures != 0 {
			t.Errorf("%d failures, %v, want none", read.failures, err)
		}
	})
}
