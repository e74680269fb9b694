package status

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
)

func counted(category, source string, sent, refused, total int64) stats.SourceCount {
	return stats.SourceCount{Category: category, Source: source, Sent: sent, Refused: refused, Total: total}
}

// A status names who has caused events, the worst first, and nobody where publishers name nobody.
func TestSources(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	slot := func(counts ...stats.SourceCount) stats.SourceSlot {
		return stats.SourceSlot{Start: now.Add(-10 * time.Minute), End: now, Counts: counts}
	}
	k := &known{hour: stats.Hour{Now: now, Sources: []stats.SourceSlot{
		slot(counted("errors", "https://ci.example/1", 5, 200, 210), counted("errors", "b", 1, 0, 1), counted("quiet", "", 9, 0, 9), counted("errors", "c", 0, 1, 1)),
		slot(counted("errors", "", 0, 900, 900), counted("errors", "https://ci.example/1", 5, 195, 202), counted("errors", stats.OtherSource, 0, 800, 800),
			counted("errors", "d", 0, 0, 7), counted("deploys", "\x1b[2J<!channel>", 1, 0, 1)),
	}}}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	want := map[string][]stats.SourceCount{
		"errors": {
			counted("errors", "https://ci.example/1", 10, 395, 412), counted("errors", "c", 0, 1, 1), counted("errors", "d", 0, 0, 7),
			counted("errors", "b", 1, 0, 1), counted("errors", stats.OtherSource, 0, 800, 800), counted("errors", "", 0, 900, 900),
		},
		"deploys": {counted("deploys", "\x1b[2J<!channel>", 1, 0, 1)},
	}
	if diff := cmp.Diff(want, got.Sources); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	table := got.Table(term.Screen{})
	const rows = "Sources of the last hour, as publishers name them:\n" +
		"  errors    https://ci.example/1   412 events, 395 refused\n" +
		"            c                      1 event, 1 refused\n" +
		"            d                      7 events, 0 refused\n" +
		"  deploys   ?[2J<!channel>         1 event, 0 refused\n"
	if !strings.Contains(table, rows) {
		t.Errorf("expected\n%sin\n%s", rows, table)
	}
	encoded, err := json.Marshal(got)
	kit.Check(t, err)
	if part := `"errors":[{"source":"https://ci.example/1","sent":10,"refused":395,"total":412}`; !strings.Contains(string(encoded), part) {
		t.Errorf("no %s in %s", part, encoded)
	}
	got, err = (&known{hour: stats.Hour{Now: now, Sources: []stats.SourceSlot{slot(counted("errors", "", 1, 0, 1))}}}).source().Read(t.Context())
	kit.Check(t, err)
	if encoded, err = json.Marshal(got); err != nil || !strings.Contains(string(encoded), `"sources":{}`) || strings.Contains(got.Table(term.Screen{}), "Sources") {
		t.Errorf("%v, %s", err, encoded)
	}
}

// However many sources there are, a status stays small, and those with the most refused events stay in it.
func TestManySourcesAreBounded(t *testing.T) {
	var counts []stats.SourceCount
	for i := range 100 {
		for j := range 10 {
			counts = append(counts, counted(fmt.Sprintf("category-%02d", i)+strings.Repeat("x", 116), fmt.Sprint(j, strings.Repeat("<", 126)), 1e15, int64(1e15-i), 2e15))
		}
	}
	k := &known{hour: stats.Hour{Now: time.Now(), Sources: []stats.SourceSlot{{Counts: counts}}}}
	got, err := k.source().Read(t.Context())
	kit.Check(t, err)
	encoded, err := json.Marshal(got)
	kit.Check(t, err)
	if len(got.Sources) < fewWithSources || len(got.Sources)+got.MoreSources != 100 || got.Sources["category-00"+strings.Repeat("x", 116)] == nil {
		t.Errorf("%d categories with sources, %d more", len(got.Sources), got.MoreSources)
	}
	var size counter
	kit.Check(t, term.NewJSON(&size).Encode(got))
	if size > mostBytes {
		t.Errorf("%d bytes, %d as HTML", size, len(encoded))
	}
	if table := got.Table(term.Screen{}); !strings.Contains(table, "\n  and those of 90 categories more\n") || strings.Count(table, "refused\n") != 30 {
		t.Errorf("%s", table)
	}
}
