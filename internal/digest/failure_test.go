package digest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/redistest"
	"notifier/internal/slackout"
)

// doubted is how many drops the log says may not have been told.
func (w *world) doubted() (sum int64) {
	for _, line := range w.logged(doubtLine) {
		sum += line.ContextMap()["drops"].(int64)
	}
	return sum
}

// A failure that is none of doubt loses nothing and repeats nothing.
func TestSlackRefuses(t *testing.T) {
	for name, behaviour := range map[string]devstack.Behaviour{
		"unavailable":       {Status: 503},
		"cut before":        {Status: 500},
		"channel_not_found": {Code: "channel_not_found"},
		"revoked":           {Code: "token_revoked"},
		"429":               {RetryAfter: "1"},
	} {
		for _, webhook := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, webhook %t", name, webhook), func(t *testing.T) {
				eachStore(t, func(t *testing.T, w *world) {
					w.slack.Next(behaviour, behaviour)
					w.drop("category", "errors", 5)
					w.old()
					w.run(w.digest(webhook, nil), w.digest(webhook, nil))
					w.messages(1)
					w.idle()
					if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 5 || w.slack.Requests() != 3 {
						t.Errorf("%d requests, %q", w.slack.Requests(), texts)
					}
					if n := w.doubted(); n != 0 {
						t.Errorf("%d drops are in doubt", n)
					}
				})
			})
		}
	}
}

// Slack's wait holds for all replicas and their events.
func TestA429PausesAll(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.slack.Next(devstack.Behaviour{RetryAfter: "30"})
		w.drop("category", "errors", 5)
		w.old()
		d := w.digest(false, nil)
		d.turn(t.Context())
		if n := w.redis.HGet(t.Context(), w.keys.Pending(), "category 10/30m errors").Val(); n != "5" {
			t.Errorf("%s drops are pending, want 5", n)
		}
		left, err := w.config.Pause.Remaining(t.Context())
		if err != nil || left < 20*time.Second || left > 30*time.Second {
			t.Errorf("the pause is %s, %v", left, err)
		}
		if wait := d.turn(t.Context()); wait < 20*time.Second || w.slack.Requests() != 1 {
			t.Errorf("waits %s, %d requests", wait, w.slack.Requests())
		}
		// The pause alone would hold it too.
		w.old()
		if wait := d.turn(t.Context()); wait < 20*time.Second || w.slack.Requests() != 1 {
			t.Errorf("waits %s, %d requests", wait, w.slack.Requests())
		}
	})
}

// A failing Slack is asked less and less, by all replicas together.
func TestBackoff(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.slack.Always(devstack.Behaviour{Status: 503})
		w.drop("category", "errors", 5)
		w.old()
		ds := []*Digest{w.digest(false, nil), w.digest(false, nil)}
		wait := time.Duration(0)
		for i := range 6 {
			if i > 0 {
				if err := w.redis.HSet(t.Context(), w.keys.State(), "next", 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			next := ds[i%2].turn(t.Context())
			if want := 20 * time.Millisecond << i; next != want {
				t.Errorf("after %d failures it waits %s, want %s; before it was %s", i+1, next, want, wait)
			}
			other, err := ds[(i+1)%2].store.take(t.Context(), "other", time.Second, interval)
			if err != nil || other.verdict != verdictNotNow || other.wait <= 0 || other.wait > next {
				t.Errorf("the other one: %+v, %v", other, err)
			}
			wait = next
		}
		for range 12 {
			_ = w.redis.HSet(t.Context(), w.keys.State(), "next", 0).Err()
			wait = ds[0].turn(t.Context())
		}
		if wait > longestPoll {
			t.Errorf("it looks again after %s", wait)
		}
	})
}

// A post in doubt is not posted again, and said to be in doubt. The next digest goes on with what comes.
func TestAPostInDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		behaviour devstack.Behaviour
		arrived   int
	}{
		"accepted, and the answer lost": {devstack.Behaviour{CutAfter: true}, 1},
		"lost":                          {devstack.Behaviour{CutBefore: true}, 0},
		"no answer":                     {devstack.Behaviour{Hang: true}, 0},
		"internal_error":                {devstack.Behaviour{Code: "internal_error"}, 0},
	} {
		for _, webhook := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, webhook %t", name, webhook), func(t *testing.T) {
				eachStore(t, func(t *testing.T, w *world) {
					w.slack.Next(test.behaviour)
					w.drop("category", "errors", 5)
					w.old()
					w.run(w.digest(webhook, nil), w.digest(webhook, nil))
					w.idle()
					if n := w.doubted(); n != 5 {
						t.Errorf("%d drops are in doubt, want 5", n)
					}
					w.drop("category", "errors", 3)
					texts := w.messages(test.arrived + 1)
					w.idle()
					if last := texts[len(texts)-1]; len(texts) != test.arrived+1 || said(t, last) != 3 {
						t.Errorf("%q", texts)
					}
				})
			})
		}
	}
}

