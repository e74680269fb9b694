package feed

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/event"
)

func message(data string, pairs ...string) *nats.Msg {
	m := nats.NewMsg("notify.errors")
	m.Reply, m.Data = "$JS.ACK.S.C.1.1.1.1.1", []byte(data)
	for i := 0; i < len(pairs); i += 2 {
		m.Header[pairs[i]] = append(m.Header[pairs[i]], pairs[i+1])
	}
	return m
}

func TestSmallMessageIsKeptWhole(t *testing.T) {
	m := message("hello", "Nats-Msg-Id", "a", "X", "b", "Nats-Expected-Stream", "c")
	kept, cost := keep(m, 10)
	same := cmp.Equal(map[string][]string(m.Header), kept.Header) && string(kept.Data) == "hello"
	if !same || kept.DataBytes != 0 {
		t.Errorf("kept %+v", kept)
	}
	if want := int64(m.Size() + perMessage); cost != want {
		t.Errorf("it costs %d bytes, expected %d", cost, want)
	}
}

func TestKeepDropsUnneededHeaders(t *testing.T) {
	long := strings.Repeat("h", 3000)
	needed := []string{
		"Nats-Msg-Id", "a", "Notifier-Event-Id", "b", "Notifier-Source", "s",
		"content-type", "text/plain", "ce-id", "c", "Ce-Specversion", "1.0",
		"ce-source", long, "ce-type", "d", "ce-time", "e",
		"ce-datacontenttype", "f", "Traceparent", "g", "tracestate", "h",
		"Nats-Marker-Reason", "MaxAge",
	}
	own := []string{"X-A", long, "X-C", "small", "X-C", "second"}
	dropped := []string{"X-B", long, "Nats-Expected-Stream", "S", "Notifier-Reason", "sent"}
	m := message("hello", append(append(append([]string{}, needed...), own...), dropped...)...)
	kept, cost := keep(m, 10)
	want := message("", append(append([]string{}, needed...), own...)...).Header
	if diff := cmp.Diff(map[string][]string(want), kept.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if most := int64(m.Size() + perMessage); cost >= most || cost < int64(6000+perMessage) {
		t.Errorf("it costs %d bytes, expected less than the %d of the whole and all that is kept", cost, most)
	}
}

// A reference to part of a message would keep the whole message in memory.
func TestLargeMessageIsCopied(t *testing.T) {
	block := strings.Repeat("h", 600)
	name, value := "X"+block[:3], block[3:9]
	m := message("hello", name, value, "Y", block)
	kept, _ := keep(m, 10)
	if unsafe.SliceData(kept.Data) == unsafe.SliceData(m.Data) {
		t.Error("the payload is the message's, which its headers are part of")
	}
	for spelled, values := range kept.Header {
		if spelled == name && unsafe.StringData(values[0]) == unsafe.StringData(value) {
			t.Error("the value of a header is the message's")
		}
	}
	cut, cost := keep(message(strings.Repeat("x", 900_000)), 65_536)
	if len(cut.Data) != event.KeptOfTooLarge || cap(cut.Data) > 2*event.KeptOfTooLarge || cut.DataBytes != 900_000 {
		t.Errorf("of a payload that is too large %d bytes with a capacity of %d are kept, with %d as its length",
			len(cut.Data), cap(cut.Data), cut.DataBytes)
	}
	if cost > perMessage+2*event.KeptOfTooLarge {
		t.Errorf("it costs %d bytes", cost)
	}
}

func TestUnpublishableHeaderIsDropped(t *testing.T) {
	kept, size := keepHeaders(nats.Header{"Not a name": {"x"}, "X": {"yz"}})
	if len(kept) != 1 || size != len("X:yz\r\n") {
		t.Errorf("kept %v of %d bytes, expected X alone", kept, size)
	}
}

// No message costs more than its request reserved.
func TestCostNeverExceedsTheMessage(t *testing.T) {
	for _, headers := range []int{0, 100, 2000, 5000, 60_000} {
		for _, payload := range []int{0, 1000, 5000, 100_000} {
			m := message(strings.Repeat("x", payload), "X-Long", strings.Repeat("h", headers), "X", "y")
			if _, cost := keep(m, 65_536); cost > int64(m.Size()+perMessage) {
				t.Errorf("%d bytes of headers and %d of payload cost %d bytes of %d", headers, payload, cost, m.Size())
			}
		}
	}
}
