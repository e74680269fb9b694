package recent_test

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/outcome"
	"notifier/internal/outcome/recent"
	"notifier/test/kit"
)

func TestFilters(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "e-1"))
	b.add(record("errors.db", outcome.Dropped, outcome.Global, "e-2"))
	b.add(record("errors", outcome.Dead, outcome.Malformed, "e-3"))
	b.eventually(t, recent.Filter{}, 3)
	for filter, want := range map[recent.Filter]string{
		{}:                                   "e-1 e-2 e-3",
		{Limit: 2}:                           "e-2 e-3",
		{Category: "errors"}:                 "e-1 e-3",
		{Category: "errors", Limit: 1}:       "e-3",
		{Category: "errors.>"}:               "",
		{Outcome: outcome.Sent}:              "e-1",
		{Since: time.Now().Add(-time.Hour)}:  "e-1 e-2 e-3",
		{Since: time.Now().Add(time.Minute)}: "",
	} {
		page := b.list(t, filter)
		if got := ids(page.Records); got != want || page.More != (filter.Limit == 1 || filter.Limit == 2) {
			t.Errorf("%+v selects %q, more %t; expected %q", filter, got, page.More, want)
		}
	}
}

// TestAlienMessagesAreSkipped: messages that are no records change nothing, wherever they stand.
func TestAlienMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "e"))
	b.eventually(t, recent.Filter{}, 1)
	stream, err := b.js.Stream(t.Context(), b.place.Stream)
	kit.Check(t, err)
	own, err := stream.GetMsg(t.Context(), 1)
	kit.Check(t, err)
	publish := func(header nats.Header, subject, payload string) {
		_, err := b.js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Header: header, Data: []byte(payload)})
		kit.Check(t, err)
	}
	const valid = `{"time":"2026-11-20T09:00:00Z","event_id":"e","category":"errors","outcome":"sent"}`
	for _, alien := range []string{
		"", "{", "null", `{"stream":"NOTIFY","seq":17}`, strings.Repeat("x", 9000), "\xff\xfe", `{"event_id":7}`,
		strings.Replace(valid, "sent", "eaten", 1), strings.Replace(valid, "errors", "other", 1),
		strings.Replace(valid, `"e"`, `"f"`, 1), strings.Replace(valid, `"e"`, `""`, 1),
		strings.Replace(valid, "2026", "0", 1),
	} {
		publish(nil, own.Subject, alien)
	}
	// As v0.2.0 stored it.
	publish(nil, "notify-events.errors", valid)
	// Headers with the names the server uses.
	for _, status := range []string{"204", "404", "408", "503"} {
		publish(nats.Header{
			"Status": {status}, "Nats-Sequence": {"1"}, "Nats-Stream": {"NOTIFY_EVENTS"},
			"Nats-Last-Sequence": {"0"}, "Nats-Num-Pending": {"0"},
		}, own.Subject, "")
	}
	publish(nats.Header{"Nats-Subject": {own.Subject}}, "notify-events.errors", valid)
	publishRaw(t, b.server.Addr(), own.Subject, "NATS/1.0\r\nno header at all\r\n: x\r\n\r\n", "x")
	publishRaw(t, b.server.Addr(), own.Subject, "NATS/1.0 404 Nothing\r\n\r\n", "")
	b.add(record("errors", outcome.Dropped, outcome.Duplicate, "e"))
	for _, category := range []string{"", "errors"} {
		records := b.eventually(t, recent.Filter{Category: category}, 2)
		if records[0].Outcome != outcome.Sent || records[1].Reason != outcome.Duplicate {
			t.Errorf("category %q: %+v", category, records)
		}
	}
	if records, err := b.reader.Of(t.Context(), "e", ""); err != nil || len(records) != 2 || records[0].Outcome != outcome.Sent {
		t.Errorf("%v %+v", err, records)
	}
}

// publishRaw publishes a message with headers that no client library would write.
func publishRaw(t *testing.T, addr, subject, header, payload string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	kit.Check(t, err)
	defer func() { _ = c.Close() }()
	lines := bufio.NewReader(c)
	_, err = lines.ReadString('\n')
	kit.Check(t, err)
	_, err = fmt.Fprintf(c, "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\n"+
		"HPUB %s %d %d\r\n%s%s\r\nPING\r\n", subject, len(header), len(header)+len(payload), header, payload)
	kit.Check(t, err)
	reply, err := lines.ReadString('\n')
	kit.Check(t, err)
	if !strings.HasPrefix(reply, "PONG") {
		t.Fatalf("the server replies %q", reply)
	}
}