// An edit in doubt is made again, and what it told stands in the next one.
func TestAnEditInDoubt(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.run(w.digest(false, nil))
		w.drop("category", "errors", 5)
		w.messages(1)
		w.idle()
		w.slack.Next(devstack.Behaviour{CutBefore: true})
		w.drop("category", "errors", 3)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 0 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
		w.slack.Next(devstack.Behaviour{CutBefore: true}, devstack.Behaviour{CutBefore: true})
		w.drop("category", "errors", 1)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 1 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
		w.drop("category", "errors", 1)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 10 {
			t.Errorf("%q, want 10", texts)
		}
	})
}

// An edit that fails for certain is made again later, and nothing is lost.
func TestAnEditThatFails(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.run(w.digest(false, nil), w.digest(false, nil))
		w.drop("category", "errors", 5)
		w.messages(1)
		w.idle()
		w.slack.Next(devstack.Behaviour{Status: 503}, devstack.Behaviour{RetryAfter: "1"})
		w.drop("category", "errors", 3)
		w.idle()
		if texts := w.texts(); len(texts) != 1 || said(t, texts[0]) != 8 || w.doubted() != 0 {
			t.Errorf("%q, %d in doubt", texts, w.doubted())
		}
	})
}

// A replica that dies before it posts loses nothing; one that may have posted has its digest not posted again.
func TestTheHolderDies(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		const lease = 300 * time.Millisecond
		ctx := t.Context()
		for _, dies := range []string{"before it notes the post", "before the post", "after the post"} {
			before, doubt := saidInAll(t, w.texts()), w.doubted()
			w.drop("category", "errors", 5)
			w.old()
			dead := w.digest(true, nil)
			if taken, err := dead.store.take(ctx, dead.token, lease, interval); err != nil || taken.verdict != verdictMine {
				t.Fatalf("%+v, %v", taken, err)
			}
			want, inDoubt := 7, int64(0)
			if dies != "before it notes the post" {
				if begun, err := dead.store.begin(ctx, dead.token); err != nil || !begun {
					t.Fatalf("%t, %v", begun, err)
				}
				want, inDoubt = 2, 5
			}
			if dies == "after the post" {
				if _, err := dead.config.Publisher.Say(ctx, "C0", "In the last 1 min 5 notifications were not sent: errors 5 (its limit 10/30m)."); err != nil {
					t.Fatal(err)
				}
				want = 7
			}
			alive := w.digest(true, nil)
			if taken, err := alive.store.take(ctx, alive.token, lease, interval); err != nil || taken.verdict != verdictNotNow || taken.wait <= 0 {
				t.Errorf("%s: another one gets %+v, %v", dies, taken, err)
			}
			w.drop("category", "errors", 2) // while nobody can post
			stop := w.run(alive, w.digest(true, nil))
			w.idle()
			stop()
			if got := saidInAll(t, w.texts()) - before; got != want {
				t.Errorf("dies %s: %d drops are told, want %d: %q", dies, got, want, w.texts())
			}
			if got := w.doubted() - doubt; got != inDoubt {
				t.Errorf("dies %s: %d drops are in doubt, want %d", dies, got, inDoubt)
			}
		}
	})
}

