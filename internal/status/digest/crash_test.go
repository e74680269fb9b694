package digest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// A replica that dies before it posts loses nothing; one that may have posted has its digest not posted
// again.
func TestTheHolderDies(t *testing.T) {
	t.Parallel()
	for dies, expected := range map[string]struct {
		posts    bool // it has, and did not record it
		begins   bool
		reported int
		inDoubt  int64
	}{
		"before it records the post": {reported: 7},
		"before the post":            {begins: true, reported: 2, inDoubt: 5},
		"after the post":             {begins: true, posts: true, reported: 7, inDoubt: 5},
	} {
		t.Run(dies, func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				w.drop("category", "errors", 5)
				w.old()
				// The other one has to look before the lease is over.
				dead := w.digest(true, func(config *Config) { config.Lease = time.Second })
				a := w.acquire(dead)
				if expected.begins {
					w.begin(dead, a)
				}
				if expected.posts {
					_, err := dead.config.Publisher.PostText(t.Context(), "C0", "In the last minute 5 events were not sent: 5 of errors (its limit 10/30m).")
					kit.Check(t, err)
				}
				alive := w.digest(true, nil)
				if acquired, err := alive.store.acquire(t.Context(), "alive", time.Second); err != nil || acquired {
					t.Errorf("another one gets the lease: %t, %v", acquired, err)
				}
				w.drop("category", "errors", 2) // while nobody can post
				stop := w.run(alive, w.digest(true, nil))
				w.idle()
				stop()
				if got := totalReported(t, w.texts()); got != expected.reported {
					t.Errorf("%d drops are reported, want %d: %q", got, expected.reported, w.texts())
				}
				if got := w.doubted(); got != expected.inDoubt {
					t.Errorf("%d drops are in doubt, want %d", got, expected.inDoubt)
				}
			})
		})
	}
}

// A replica that was only slow, and has lost its lease, does not post and spoils nothing.
func TestTheHolderIsSlow(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.drop("category", "errors", 5)
		w.old()
		slow := w.digest(true, func(config *Config) { config.Lease = time.Millisecond })
		a := w.acquire(slow)
		fast := w.digest(true, nil)
		kit.EventuallyNil(w.t, func() error {
			if fast.turn(ctx); w.slack.Accepted() == 0 {
				return fmt.Errorf("the other one has not posted")
			}
			return nil
		})
		w.drop("category", "errors", 3)
		slow.report(ctx, a)
		if n := len(w.logged("the digest is not posted: its lease cannot be confirmed")); n != 1 {
			t.Errorf("%d lines say that the lease is lost, want one", n)
		}
		for _, result := range []result{{reported: true}, {}} {
			if done, err := slow.store.finish(ctx, a.token, result); done || err != nil {
				t.Errorf("%t, %v, want that the lease is lost", done, err)
			}
		}
		w.old()
		fast.turn(ctx)
		if texts := w.texts(); len(texts) != 2 || said(t, texts[0]) != 5 || said(t, texts[1]) != 3 {
			t.Errorf("%q, want 5 and 3", texts)
		}
	})
}

// While Redis is unavailable nothing is posted.
func TestRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	w, proxy := proxied(t)
	w.drop("category", "errors", 5)
	w.old()
	d := w.digest(true, func(c *Config) { c.Redis = kit.OpenRedis(t, "redis://"+proxy.Addr) })
	proxy.Cut()
	w.run(d)
	kit.EventuallyNil(w.t, func() error {
		if len(w.logged("the digest waits for Redis")) == 0 {
			return fmt.Errorf("nothing was logged")
		}
		return nil
	})
	if n := w.slack.Requests(); n != 0 {
		t.Errorf("%d requests, want none", n)
	}
	proxy.Heal()
	w.messages(1)
	w.idle()
}

// proxied is a world whose digests can be cut off from Redis.
func proxied(t *testing.T) (*world, *redistest.Proxy) {
	t.Helper()
	server := redistest.StartProcess(t)
	return newWorld(t, server.URL()), redistest.StartProxy(t, server.Addr)
}

// Lost answers of Redis change nothing.
func TestAnswersOfRedisAreLost(t *testing.T) {
	t.Parallel()
	for name, fault := range redistest.Faults {
		for _, call := range []string{"acquire", "begin", "finish"} {
			t.Run(name+" of "+call, func(t *testing.T) {
				t.Parallel()
				w, proxy := proxied(t)
				for times := range 2 { // go-redis makes a call again; both may fail
					faults := []redistest.Fault{fault, fault}[:times+1]
					before := len(w.texts())
					w.drop("category", "errors", 5)
					w.old()
					d := w.digest(true, func(c *Config) {
						c.Redis = kit.OpenRedis(t, "redis://"+proxy.Addr)
						var once sync.Once
						lose := func() { once.Do(func() { proxy.Break(faults...) }) }
						switch call {
						case "acquire":
							lose()
						case "begin":
							c.NextFree = func(context.Context) (time.Duration, error) { lose(); return 0, nil }
						case "finish":
							c.Permits = permits{Limiter: w.limiter, answered: lose}
						}
					})
					stop := w.run(d)
					w.idle()
					stop()
					if texts := w.texts()[before:]; len(texts) != 1 || said(t, texts[0]) != 5 || w.doubted() != 0 {
						t.Errorf("%d times: %q, %d in doubt", times+1, texts, w.doubted())
					}
				}
			})
		}
	}
}

// A digest that is under way when the worker stops is brought to its end.
func TestTheWorkerStops(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.slack.Next(devstack.Behaviour{Delay: 200 * time.Millisecond})
		w.drop("category", "errors", 5)
		w.old()
		changed := w.slack.Changed()
		stop := w.run(w.digest(true, nil))
		<-changed // the post has come in
		stop()
		w.idle()
		if texts := w.texts(); len(texts) != 1 || w.doubted() != 0 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
	})
}
