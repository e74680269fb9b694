package status

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
)

var now = time.Date(2026, 11, 20, 9, 10, 38, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// replica is a ready replica with a change.
func replica(id string, change func(*snapshot.Snapshot)) report.Replica {
	s := snapshot.Snapshot{ID: id, Ready: true, Started: ago(time.Hour), Settings: snapshot.Settings{Hash: "6f1c2d3e"}}
	if change != nil {
		change(&s)
	}
	return report.Replica{Snapshot: s, Seen: ago(time.Second)}
}

func waitsFor(waits ...snapshot.Wait) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.Waits, s.Ready = waits, false }
}

func wait(dependency, channel, reason string) snapshot.Wait {
	return snapshot.Wait{For: dependency, Channel: channel, Reason: reason, Since: ago(4 * time.Minute)}
}

func hasChannels(channels ...snapshot.Channel) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.Channels = channels }
}

func hasStream(stream snapshot.Stream) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) { s.Streams = []snapshot.Stream{stream} }
}

func refusedFor(d time.Duration) snapshot.Channel {
	rejection := &snapshot.Rejection{Code: "is_archived", First: ago(d), Last: ago(d / 2)}
	return snapshot.Channel{Name: "#gone", Rejected: rejection}
}

func silentFor(r report.Replica, d time.Duration) report.Replica {
	r.Silent, r.Seen = true, ago(d)
	return r
}

// refusal is an error reply, as go-redis returns it.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

const wrongPass = refusal("WRONGPASS invalid username-password pair or user is disabled.")

func all(replicas ...report.Replica) view { return view{now: now, replicas: replicas} }

// usual are the limits in these tests.
var usual = []Limit{
	{Scope: "global", Limit: "100/30m", Used: 23, Max: 100},
	{Scope: "category/errors", Limit: "10/30m", Used: 10, Max: 10, FreeAt: now.Add(29*time.Minute + 58*time.Second)},
}

const usualText = " 23 of 100 global slots are used; errors is full for 29m58s."

// withheld is a worker whose lookup found that the consumer does not deliver all events.
func withheld(why string, none bool) func(*snapshot.Snapshot) {
	return func(s *snapshot.Snapshot) {
		s.Streams = []snapshot.Stream{{Name: "NOTIFY", Seen: now, Withheld: &snapshot.Withheld{Why: why, None: none}}}
	}
}

// noticing is a ready worker that reports something which stops no event.
func noticing(what, reason string) report.Replica {
	return replica("a", func(s *snapshot.Snapshot) { s.Waits = []snapshot.Wait{wait(what, "", reason)} })
}

