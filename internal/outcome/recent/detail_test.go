package recent_test

import (
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
)

func TestDetail(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	for want, r := range map[string]outcome.Record{
		"":                                  {Reason: outcome.Duplicate},
		"10/30m, room 2026-11-20T09:01:30Z": {Limit: "10/30m", RetryAfter: 89.5},
		"10/30m, room 2026-11-20T09:01:30Z or later, 7 more before":                 {Limit: "10/30m", RetryAfter: 90, AtLeast: true, LeftOut: 7},
		"100/30m, room 2026-11-20T09:00:01Z, 5 slots reserved for other categories": {Limit: "100/30m", RetryAfter: 1, Reserved: 5},
		"2/1h, the cost exceeds this temporary limit":                               {Limit: "2/1h", AboveLimit: true},
		"errors.> until 2026-11-20T09:00:00Z by me@host: noise":                     {Mute: "errors.>", MutedUntil: at, MutedBy: "me@host", MuteReason: "noise"},
		"age 1h30m, EVENT_MAX_AGE 1h":                                               {Age: 5400, MaxAge: 3600},
		"#alerts":                                                                   {Outcome: outcome.Sent, Channel: "#alerts", SlackTS: "1.2", Attempts: 1},
		"#alerts, 3 attempts, possibly posted more than once (ambiguous)":           {Channel: "#alerts", Attempts: 3, Ambiguous: true},
		"#alerts, found in the channel after an unknown result":                     {Channel: "#alerts", Ambiguous: true, Found: true},
		"invalid_blocks (/blocks/0), #alerts, letter 9":                             {Outcome: outcome.Dead, Detail: "invalid_blocks (/blocks/0)", Channel: "#alerts", LetterSeq: 9},
		"broken JSON, no letter":                                                    {Outcome: outcome.Dead, Detail: "broken JSON", Letter: new(bool)},
	} {
		r.Time = at
		if got := recent.Detail(r); got != want {
			t.Errorf("%q, expected %q", got, want)
		}
	}
}
