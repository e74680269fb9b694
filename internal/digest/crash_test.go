package digest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/redistest"
	"notifier/internal/slackout"
	"notifier/internal/testkit"
)

// A replica that dies before it posts loses nothing; one that may have posted has its digest not posted again.
func TestTheHolderDies(t *testing.T) {
	t.Parallel()
	const lease = time.Second // the other one has to look before it is over
	for dies, expected := range map[string]struct {
		posts    bool // it has, and did not record it
		begins   bool
		reported int
		inDoubt  int64
	}{
		"before it notes the post": {reported: 7},
		"before the post":          {begins: true, reported: 2, inDoubt: 5},
		"after the post":           {begins: true, posts: true, reported: 7, inDoubt: 5},
	} {
		t.Run(dies, func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				ctx := t.Context()
				w.drop("category", "errors", 5)
				w.old()
				dead := w.digest(true, nil)
				if taken, err := dead.store.take(ctx, dead.token, lease, interval); err != nil || taken.verdict != verdictAcquired {
					t.Fatalf("%+v, %v", taken, err)
				}
				if expected.begins {
					if begun, err := dead.store.begin(ctx, dead.token); err != nil || !begun {
						t.Fatalf("%t, %v", begun, err)
					}
				}
				if expected.posts {
					_, err := dead.config.Publisher.PostText(ctx, "C0", "In the last minute 5 events were not sent: 5 of errors (its limit 10/30m).")
					testkit.Check(t, err)
				}
				alive := w.digest(true, nil)
				if taken, err := alive.store.take(ctx, alive.token, lease, interval); err != nil || taken.verdict != verdictNotNow || taken.wait <= 0 {
					t.Errorf("another one gets %+v, %v", taken, err)
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

// One that was only slow, and has lost its lease, does not post and spoils nothing.
func TestTheHolderIsSlow(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.drop("category", "errors", 5)
		w.old()
		slow := w.digest(true, nil)
		first, err := slow.store.take(ctx, slow.token, time.Millisecond, interval)
		if err != nil || first.verdict != verdictAcquired {
			t.Fatalf("%+v, %v", first, err)
		}
		token := slow.token
		fast := w.digest(true, nil)
		testkit.EventuallyNil(w.t, func() error {
			if fast.turn(ctx); w.slack.Accepted() == 0 {
				return fmt.Errorf("the other one has not posted")
			}
			return nil
		})
		w.drop("category", "errors", 3)
		slow.attempt(ctx, first)
		if done, err := slow.store.done(ctx, token, result{reported: true}); done || err != nil {
			t.Errorf("%t, %v, want that the lease is lost", done, err)
		}
		// A call of before that reaches Redis only now takes no lease.
		w.old()
		if late, err := fast.store.take(ctx, lastToken(t, w), time.Hour, time.Millisecond); err != nil || late.verdict != verdictNotNow {
			t.Errorf("%+v, %v", late, err)
		}
		w.old()
		fast.turn(ctx)
		if texts := w.texts(); len(texts) != 2 || said(t, texts[0]) != 5 || said(t, texts[1]) != 3 {
			t.Errorf("%q, want 5 and 3", texts)
		}
	})
}

func lastToken(t *testing.T, w *world) string {
	t.Helper()
	token, err := w.redis.HGet(t.Context(), w.keys.State(), "token").Result()
	testkit.Check(t, err)
	return token
}

// While Redis is unavailable nothing is posted.
func TestRedisIsUnavailable(t *testing.T) {
	t.Parallel()
	w, proxy := proxied(t)
	w.drop("category", "errors", 5)
	w.old()
	d := w.digest(true, func(c *Config) { c.Redis = testkit.OpenRedis(t, "redis://"+proxy.Addr) })
	proxy.Cut()
	w.run(d)
	testkit.EventuallyNil(w.t, func() error {
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
		for _, call := range []string{"take", "begin", "done"} {
			t.Run(name+" of "+call, func(t *testing.T) {
				t.Parallel()
				w, proxy := proxied(t)
				for times := range 2 { // go-redis makes a call again; both may fail
					faults := []redistest.Fault{fault, fault}[:times+1]
					before := len(w.texts())
					w.drop("category", "errors", 5)
					w.old()
					d := w.digest(true, func(c *Config) {
						c.Redis = testkit.OpenRedis(t, "redis://"+proxy.Addr)
						var once sync.Once
						lose := func() { once.Do(func() { proxy.Break(faults...) }) }
						switch call {
						case "take":
							lose()
						case "begin":
							c.NextFree = func(context.Context) (time.Duration, error) { lose(); return 0, nil }
						case "done":
							c.Publisher = loser{c.Publisher, lose}
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

// loser loses something once a message is posted.
type loser struct {
	Publisher
	lose func()
}

func (l loser) PostText(ctx context.Context, channel, text string) (slackout.Receipt, error) {
	receipt, err := l.Publisher.PostText(ctx, channel, text)
	l.lose()
	return receipt, err
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