// TestReadingIsCheap: the records of one event, and a rare category, are found with few requests in a full stream.
func TestReadingIsCheap(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("rare", outcome.Dead, outcome.TooLarge, "rare-1"))
	b.eventually(t, recent.Filter{}, 1)
	client, err := nats.Connect(b.server.URL())
	kit.Check(t, err)
	defer client.Close()
	const others = 24_000
	for i := range others {
		kit.Check(t, client.Publish(fmt.Sprintf("notify-events.%x.c", i), []byte(`{"stream":"NOTIFY","seq":17}`)))
	}
	b.stored(t, others+1)
	b.add(record("rare", outcome.Dead, outcome.TooLarge, "rare-2"))
	b.eventually(t, recent.Filter{Category: "rare"}, 2)
	count := countRequests(t, client)
	records, err := b.reader.Of(t.Context(), "rare-1", "")
	if err != nil || ids(records) != "rare-1" {
		t.Errorf("%v %+v", err, records)
	}
	count("an event", 1)
	if page, err := b.reader.List(t.Context(), recent.Filter{MaxRead: 1000}); err != nil || ids(page.Records) != "rare-2" || !page.More {
		t.Errorf("%v %+v", err, page)
	}
	count("the beginning", 2)
	if page := b.list(t, recent.Filter{Category: "rare"}); ids(page.Records) != "rare-1 rare-2" || page.More {
		t.Errorf("%+v", page)
	}
	count("a category", 7)
	if page := b.list(t, recent.Filter{}); ids(page.Records) != "rare-1 rare-2" || page.More {
		t.Errorf("%+v", page)
	}
	count("everything", 30)
}

// countRequests returns a check of how many requests the reader has made since the check before.
func countRequests(t *testing.T, client *nats.Conn) (check func(name string, limit int)) {
	t.Helper()
	requests, err := client.SubscribeSync(reading)
	kit.Check(t, err)
	kit.Check(t, client.Flush())
	return func(name string, limit int) {
		t.Helper()
		kit.Check(t, client.Flush())
		n, _, err := requests.Pending()
		kit.Check(t, err)
		if n > limit {
			t.Errorf("%s took %d requests, expected %d", name, n, limit)
		}
		for range n {
			_, err := requests.NextMsg(kit.Patience)
			kit.Check(t, err)
		}
	}
}

// TestTheNewestOfADenseCategory are returned, although many records of others lie between.
func TestTheNewestOfADenseCategory(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	client := b.emptyStream(t)
	stored := 0
	publish := func(category string, n int) {
		for range n {
			id := fmt.Sprint("e-", stored)
			hash := sha256.Sum256([]byte(id))
			data, err := json.Marshal(record(category, outcome.Sent, "", id))
			kit.Check(t, err)
			kit.Check(t, client.Publish(fmt.Sprintf("notify-events.%x.%s", hash[:8], category), data))
			stored++
		}
	}
	publish("dense", 2500)
	publish("other", 6000)
	publish("dense", 1)
	b.stored(t, uint64(stored))
	page := b.list(t, recent.Filter{Category: "dense", Limit: 3})
	if got := ids(page.Records); got != "e-2498 e-2499 e-8500" || !page.More {
		t.Errorf("%s, more %t", got, page.More)
	}
	if n := len(b.list(t, recent.Filter{Category: "dense", Limit: 10_000}).Records); n != 2501 {
		t.Errorf("%d records", n)
	}
}

// TestForgedMessagesHideNoRecord: a publisher can store messages on any subject of an id that it knows.
func TestForgedMessagesHideNoRecord(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "deploy-1"))
	b.eventually(t, recent.Filter{}, 1)
	client, err := nats.Connect(b.server.URL())
	kit.Check(t, err)
	defer client.Close()
	for i := range 2500 {
		subject := fmt.Sprint("notify-events.244cf825d65c1c4e.c-", i/50)
		kit.Check(t, client.Publish(subject, []byte(`{"stream":"NOTIFY","seq":17}`)))
	}
	b.stored(t, 2501)
	b.add(record("errors", outcome.Dropped, outcome.Duplicate, "deploy-1"))
	b.eventually(t, recent.Filter{Category: "errors"}, 2)
	for category, want := range map[string]int{"": 2, "errors": 2, "c-1": 0, "errors.db": 0} {
		records, err := b.reader.Of(t.Context(), "deploy-1", category)
		if err != nil || len(records) != want || want > 0 && records[1].Reason != outcome.Duplicate {
			t.Errorf("category %q: %v %+v", category, err, records)
		}
	}
}

