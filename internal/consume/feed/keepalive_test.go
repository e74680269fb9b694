package feed

import (
	"testing"
	"time"
)

func TestKeepAliveInterval(t *testing.T) {
	for ackWait, want := range map[time.Duration]time.Duration{
		0:                100 * time.Millisecond, // before a consumer is bound
		2 * time.Second:  100 * time.Millisecond,
		20 * time.Second: 500 * time.Millisecond, // the default of a created consumer
		time.Hour:        time.Second,
	} {
		if got := keepAliveCheck(ackWait); got != want {
			t.Errorf("with an AckWait of %s they are searched every %s, expected %s", ackWait, got, want)
		}
	}
}
