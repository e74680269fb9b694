package status

import (
	"strings"
	"testing"

	"notifier/internal/stats"
	"notifier/internal/term"
)

func TestTheTableNamesRefusedChannelsOnce(t *testing.T) {
	refused := stats.Heartbeat{Refused: map[string]string{"C2": "is_archived", "C1": "not_in_channel"}}
	text := Status{Replicas: []stats.Replica{{ID: "a", Heartbeat: refused}, {ID: "b", Heartbeat: refused}}}.Table(term.Screen{})
	want := "  channel C1 rejects every message (not_in_channel); its events are dead-lettered\n" +
		"  channel C2 rejects every message (is_archived); its events are dead-lettered\n"
	if !strings.Contains(text, want) || strings.Count(text, "C1") != 1 {
		t.Errorf("expected\n%s in\n%s", want, text)
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