// TestEveryTenthRecord of a category is found with few requests: its messages are not read again and again.
func TestEveryTenthRecord(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	client := b.emptyStream(t)
	const stored = 20_000
	for i := range stored {
		category := "c-" + fmt.Sprint(i%10)
		kit.Check(t, client.Publish(fmt.Sprintf("notify-events.%x.%s", i, category), []byte("{}")))
	}
	b.stored(t, stored)
	count := countRequests(t, client)
	if page := b.list(t, recent.Filter{Category: "c-7"}); len(page.Records) != 0 || page.More {
		t.Errorf("%+v", page)
	}
	count("a category", 8)
}

// TestReadingWithoutAServer fails at once: the page should not wait for it.
func TestReadingWithoutAServer(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.add(record("errors", outcome.Sent, "", "e"))
	b.eventually(t, recent.Filter{}, 1)
	b.server.Stop()
	kit.Eventually(t, "the reader knows", func() bool {
		begun := time.Now()
		_, err := b.reader.List(t.Context(), recent.Filter{})
		return errors.Is(err, nats.ErrDisconnected) && time.Since(begun) < 4*time.Second
	})
	kit.Check(t, b.server.Start())
	kit.Eventually(t, "it reads again", func() bool {
		page, err := b.reader.List(t.Context(), recent.Filter{})
		return err == nil && len(page.Records) == 1
	})
}

// TestIDsAreExact: ids and categories of any form and length are found.
func TestIDsAreExact(t *testing.T) {
	t.Parallel()
	b := start(t)
	odd := []string{
		"deploy-12345", "deploy-123456", `"quoted" <&>`, ">", "\x1b[31m", "bad\xff", strings.Repeat("é", 3000),
	}
	for _, id := range odd {
		b.add(record("errors", outcome.Sent, "", id))
	}
	b.eventually(t, recent.Filter{}, len(odd))
	for _, id := range odd {
		if records, err := b.reader.Of(t.Context(), id, ""); err != nil || len(records) != 1 {
			t.Errorf("%.30q: %v %+v", id, err, records)
		}
	}
	if records, err := b.reader.Of(t.Context(), "errors", ""); err != nil || len(records) > 0 {
		t.Errorf("%v %+v", err, records)
	}
	for _, category := range []string{"a.*", ">", "a b", "\xff", strings.Repeat("c", 200), "a..b", "_invalid"} {
		b.add(record(category, outcome.Dead, outcome.Malformed, "odd"))
	}
	kit.EventuallyNil(t, func() error {
		records, err := b.reader.Of(t.Context(), "odd", "")
		if err == nil && len(records) != 7 {
			err = fmt.Errorf("%d records", len(records))
		}
		return err
	})
	b.eventually(t, recent.Filter{Category: ">"}, 1)
}

// TestADeniedReadEndsAtOnce, with the reason, and ends no record under way.
func TestADeniedReadEndsAtOnce(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, writing...)
	b := &bench{place: place(t), js: kit.JetStream(t, g.as("all"))}
	b.record(t, g.as("w"))
	var reader atomic.Pointer[recent.Reader]
	denied := func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if !reader.Load().Denied(err) || b.recorder.Denied(err) {
			t.Errorf("not a denied read: %v", err)
		}
	}
	connection, err := nats.Connect(g.as("w"), nats.CustomInboxPrefix("_W"), nats.ErrorHandler(denied))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	reader.Store(recent.NewReader(connection, b.place))
	for _, filter := range []recent.Filter{{}, {Category: "errors"}} {
		if _, err := reader.Load().List(t.Context(), filter); !errors.Is(err, nats.ErrPermissionViolation) {
			t.Errorf("%+v: %v", filter, err)
		}
	}
	if _, err := reader.Load().Of(t.Context(), "e", ""); !errors.Is(err, nats.ErrPermissionViolation) {
		t.Error(err)
	}
	for _, other := range []string{"notify-events.1.errors", "$JS.API.STREAM.INFO.NOTIFY_EVENTS", reading + "_2"} {
		err := fmt.Errorf("%w: Permissions Violation for Publish to %q", nats.ErrPermissionViolation, other)
		if reader.Load().Denied(err) {
			t.Errorf("the reader takes %v", err)
		}
	}
}

func TestThereIsNoStream(t *testing.T) {
	t.Parallel()
	b := startServer(t)
	b.readAs(t, b.server.URL())
	read := func() {
		t.Helper()
		if _, err := b.reader.List(t.Context(), recent.Filter{}); !errors.Is(err, recent.ErrNoStream) {
			t.Error(err)
		}
		if _, err := b.reader.Of(t.Context(), "e", ""); !errors.Is(err, recent.ErrNoStream) {
			t.Error(err)
		}
	}
	read()
	_, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: b.place.Stream, Subjects: []string{"notify-events.>"}})
	kit.Check(t, err)
	read() // no direct reads
}
