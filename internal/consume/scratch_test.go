package consume

import (
	"testing"

	"notifier/internal/consume/feed"
)

// Events referenced by the buffers of the last batch would stay in memory.
func TestBatchBuffersKeepNoEvents(t *testing.T) {
	var b batch
	open := b.take([]*feed.Delivery{{}, {}})
	open[0].Drop("duplicate")
	b.settled = append(b.settled, &open[0].Result)
	b.forget()
	if b.settled[:1][0] != nil || b.jobs[:1][0].Result.Delivery != nil || b.open[:1][0] != nil {
		t.Error("an event is kept")
	}
}
