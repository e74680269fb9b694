package status

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// TestTheTableIsSafe: whatever Redis holds, a terminal shows it and does not obey it.
func TestTheTableIsSafe(t *testing.T) {
	const hostile = "a\x1b[2J\u202e\u009b\nb"
	wait := stats.Wait{For: hostile, Reason: hostile, Channel: hostile}
	status := Status{
		Categories: []Scope{{Category: hostile, Tiers: []Tier{{Limit: hostile}}}}, Slots: []ratelimit.Slot{{Category: hostile, ID: hostile}},
		Holders:  []Holder{{Category: hostile, Slots: 1}},
		Outcomes: []Outcome{{Outcome: hostile, Reason: hostile}}, Pauses: []Pause{{Text: hostile}}, Unposted: []Unposted{{Text: hostile, Why: "slack"}},
		Replicas: []stats.Replica{{ID: hostile, Heartbeat: stats.Heartbeat{Refused: map[string]string{hostile: hostile}, Waits: []stats.Wait{wait}}}},
	}
	status.Summary = summaryOf(status)
	text := status.Table(term.Screen{})
	if strings.ContainsAny(text, "\x1b\u202e\u009b") || strings.Contains(text, "\nb") {
		t.Errorf("%q, expected nothing that a terminal obeys", text)
	}
	if shown := strings.Count(text, "a?[2J???b"); shown != 12 {
		t.Errorf("%d hostile texts in %q, expected 12", shown, text)
	}
}

// TestTheLastDrop tells whether a storm is still on.
func TestTheLastDrop(t *testing.T) {
	at := func(ago time.Duration, sent, dropped int64) Minute {
		return Minute{Start: now.Truncate(time.Minute).Add(-ago), Sent: sent, Dropped: dropped}
	}
	for want, minutes := range map[string][]Minute{
		"Last hour: no events were settled.\n":                                  {at(0, 1, 0)},
		"Last hour: no events were settled; the last drop at most 30s ago.\n":   {at(time.Minute, 0, 3), at(0, 0, 1)},
		"Last hour: no events were settled; the last drop at most 2m30s ago.\n": {at(3*time.Minute, 0, 3), at(2*time.Minute, 0, 3), at(0, 1, 0)},
	} {
		status := Status{Time: now, Global: Scope{Minutes: minutes}}
		if text := status.Table(term.Screen{}); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestFullTiersAreHighlighted(t *testing.T) {
	status := Status{Global: Scope{Tiers: []Tier{{Limit: "5/1h", Used: 5, Max: 5, FreeS: 90}}}}
	if text := status.Table(term.Screen{Colours: true}); !strings.Contains(text, "\x1b[33m   global") {
		t.Errorf("%q, expected the full limit in yellow", text)
	}
	if text := status.Table(term.Screen{}); strings.Contains(text, "\x1b") {
		t.Errorf("%q, expected no colours", text)
	}
}
