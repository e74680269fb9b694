package digest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/slackout"
	"notifier/test/kit"
)

func TestNewRefuses(t *testing.T) {
	good := Config{Namespace: "n", Interval: time.Minute}
	for name, change := range map[string]func(*Config){
		"namespace":   func(c *Config) { c.Namespace = "{" },
		"no interval": func(c *Config) { c.Interval = 0 },
		"long":        func(c *Config) { c.Interval = MaxInterval + time.Second },
	} {
		config := good
		change(&config)
		if _, err := New(config); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

// Of many replicas one posts, at most once in an interval, and the total that is reported is what was
// dropped.
func TestOneReplicaPostsInAnInterval(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		var digests []*Digest
		for range 5 {
			digests = append(digests, w.digest(true, nil))
		}
		stop := w.run(digests...)
		dropped := 0
		for w.slack.Accepted() < 5 && dropped < 100_000 {
			w.drop("category", "errors", 3)
			dropped += 3
		}
		w.idle()
		stop()
		texts := w.texts()
		if sum := totalReported(t, texts); sum != dropped {
			t.Errorf("%d drops are reported, want %d", sum, dropped)
		}
		messages := w.slack.Messages()
		for i, m := range messages[1:] {
			// the clocks of two processes
			if apart := m.Time.Sub(messages[i].Time); apart < interval-time.Millisecond {
				t.Errorf("messages %d and %d are %s apart, want %s", i+1, i+2, apart, interval)
			}
		}
		if messages[0].Channel != "#ops" && messages[0].Channel != "webhook" {
			t.Errorf("posted to %s", messages[0].Channel)
		}
	})
}

func TestNothingDroppedNothingPosted(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		d := w.digest(false, nil)
		for range 10 {
			d.turn(t.Context())
		}
		if n := w.slack.Requests(); n > 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
}

// The first drop begins an interval: a digest reports a whole one, and not of the first second of a storm.
func TestTheIntervalBeginsWithTheFirstDrop(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		w.drop("global", "errors", 1)
		d := w.digest(false, func(c *Config) { c.Interval = time.Hour })
		if wait := d.store.wait(w.acquire(d).snapshot, time.Hour); wait < 59*time.Minute || wait > time.Hour {
			t.Errorf("waits %s, want an hour", wait)
		}
	})
}

// With a token the last digest is edited for an hour, and then another one is posted.
func TestTheLastMessageIsEdited(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		d := w.digest(false, nil)
		turn := func(want ...string) {
			t.Helper()
			w.old()
			d.turn(t.Context())
			texts := w.texts()
			if len(texts) != len(want) {
				t.Fatalf("%d messages, want %d: %q", len(texts), len(want), texts)
			}
			for i := range texts {
				if !strings.Contains(texts[i], want[i]) {
					t.Errorf("message %d is %q, want %q", i+1, texts[i], want[i])
				}
			}
		}
		w.drop("category", "errors", 5)
		turn("In the last minute 5 events were not sent: 5 of errors (its limit 10/30m). The global limit has room now.")
		w.drop("category", "errors", 2)
		w.drop("global", "deploys", 30)
		turn("37 events were not sent: 30 of deploys (the global limit 100/30m) and 7 of errors (its limit 10/30m).")
		w.age(t, 52*time.Minute)
		w.drop("global", "deploys", 1)
		turn("In the last 53 minutes 38 events were not sent: 31 of deploys ")
		w.age(t, 8*time.Minute)
		w.drop("global", "deploys", 4)
		turn(" 38 events", "In the last minute 4 events were not sent: 4 of deploys ")
		w.drop("global", "deploys", 4)
		turn(" 38 events", " 8 events")

		other := w.digest(false, func(c *Config) { c.Channel = "#elsewhere" })
		d = other
		w.drop("global", "deploys", 1)
		turn(" 38 events", " 8 events", " 1 event was")
		if last := w.slack.Messages()[2].Channel; last != "#elsewhere" {
			t.Errorf("posted to %s", last)
		}
	})
}

// age makes the last message older.
func (w *world) age(t *testing.T, by time.Duration) {
	t.Helper()
	text, err := w.redis.Get(t.Context(), w.keys.Message()).Result()
	kit.Check(t, err)
	m, err := decodeMessage(text)
	kit.Check(t, err)
	m.Posted, m.Since = m.Posted.Add(-by), m.Since.Add(-by)
	kit.Check(t, w.redis.Set(t.Context(), w.keys.Message(), m.encode(), time.Hour).Err())
}

// Where the last message cannot be edited any more, a new one reports what is new.
func TestAMessageThatCannotBeEdited(t *testing.T) {
	for _, code := range []string{"edit_window_closed", "cant_update_message", "message_not_found", "missing_scope"} {
		t.Run(code, func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				w.run(w.digest(false, nil))
				w.drop("category", "errors", 5)
				w.messages(1)
				w.idle()
				w.slack.Next(devstack.Behaviour{Code: code})
				w.drop("category", "errors", 3)
				texts := w.messages(2)
				w.idle()
				if said(t, texts[0]) != 5 || said(t, texts[1]) != 3 {
					t.Errorf("%q, want 5 and 3", texts)
				}
				w.drop("category", "errors", 1)
				w.idle()
				if texts = w.texts(); len(texts) != 2 || said(t, texts[1]) != 4 {
					t.Errorf("%q, want the new one to be edited", texts)
				}
			})
		})
	}
}

func TestEveryKeyExpires(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		d := w.digest(false, nil)
		ttl := func(keys ...string) {
			t.Helper()
			for _, key := range keys {
				if left := w.redis.PTTL(t.Context(), key).Val(); left <= 0 || left > 49*time.Hour {
					t.Errorf("%s expires in %s", key, left)
				}
			}
		}
		w.drop("global", "errors", 5)
		w.old()
		ttl(w.keys.Pending())
		a := w.acquire(d)
		ttl(w.keys.Lease())
		w.begin(d, a)
		ttl(w.keys.Pending(), w.keys.Posting(), w.keys.Lease())
		d.finish(t.Context(), a, result{})
		d.release(t.Context(), a.token)
		w.old()
		d.turn(t.Context())
		ttl(w.keys.State(), w.keys.Message())
		if n := w.redis.Exists(t.Context(), w.keys.Pending(), w.keys.Posting(), w.keys.Lease()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// Foreign values post nothing, stop nobody for ever, and are reported with the key's name.
func TestForeignValues(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.drop("global", "errors", 5)
		w.run(w.digest(true, func(c *Config) { c.Interval = time.Millisecond }))
		w.messages(1)
		w.idle()
		kit.Check(t, w.redis.Set(ctx, w.keys.Message(), "foreign", time.Minute).Err())
		w.drop("global", "errors", 5)
		w.messages(2)
		w.idle()
		if len(w.logged("the last digest is not edited")) == 0 {
			t.Error("no word of the foreign message")
		}
		kit.Check(t, w.redis.HSet(ctx, w.keys.Pending(), "foreign", "field").Err())
		kit.EventuallyNil(w.t, func() error {
			for _, line := range w.logged("the digest cannot be built") {
				if strings.Contains(fmt.Sprint(line.ContextMap()["error"]), w.keys.Pending()) {
					return nil
				}
			}
			return fmt.Errorf("no word of the foreign field")
		})
		kit.Check(t, w.redis.HDel(ctx, w.keys.Pending(), "foreign").Err())
		w.drop("global", "errors", 7)
		if texts := w.messages(3); said(t, texts[2]) != 7 {
			t.Errorf("%q", texts)
		}
	})
}

var _ Publisher = (*slackout.Poster)(nil)
