package recent_test

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

// Whatever else is in the stream is passed over, wherever it stands.
func TestAlienRecords(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(outcomeOf("errors", outcome.Sent, "", "first"))
	b.eventually(t, recent.Filter{}, 1)
	publish := func(header nats.Header, subject, payload string) {
		message := &nats.Msg{Subject: subject, Header: header, Data: []byte(payload)}
		_, err := b.js.PublishMsg(t.Context(), message)
		kit.Check(t, err)
	}
	aliens := []string{"", "{", "null", "7", "[]", `{"stream":"NOTIFY","seq":17}`, strings.Repeat("x", 9000), "\xff\xfe", `{"event_id":7}`,
		`{"time":"2026-11-20T09:00:00Z","event_id":"e","category":"errors","outcome":"eaten"}`,
		`{"time":"2026-11-20T09:00:00Z","event_id":"e","category":"other","outcome":"sent"}`,
		`{"event_id":"e","category":"errors","outcome":"sent"}`, `{"time":"2026-11-20T09:00:00Z","category":"errors","outcome":"sent"}`}
	for _, alien := range aliens {
		publish(nil, "notify-events.errors", alien)
	}
	for _, status := range []string{"204", "404", "408", "503"} {
		publish(nats.Header{"Status": {status}, "Nats-Sequence": {"1"}, "Nats-Stream": {"NOTIFY_EVENTS"}, "Nats-Last-Sequence": {"0"}, "Nats-Num-Pending": {"0"}}, "notify-events.errors", "")
	}
	publish(nats.Header{"Nats-Subject": {"notify-events.other"}}, "notify-events.errors", `{"time":"2026-11-20T09:00:00Z","event_id":"e","category":"other","outcome":"sent"}`)
	publish(nats.Header{"Nats-Num-Pending": {""}}, "notify-events.errors", "7")
	publishRaw(t, b.server.Addr(), "notify-events.errors", "NATS/1.0\r\nno header at all\r\n: x\r\n\r\n", "x")
	publishRaw(t, b.server.Addr(), "notify-events.errors", "NATS/1.0 404 Nothing\r\n\r\n", "")
	b.add(outcomeOf("errors", outcome.Sent, "", "last"))
	for _, category := range []string{"", "errors"} {
		got := b.eventually(t, recent.Filter{Category: category}, 2)
		if got[0].EventID != "last" || got[1].EventID != "first" {
			t.Errorf("category %q: %+v", category, got)
		}
	}
}

// publishRaw publishes a message whose headers no client library would write.
func publishRaw(t *testing.T, addr, subject, header, payload string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	kit.Check(t, err)
	defer func() { _ = c.Close() }()
	lines := bufio.NewReader(c)
	_, err = lines.ReadString('\n')
	kit.Check(t, err)
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nHPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(header), len(header)+len(payload), header, payload)
	kit.Check(t, err)
	answer, err := lines.ReadString('\n')
	kit.Check(t, err)
	if !strings.HasPrefix(answer, "PONG") {
		t.Fatalf("the server answers %q", answer)
	}
}

// A page full of what is no record does not end the reading, and a rare category is found with few requests.
func TestReadingIsCheap(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(outcomeOf("rare", outcome.Dead, outcome.TooLarge, "rare-1"))
	b.eventually(t, recent.Filter{}, 1)
	asked, err := nats.Connect(b.server.URL())
	kit.Check(t, err)
	defer asked.Close()
	for i := range 24_000 { // of which the stream keeps the newest 4,000
		kit.Check(t, asked.Publish(fmt.Sprint("notify-events.c", i%4), []byte(`{"stream":"NOTIFY","seq":17}`)))
	}
	kit.Eventually(t, "all are stored", func() bool {
		stream, err := b.js.Stream(t.Context(), b.place.Stream)
		return err == nil && stream.CachedInfo().State.LastSeq == 24_001
	})
	requests, err := asked.SubscribeSync("$JS.API.DIRECT.GET.NOTIFY_EVENTS")
	kit.Check(t, err)
	kit.Check(t, asked.Flush())
	for filter, most := range map[recent.Filter]int{{Category: "rare"}: 2, {EventID: "rare-1"}: 12, {Category: "none"}: 1} {
		want := 1
		if filter.Category == "none" {
			want = 0
		}
		if got := b.list(t, filter); len(got.Outcomes) != want || got.Partial {
			t.Errorf("%+v: %+v", filter, got)
		}
		kit.Check(t, asked.Flush())
		n, _, err := requests.Pending()
		kit.Check(t, err)
		if n > most {
			t.Errorf("%+v took %d requests, expected %d at most", filter, n, most)
		}
		for range n {
			_, err := requests.NextMsg(kit.Patience)
			kit.Check(t, err)
		}
	}
}

// Ids and categories of every form are found, however long.
func TestIDsAreExact(t *testing.T) {
	t.Parallel()
	b := start(t)
	ids := []string{"deploy-12345", "deploy-123456", `"quoted" <&>`, "a.*", "\x1b[31m", "bad\xff", strings.Repeat("é", 3000)}
	for _, id := range ids {
		b.add(outcomeOf("errors", outcome.Sent, "", id))
	}
	b.eventually(t, recent.Filter{}, len(ids))
	for _, id := range ids {
		for _, category := range []string{"", "errors"} {
			if found := b.list(t, recent.Filter{EventID: id, Category: category}).Outcomes; len(found) != 1 {
				t.Errorf("%.30q in %q: %+v", id, category, found)
			}
		}
	}
	if found := b.list(t, recent.Filter{EventID: "errors"}).Outcomes; len(found) > 0 {
		t.Errorf("a category is taken for an id: %+v", found)
	}
	for _, category := range []string{"a.*", ">", "a b", "\xff", strings.Repeat("c", 200), "a..b", "_invalid"} {
		b.add(outcomeOf(category, outcome.Dead, outcome.Malformed, "odd"))
	}
	b.eventually(t, recent.Filter{EventID: "odd"}, 7)
	b.eventually(t, recent.Filter{EventID: "odd", Category: ">"}, 1)
}