func TestConditionsAndSentence(t *testing.T) {
	ok := replica("b", nil)
	two := uint64(2)
	twoFail := []snapshot.Wait{
		wait("slack", "#a", "slack: ambiguous: http_503"), wait("slack", "#b", "slack: ambiguous: http_503"),
	}
	down := snapshot.Channel{Name: "#alerts", Queued: 42, Oldest: ago(4 * time.Minute), Why: "slack"}
	for _, test := range []struct {
		situation string
		view      view
		sentence  string
		want      []string // TYPE STATE AGE MESSAGE
	}{
		{"all is well", all(ok, replica("c", nil)), "Sending." + usualText, nil},
		{"no worker", all(), "Not sending: no worker is running.", []string{
			"workers fail - no worker is running",
		}},
		{"only silent workers", all(silentFor(ok, 40*time.Second)), "Not sending: no worker has reported for 40s.", []string{
			"workers fail 40s no worker has reported for 40s",
		}},
		{"a silent worker", all(ok, silentFor(replica("c", nil), 20*time.Second)), "Sending." + usualText, []string{
			"workers warn 20s 1 of 2 workers silent, c for 20s",
		}},
		{
			"workers that start", all(replica("a", func(s *snapshot.Snapshot) {
				s.Ready, s.NotReady = false, []string{"worker: starting or stopping"}
			})),
			"Not sending: no worker is ready: starting or stopping.",
			[]string{"workers fail - no worker is ready: starting or stopping"},
		},
		{
			"a worker full of events for a slow channel", all(replica("a", func(s *snapshot.Snapshot) {
				s.Ready, s.NotReady = false, []string{"worker: no room is left"}
				s.Channels = []snapshot.Channel{{Name: "#a", Queued: 900, Oldest: ago(3 * time.Minute), Why: "pace"}}
			})),
			"Sending." + usualText,
			[]string{
				"workers fail - no worker is ready: no room is left",
				"channel/#a warn - 900 events wait, the oldest for 3m, at the pace of the channel",
			},
		},
		{"NATS down", all(replica("a", waitsFor(wait("nats", "", "nats: no servers"))), replica("b", waitsFor(wait("nats", "", "nats: no servers")))),
			"Not sending: NATS is unavailable: no servers.", []string{"nats fail 4m NATS is unavailable: no servers"}},
		{"the consumer is missing", all(replica("a", waitsFor(wait("consumer", "", "consumer not found")))),
			"Not sending: the stream or its consumer cannot be read: consumer not found.",
			[]string{"consumer fail 4m the stream or its consumer cannot be read: consumer not found"}},
		{"the consumer is paused", all(replica("a", withheld("consumer C is paused", true)), ok),
			"Not sending: consumer C is paused.", []string{"consumer fail - consumer C is paused"}},
		{
			"the consumer is paused, and earlier events are posted",
			all(replica("a", withheld("consumer C is paused", true)),
				replica("b", hasChannels(snapshot.Channel{Name: "#alerts", Queued: 500, Posting: true}))),
			"Sending." + usualText, []string{"consumer fail - consumer C is paused"},
		},
		{
			"the consumer of one of two streams is paused",
			all(replica("a", withheld("consumer C is paused", true)), replica("b", func(s *snapshot.Snapshot) {
				s.Streams = []snapshot.Stream{{Name: "NOTIFY_B", Seen: now, Unread: &two}}
			})),
			"Sending." + usualText, []string{"consumer fail - consumer C is paused"},
		},
		{"the consumer's filter is too narrow", all(replica("a", withheld("consumer C takes notify.a", false)), ok),
			"Sending." + usualText, []string{"consumer warn - consumer C takes notify.a"}},
		{
			"each replica is stopped by something else",
			all(replica("a", waitsFor(wait("nats", "", "no servers"))), replica("b", waitsFor(wait("log", "", "no space left on device")))),
			"Not sending: NATS is unavailable in 1 of 2 workers: no servers; the log cannot be written in 1 of 2 workers: no space left on device.",
			[]string{
				"nats fail 4m NATS is unavailable in 1 of 2 workers: no servers",
				"workers fail 4m the log cannot be written in 1 of 2 workers: no space left on device",
			},
		},
		{
			"Redis is full, so heartbeats are old", view{
				now: now, replicas: []report.Replica{silentFor(ok, 30*time.Second)},
				refuses: errors.New("OOM command not allowed when used memory > 'maxmemory'."),
			},
			"Not sending: Redis is full (maxmemory).", []string{"redis fail 30s Redis is full (maxmemory)"},
		},
		{"Redis is read-only for one", all(replica("a", waitsFor(wait("redis", "", "redis: READONLY You can't write"))), ok),
			"Sending." + usualText, []string{"redis warn 4m Redis is read-only in 1 of 2 workers"}},
		{
			"a ping finds that Redis denies access",
			all(replica("a", func(s *snapshot.Snapshot) {
				s.Ready, s.NotReady = false, []string{"redis: NOPERM this user has no permissions"}
			})),
			"Not sending: Redis is unavailable: NOPERM this user has no permissions.",
			[]string{"redis fail - Redis is unavailable: NOPERM this user has no permissions"},
		},
		{
			"Redis refuses a command's user", view{now: now, blind: true, readErr: fmt.Errorf("redis: cannot read the time: %w", wrongPass)},
			"Unknown: Redis refuses this user: WRONGPASS invalid username-password pair or user is disabled.",
			[]string{"redis fail - Redis is unavailable: cannot read the time: " + wrongPass.Error()},
		},
		{
			"a worker cannot read Redis",
			view{now: now, replicas: []report.Replica{ok}, blind: true, readErr: errors.New("dial tcp: connection refused")},
			"Not sending: Redis is unavailable: dial tcp: connection refused.",
			[]string{"redis fail - Redis is unavailable: dial tcp: connection refused"},
		},
		{
			"a damaged key hides the limits from a worker that works",
			view{now: now, replicas: []report.Replica{ok}, readErr: errors.New("WRONGTYPE Operation against a key")},
			"Sending. The limits are unknown: WRONGTYPE Operation against a key.",
			[]string{"redis fail - the limits cannot be read: WRONGTYPE Operation against a key"},
		},
		{
			"a command cannot read Redis", view{now: now, blind: true, readErr: errors.New("i/o timeout")},
			"Not sending: Redis is unavailable: i/o timeout.", []string{"redis fail - Redis is unavailable: i/o timeout"},
		},
		{
			"Slack is down, noticed by the one replica with events",
			all(replica("a", waitsFor(wait("slack", "", "slack: unavailable: connection_refused"))), ok),
			"Not sending: Slack takes no posts in 1 of 2 workers: connection_refused.",
			[]string{"slack fail 4m Slack takes no posts in 1 of 2 workers: connection_refused"},
		},
		{
			"one replica cannot reach Slack, another can",
			all(replica("a", waitsFor(wait("slack", "", "slack: unavailable: dns_error"))),
				replica("b", func(s *snapshot.Snapshot) { s.LastSent = ago(time.Minute) })),
			"Sending." + usualText, []string{"slack warn 4m Slack takes no posts in 1 of 2 workers: dns_error"},
		},
		{
			"the token is revoked", all(replica("a", func(s *snapshot.Snapshot) {
				s.Waits, s.Held = []snapshot.Wait{wait("credentials", "", "slack: credentials: token_revoked")}, 3
			})),
			"Not sending: Slack refuses the token or webhook: token_revoked. 3 events are held.",
			[]string{"slack fail 4m Slack refuses the token or webhook: token_revoked"},
		},
		{
			"the webhook is another server's", all(replica("a", func(s *snapshot.Snapshot) {
				s.Waits = []snapshot.Wait{wait("credentials", "", snapshot.NotSlack+": next try at 12:00:00Z; chat.example replied 204 with an empty body")}
			}), replica("b", nil)),
			"Not sending: replies do not come from Slack in 1 of 2 workers: next try at 12:00:00Z; chat.example replied 204 with an empty body.",
			[]string{"slack fail 4m replies do not come from Slack in 1 of 2 workers: next try at 12:00:00Z; chat.example replied 204 with an empty body"},
		},
		{
			"the webhook is another server's, with a long name", all(replica("a", func(s *snapshot.Snapshot) {
				reason := snapshot.NotSlack + ": next try at 12:00:00Z; " + strings.Repeat("x", 200) + ".example replied 204"
				s.Waits = []snapshot.Wait{wait("credentials", "", reason)}
			})),
			"Not sending: replies do not come from Slack: next try at 12:00:00Z; " + strings.Repeat("x", 102) + "….",
			[]string{"slack fail 4m replies do not come from Slack: next try at 12:00:00Z; " + strings.Repeat("x", 102) + "…"},
		},
		{
			"Slack pauses a channel", view{
				now: now, replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
					s.Channels, s.Waits = []snapshot.Channel{down}, []snapshot.Wait{wait("slack", "#alerts", "Slack asked to wait 30 s")}
				})},
				pauses: []ratelimit.Pause{{Channel: "#alerts", Left: 12 * time.Second}},
			},
			"Sending, but not to #alerts: Slack asked to wait, 12s left, 42 events wait." + usualText,
			[]string{"channel/#alerts warn 4m Slack asked to wait, 12s left, 42 events wait"},
		},
		{
			"Slack fails on some events and takes others",
			all(replica("a", func(s *snapshot.Snapshot) {
				s.Channels = []snapshot.Channel{{Name: "#alerts", Queued: 4, Oldest: ago(3 * time.Minute), Why: "pace"}}
				for _, category := range []string{"bad", "bad", "evil", "worse"} {
					failing := snapshot.Failing{Channel: "#alerts", Category: category, Error: "internal_error", Next: now}
					s.Failing = append(s.Failing, failing)
				}
				s.Failing = append(s.Failing, snapshot.Failing{Channel: "#alerts", Category: "good", Error: "ratelimited"})
			})),
			"Sending." + usualText,
			[]string{"channel/#alerts warn - 4 events wait, the oldest for 3m, " +
				"Slack fails on events of bad, evil and 1 more with internal_error"},
		},
		{
			"Slack fails on events for several reasons",
			all(replica("a", func(s *snapshot.Snapshot) {
				s.Channels = []snapshot.Channel{{Name: "#alerts", Queued: 3, Oldest: ago(3 * time.Minute)}}
				for category, code := range map[string]string{
					"bad": "internal_error", "evil": "http_500", "worse": "internal_error",
				} {
					s.Failing = append(s.Failing,
						snapshot.Failing{Channel: "#alerts", Category: category, Error: code, Next: now})
				}
			})),
			"Sending." + usualText,
			[]string{"channel/#alerts warn - 3 events wait, the oldest for 3m, " +
				"Slack fails on events of bad, evil and 1 more with http_500 and internal_error"},
		},
		{
			"a channel fails in one replica, another posts there",
			all(replica("b", hasChannels(snapshot.Channel{Name: "#alerts", Posting: true})), replica("a", func(s *snapshot.Snapshot) {
				s.Channels, s.Waits = []snapshot.Channel{down}, []snapshot.Wait{wait("slack", "#alerts", "slack: unavailable: http_503")}
			})),
			"Sending." + usualText,
			[]string{"channel/#alerts warn 4m Slack fails with http_503, 42 events wait, another worker posts"},
		},
		{
			"the only channel is archived", view{
				now: now, channels: []string{"#alerts"},
				replicas: []report.Replica{replica("a", hasChannels(snapshot.Channel{Name: "#alerts", Refused: "is_archived"}))},
			},
			"Not sending: #alerts: Slack refuses the channel (is_archived), its events become dead letters.",
			[]string{"channel/#alerts fail - Slack refuses the channel (is_archived), its events become dead letters"},
		},
		{
			"a channel refused the last message",
			all(replica("a", hasChannels(refusedFor(time.Minute))), ok),
			"Sending, but not to #gone: Slack refuses the channel (is_archived), its events become dead letters." + usualText,
			[]string{"channel/#gone fail 1m Slack refuses the channel (is_archived), its events become dead letters"},
		},
		{
			"another replica has posted to the repaired channel",
			all(replica("a", hasChannels(refusedFor(time.Minute))),
				replica("b", hasChannels(snapshot.Channel{Name: "#gone", Accepted: ago(time.Second)}))),
			"Sending." + usualText, nil,
		},
		{
			"Slack is down, and one of three channels has had no event",
			view{
				now: now, channels: []string{"#a", "#b", "#c"},
				replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
					s.Held, s.LastSent = 42, ago(5*time.Minute)
					s.Waits = twoFail
				})},
			},
			"Not sending: #a and #b: Slack fails with http_503. 42 events are held.",
			[]string{"channel/#a fail 4m Slack fails with http_503", "channel/#b fail 4m Slack fails with http_503"},
		},
		{
			"two of three channels fail, the third takes posts",
			view{
				now: now, channels: []string{"#a", "#b", "#c"},
				replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
					s.LastSent = ago(time.Minute)
					s.Waits = twoFail
				})},
			},
			"Sending, but not to #a and #b: Slack fails with http_503." + usualText,
			[]string{"channel/#a fail 4m Slack fails with http_503", "channel/#b fail 4m Slack fails with http_503"},
		},
		{
			"Slack pauses the workspace",
			view{
				now: now, pauses: []ratelimit.Pause{{Left: 12 * time.Second}},
				replicas: []report.Replica{replica("a", waitsFor(wait("slack", "", "Slack asked to wait 20 s")))},
			},
			"Not sending: Slack asked to wait, 12s left.", []string{"slack warn 4m Slack asked to wait, 12s left"},
		},
		{
			"three of four channels are archived", view{
				now: now, channels: []string{"#a", "#b", "#c", "#d"},
				replicas: []report.Replica{replica("a", hasChannels(
					snapshot.Channel{Name: "#a", Refused: "is_archived"}, snapshot.Channel{Name: "#b", Refused: "is_archived"},
					snapshot.Channel{Name: "#c", Refused: "is_archived"},
				))},
			},
			"Sending, but not to #a, #b and 1 more: Slack refuses the channel (is_archived), its events become dead letters." + usualText,
			[]string{
				"channel/#a fail - Slack refuses the channel (is_archived), its events become dead letters",
				"channel/#b fail - Slack refuses the channel (is_archived), its events become dead letters",
				"channel/#c fail - Slack refuses the channel (is_archived), its events become dead letters",
			},
		},
		{"a stream has no room for an event",
			all(replica("a", hasStream(snapshot.Stream{Name: "NOTIFY", Bytes: 1<<20 - 100, MaxBytes: 1 << 20, Seen: now}))),
			"Sending." + usualText, []string{"stream/NOTIFY fail - full (1.0 MiB), refuses publishers"}},
		{"a new replica creates the streams", all(replica("a", func(s *snapshot.Snapshot) {
			s.Started, s.Streams = ago(2*time.Second), []snapshot.Stream{{Name: "NOTIFY", Unknown: "there is no such stream", Seen: now}}
		})), "Sending." + usualText, nil},
		{"a short queue is no condition", all(replica("a", hasChannels(snapshot.Channel{Name: "#a", Queued: 9, Oldest: ago(50 * time.Second), Why: "pace"}))),
			"Sending." + usualText, nil},
		{
			"streams fill up", all(replica("a", hasStream(snapshot.Stream{Name: "NOTIFY", Bytes: 87 << 20, MaxBytes: 100 << 20, Stuck: &two})),
				replica("b", hasStream(snapshot.Stream{Name: "NOTIFY_DEAD", Bytes: 100, MaxBytes: 100, DiscardsOld: true}))),
			"Sending." + usualText,
			[]string{"stream/NOTIFY warn - 87% of 100.0 MiB used; 2 events will never be delivered"},
		},
		{
			"the stream is full, says the newer report", all(
				replica("a", hasStream(snapshot.Stream{Name: "NOTIFY", Messages: 10, MaxMessages: 1000, Seen: ago(time.Minute)})),
				replica("b", hasStream(snapshot.Stream{Name: "NOTIFY", Messages: 1000, MaxMessages: 1000, Seen: ago(time.Second)})),
				replica("c", hasStream(snapshot.Stream{Name: "NOTIFY", Unknown: "timeout", Seen: now})),
			),
			"Sending." + usualText, []string{"stream/NOTIFY fail - full (1000 messages), refuses publishers"},
		},
		{
			"dead events, and letters that cannot be stored", view{
				now: now, replicas: []report.Replica{replica("a", func(s *snapshot.Snapshot) {
					s.Waits = []snapshot.Wait{wait("dead_letter", "", "nats: no response from stream")}
				})},
				counts: []report.Count{
					{Category: "a", Outcome: outcome.Dead, Reason: outcome.Malformed, N: 2}, {Category: "b", Outcome: outcome.Dead, Reason: outcome.SlackRejected, N: 10},
					{Category: "b", Outcome: outcome.Sent, N: 7},
				},
			},
			"Sending." + usualText,
			[]string{"dead fail 4m dead letters cannot be stored: no response from stream; " +
				"12 dead events in the last hour: 10 slack_rejected, 2 malformed"},
		},
		{
			"Redis evicts", all(ok, noticing("redis_eviction", "maxmemory-policy allkeys-lru")),
			"Sending." + usualText, []string{"redis warn 4m maxmemory-policy allkeys-lru"},
		},
		{
			"Redis's clock was set back", all(ok, noticing("redis_clock", "20h behind")),
			"Sending. No slot becomes free: the clock of Redis was set back." + usualText, []string{"clock fail 4m 20h behind"},
		},
		{
			"settings differ", all(ok, replica("c", nil), replica("a", func(s *snapshot.Snapshot) { s.Settings.Hash = "91ab0000" })),
			"Sending." + usualText, []string{"settings warn - workers differ: 6f1c2d3e (2 workers), 91ab0000 (1 worker)"},
		},
	} {
		t.Run(test.situation, func(t *testing.T) {
			findings := test.view.findings()
			var got []string
			for _, f := range findings {
				since := "-"
				if !f.since.IsZero() {
					since = span(now.Sub(f.since))
				}
				got = append(got, fmt.Sprintf("%s %s %s %s", f.kind, f.state, since, f.message))
			}
			if difference := cmp.Diff(test.want, got); difference != "" {
				t.Errorf("conditions (-want +got):\n%s", difference)
			}
			limits := usual
			if test.view.blind {
				limits = nil
			}
			if got := test.view.summary(findings, limits, 0); got != test.sentence {
				t.Errorf("%q\nexpected\n%q", got, test.sentence)
			}
		})
	}
}

