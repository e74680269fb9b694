package feed

import (
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// The parser reads each form of the subject like nats.go does, and rejects everything else.
func TestMetadata(t *testing.T) {
	const numbers = "3.17.5.1795149541123457089.42"
	for _, subject := range []string{
		"$JS.ACK.NOTIFY.notifier." + numbers,
		"$JS.ACK._.hash.NOTIFY.notifier." + numbers,
		"$JS.ACK.hub.hash.NOTIFY.notifier." + numbers + ".random.and.more",
	} {
		got, err := parseMetadata(subject)
		kit.Check(t, err)
		message := nats.Msg{Reply: subject, Sub: &nats.Subscription{}}
		theirs, err := message.Metadata()
		kit.Check(t, err)
		want := metadata{theirs.NumDelivered, theirs.Sequence.Stream, theirs.Timestamp, theirs.NumPending}
		if got != want || got.sequence != 17 {
			t.Errorf("%s: %+v, expected %+v", subject, got, want)
		}
	}
	for _, subject := range []string{
		"", "$JS.ACK.", "_INBOX.x", "$JS.ACK.NOTIFY.notifier.3.17.5.1795149541123457089",
		"$JS.ACK.NOTIFY.notifier.3.x.5.1795149541123457089.42",
		"$JS.ACK.NOTIFY.notifier.3.17.5.-1.42",
		"_JS.ACK.NOTIFY.notifier." + numbers,
	} {
		if got, err := parseMetadata(subject); err == nil {
			t.Errorf("%q: %+v, expected an error", subject, got)
		}
	}
}

func BenchmarkMetadata(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		_, _ = parseMetadata("$JS.ACK.NOTIFY.notifier.1.123456.123456.1795149541123457089.42000")
	}
}
