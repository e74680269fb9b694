package letters_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/consume/letters"
	"notifier/internal/devstack"
	"notifier/internal/event"
	"notifier/test/kit"
)

// store stores n letters of one line each, fast.
func store(t testing.TB, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		message := nats.NewMsg(fmt.Sprintf("notify-dead.c%d", i%50))
		message.Header = nats.Header{
			"Notifier-Event-Id": {fmt.Sprintf("e-%d", i)}, "Notifier-Reason": {"malformed"}, "Notifier-Subject": {"notify.errors"},
			"Notifier-Time": {"2026-11-20T04:39:01.5Z"}, "Notifier-Stream-Seq": {"17"}, "Notifier-Detail": {"payload ends too early"},
		}
		message.Data = []byte(`{"text":"disk full"`)
		_, err := js.PublishMsgAsync(message, jetstream.WithStallWait(kit.Patience))
		kit.Check(t, err)
		if i%1000 == 999 || i == n-1 {
			<-js.PublishAsyncComplete()
		}
	}
}

// A scan sees the letters that Each sees, in the same order, whatever has been deleted between them.
func TestAScanSeesEveryLetterInOrder(t *testing.T) {
	d := newFixture(t)
	store(t, d.js, 300)
	stream, err := d.js.Stream(t.Context(), "NOTIFY_DEAD")
	kit.Check(t, err)
	remove := func(from, to uint64) {
		for seq := from; seq <= to; seq++ {
			kit.Check(t, stream.DeleteMsg(t.Context(), seq))
		}
	}
	seen := func(each bool) (seqs []uint64) {
		s := d.open()
		scan := s.Scan
		if each {
			scan = s.Each
		}
		kit.Check(t, scan(t.Context(), func(l *letters.Letter) error {
			seqs = append(seqs, l.Seq)
			return nil
		}))
		return seqs
	}
	gaps := []func(){
		func() {},               // none
		func() { remove(1, 5) }, // the oldest are gone
		func() { remove(10, 10); remove(12, 14) },          // small ones
		func() { remove(100, 180) },                        // one that is longer than what is asked for at a time
		func() { remove(290, 300) },                        // the newest are gone
		func() { kit.Check(t, stream.Purge(t.Context())) }, // all are gone
	}
	for i, gap := range gaps {
		gap()
		want := seen(true)
		if got := seen(false); !slices.Equal(want, got) {
			t.Errorf("after gap %d: a scan saw %v, expected %v", i, got, want)
		}
		if n := d.stored("NOTIFY_DEAD"); len(want) != len(n) {
			t.Errorf("after gap %d: %d letters were seen, expected %d", i, len(want), len(n))
		}
	}
}

// A scan ends with the first error, and without waiting for what it has asked for.
func TestAScanEndsWithAnError(t *testing.T) {
	d := newFixture(t)
	store(t, d.js, 100)
	s, n := d.open(), 0
	broken := errors.New("broken")
	err := s.Scan(t.Context(), func(*letters.Letter) error {
		if n++; n == 3 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || n != 3 {
		t.Errorf("%v after %d letters, expected the error of the third", err, n)
	}
	d.server.Stop()
	began := time.Now()
	if err := s.Scan(t.Context(), func(*letters.Letter) error { return nil }); err == nil {
		t.Error("a scan without a server has no error")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// BenchmarkScan reads 50,000 letters, which "notifier dead list" promises within 3 s.
func BenchmarkScan(b *testing.B) {
	server, err := devstack.StartNATS("127.0.0.1:0", b.TempDir())
	kit.Check(b, err)
	defer func() { _ = server.Close() }()
	js := kit.JetStream(b, server.URL())
	_, err = js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "NOTIFY_DEAD", Subjects: []string{"notify-dead.>"}})
	kit.Check(b, err)
	store(b, js, 50_000)
	pattern, err := event.ParsePattern("notify.>")
	kit.Check(b, err)
	for b.Loop() {
		s, err := letters.Open(b.Context(), js.Conn(), "NOTIFY", pattern)
		kit.Check(b, err)
		n := 0
		kit.Check(b, s.Scan(b.Context(), func(*letters.Letter) error { n++; return nil }))
		if n != 50_000 {
			b.Fatalf("%d letters, expected 50,000", n)
		}
	}
}