// One that was only slow, and has lost its lease, does not post and spoils nothing.
func TestTheHolderIsSlow(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.drop("category", "errors", 5)
		w.old()
		slow := w.digest(true, nil)
		first, err := slow.store.take(ctx, slow.token, time.Millisecond, interval)
		if err != nil || first.verdict != verdictMine {
			t.Fatalf("%+v, %v", first, err)
		}
		token := slow.token
		fast := w.digest(true, nil)
		w.eventually(func() error {
			if fast.turn(ctx); w.slack.Accepted() == 0 {
				return fmt.Errorf("the other one has not posted")
			}
			return nil
		})
		w.drop("category", "errors", 3)
		slow.try(ctx, first)
		if done, err := slow.store.done(ctx, token, ending{told: true}); done || err != nil {
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
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// While Redis is away nothing is posted. Answers that get lost change nothing.
func TestRedisAway(t *testing.T) {
	server := redistest.StartProcess(t)
	w := newWorld(t, server.URL())
	proxy := redistest.StartProxy(t, server.Addr)
	w.drop("category", "errors", 5)
	w.old()
	d := w.digest(true, func(c *Config) { c.Redis = open(t, "redis://"+proxy.Addr) })
	proxy.Cut()
	stop := w.run(d)
	w.eventually(func() error {
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
	stop()

	for name, fault := range redistest.Faults {
		for _, call := range []string{"take", "begin", "done"} {
			for times := range 2 { // go-redis makes a call again; both may fail
				faults := []redistest.Fault{fault, fault}[:times+1]
				before := len(w.texts())
				w.drop("category", "errors", 5)
				w.old()
				d := w.digest(true, func(c *Config) {
					c.Redis = open(t, "redis://"+proxy.Addr)
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
					t.Errorf("%s of %s, %d times: %q, %d in doubt", name, call, times+1, texts, w.doubted())
				}
			}
		}
	}
}

// loser loses something once a message is posted.
type loser struct {
	Publisher
	lose func()
}

func (l loser) Say(ctx context.Context, channel, text string) (slackout.Receipt, error) {
	receipt, err := l.Publisher.Say(ctx, channel, text)
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

// wild is a publisher that does anything.
type wild struct {
	Publisher
	mu     sync.Mutex
	random *rand.Rand
	fail   bool
}

func (p *wild) outcome() (before, after error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fail {
		return nil, nil
	}
	switch p.random.IntN(8) {
	case 0:
		return &slackout.Error{Class: slackout.Retry, Code: "http_503"}, nil
	case 1:
		return &slackout.Error{Class: slackout.Rejected, Code: "edit_window_closed"}, nil
	case 2:
		return &slackout.Error{Class: slackout.Credentials, Code: "missing_scope"}, nil
	case 3:
		return &slackout.Error{Class: slackout.Ambiguous, Code: "timeout"}, nil
	case 4:
		return nil, &slackout.Error{Class: slackout.Ambiguous, Code: "timeout"}
	}
	return nil, nil
}

func (p *wild) Say(ctx context.Context, channel, text string) (slackout.Receipt, error) {
	before, after := p.outcome()
	if before != nil {
		return slackout.Receipt{}, before
	}
	receipt, err := p.Publisher.Say(ctx, channel, text)
	if after != nil {
		return slackout.Receipt{}, after
	}
	return receipt, err
}

func (p *wild) Edit(ctx context.Context, channel, ts, text string) error {
	before, after := p.outcome()
	if before != nil {
		return before
	}
	if err := p.Publisher.Edit(ctx, channel, ts, text); err != nil {
		return err
	}
	return after
}

// Whatever fails and whoever dies, in whatever order: no drop is told twice, and each is told or said to be in doubt.
func TestAccounting(t *testing.T) {
	for _, webhook := range []bool{false, true} {
		t.Run(fmt.Sprintf("webhook %t", webhook), func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				dropped := 0
				for round := range 8 {
					dropped += dropWildly(w, webhook, uint64(round))
					// An edit tells again what an earlier one may have told: the sums hold over all rounds.
					told, inDoubt := saidInAll(t, w.texts()), int(w.doubted())
					if told > dropped || told+inDoubt < dropped {
						t.Errorf("seed %d: %d are told and %d in doubt of %d drops", round, told, inDoubt, dropped)
					}
					t.Logf("%d drops: %d told, %d in doubt, %d messages", dropped, told, inDoubt, len(w.texts()))
				}
			})
		})
	}
}

// dropWildly has three replicas tell drops while everything fails now and then, and gives how many there were.
func dropWildly(w *world, webhook bool, seed uint64) (dropped int) {
	w.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	var publishers []*wild
	replica := func() *Digest {
		return w.digest(webhook, func(c *Config) {
			p := &wild{Publisher: c.Publisher, random: rand.New(rand.NewPCG(seed, uint64(len(publishers)+2))), fail: true}
			publishers = append(publishers, p)
			c.Publisher, c.Interval, c.Lease = p, 10*time.Millisecond, 200*time.Millisecond
		})
	}
	stops := []func(){w.run(replica()), w.run(replica()), w.run(replica())}
	for range 40 {
		n := 1 + random.IntN(20)
		dropped += n
		w.drop([]string{"global", "category"}[random.IntN(2)], fmt.Sprint("c", random.IntN(30)), n)
		if random.IntN(5) == 0 { // one is stopped, and another one started
			i := random.IntN(len(stops))
			stops[i]()
			stops[i] = w.run(replica())
		}
	}
	for _, p := range publishers {
		p.mu.Lock()
		p.fail = false
		p.mu.Unlock()
	}
	w.idle()
	for _, stop := range stops {
		stop()
	}
	return dropped
}