func TestFullness(t *testing.T) {
	full := func(scope string, dropped int64, left time.Duration) Limit {
		return Limit{Scope: scope, Used: 5, Max: 5, FreeAt: now.Add(left), Dropped1h: dropped}
	}
	global := Limit{Scope: "global", Used: 5, Max: 100}
	atLeast := full("category/b", 9, time.Hour+29*time.Minute+40*time.Second)
	atLeast.AtLeast = true
	for want, limits := range map[string][]Limit{
		"":                                 nil,
		" 5 of 100 global slots are used.": {global, {Scope: "category/a", Used: 4, Max: 5}},
		" 5 of 5 global slots are used; everything is dropped for 2m.": {global, full("global", 1, 2*time.Minute), full("category/a", 1, time.Hour)},
		" 5 of 100 global slots are used; group a is full for 1m.":     {global, full("group/a", 1, time.Minute)},
		" 5 of 100 global slots are used; b is full for at least 1h30m, a is full for 2s, and 1 more limit is full.": {
			global, full("category/c", 0, time.Second), full("category/a", 1, time.Second), full("category/a", 1, 2*time.Second), atLeast,
		},
	} {
		if got := fullness(limits, 0, now); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
	for reserved, want := range map[int]string{
		94: " 5 of 100 global slots are used.", 95: " 5 of 100 global slots are used, and 95 are reserved.",
	} {
		if got := fullness([]Limit{global}, reserved, now); got != want {
			t.Errorf("%d reserved: %q, expected %q", reserved, got, want)
		}
	}
}

// TestOneConditionOfEachType has the worst state of its parts, whichever comes first.
func TestOneConditionOfEachType(t *testing.T) {
	warn, fail := finding{kind: "slack", state: Warn, message: "a"}, finding{kind: "slack", state: Fail, message: "b"}
	if got := warn.and(fail); got.state != Fail || got.message != "a; b" {
		t.Errorf("%+v", got)
	}
}

// TestForeignWaitsAreBounded: snapshots in Redis may hold any names, codes and reasons.
func TestForeignWaitsAreBounded(t *testing.T) {
	hostile := "\x1b[2J\u202e" + strings.Repeat("x", 10_000)
	v := all(replica(hostile, func(s *snapshot.Snapshot) {
		s.Ready, s.NotReady = false, []string{hostile, "redis: " + hostile, ""}
		s.Waits = []snapshot.Wait{wait("slack", hostile, hostile), wait(hostile, "", hostile), wait("log", "", hostile)}
		s.Channels = []snapshot.Channel{{Name: hostile, Queued: -1, Refused: hostile}, {}}
		s.Streams = []snapshot.Stream{{Name: hostile, Unknown: hostile}, {MaxBytes: -1, MaxMessages: -1}}
		s.Settings.Hash = hostile
	}), replica("", nil))
	v.unusable = errors.New(hostile)
	v.counts = []report.Count{{Outcome: outcome.Dead, Reason: hostile, N: -5}}
	v.pauses = []ratelimit.Pause{{Channel: hostile}}
	findings := v.findings()
	for _, f := range findings {
		text := f.kind + f.message
		if len(text) > 1000 || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	if !slices.ContainsFunc(findings, func(f finding) bool { return f.kind == "redis" }) {
		t.Errorf("%+v", findings)
	}
}
