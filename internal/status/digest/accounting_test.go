package digest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"notifier/internal/slackout"
)

// wild is a publisher that does anything.
type wild struct {
	Publisher
	mu     sync.Mutex
	random *rand.Rand
	fail   bool
}

func (p *wild) outcome() (before, after error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fail {
		return nil, nil
	}
	switch p.random.IntN(8) {
	case 0:
		return &slackout.Error{Class: slackout.Retry, Code: "http_503"}, nil
	case 1:
		return &slackout.Error{Class: slackout.Rejected, Code: "edit_window_closed"}, nil
	case 2:
		return &slackout.Error{Class: slackout.Credentials, Code: "missing_scope"}, nil
	case 3:
		return &slackout.Error{Class: slackout.Ambiguous, Code: "timeout"}, nil
	case 4:
		return nil, &slackout.Error{Class: slackout.Ambiguous, Code: "timeout"}
	}
	return nil, nil
}

func (p *wild) PostText(ctx context.Context, channel, text string) (slackout.Receipt, error) {
	before, after := p.outcome()
	if before != nil {
		return slackout.Receipt{}, before
	}
	receipt, err := p.Publisher.PostText(ctx, channel, text)
	if after != nil {
		return slackout.Receipt{}, after
	}
	return receipt, err
}

func (p *wild) UpdateText(ctx context.Context, channel, ts, text string) error {
	before, after := p.outcome()
	if before != nil {
		return before
	}
	if err := p.Publisher.UpdateText(ctx, channel, ts, text); err != nil {
		return err
	}
	return after
}

// Whatever fails and whoever dies, in whatever order: no drop is reported twice, and each is reported or
// logged as in doubt.
func TestAccounting(t *testing.T) {
	for _, webhook := range []bool{false, true} {
		t.Run(fmt.Sprintf("webhook %t", webhook), func(t *testing.T) {
			eachStore(t, func(t *testing.T, w *world) {
				dropped := 0
				for round := range 8 {
					dropped += dropWildly(w, webhook, uint64(round))
					// An edit repeats what an earlier one may have reported: the sums hold over all rounds.
					reported, inDoubt := totalReported(t, w.texts()), int(w.doubted())
					if reported > dropped || reported+inDoubt < dropped {
						t.Errorf("seed %d: %d are reported and %d in doubt of %d drops", round, reported, inDoubt, dropped)
					}
					t.Logf("%d drops: %d reported, %d in doubt, %d messages", dropped, reported, inDoubt, len(w.texts()))
				}
			})
		})
	}
}

// dropWildly has three replicas report drops while everything fails now and then, and gives how many there
// were.
func dropWildly(w *world, webhook bool, seed uint64) (dropped int) {
	w.t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	var publishers []*wild
	replica := func() *Digest {
		return w.digest(webhook, func(c *Config) {
			p := &wild{Publisher: c.Publisher, random: rand.New(rand.NewPCG(seed, uint64(len(publishers)+2))), fail: true}
			publishers = append(publishers, p)
			c.Publisher, c.Interval, c.Lease = p, 10*time.Millisecond, 200*time.Millisecond
		})
	}
	stops := []func(){w.run(replica()), w.run(replica()), w.run(replica())}
	for range 40 {
		n := 1 + random.IntN(20)
		dropped += n
		w.drop([]string{"global", "category"}[random.IntN(2)], fmt.Sprint("c", random.IntN(30)), n)
		if random.IntN(5) == 0 { // one is stopped, and another one started
			i := random.IntN(len(stops))
			stops[i]()
			stops[i] = w.run(replica())
		}
	}
	for _, p := range publishers {
		p.mu.Lock()
		p.fail = false
		p.mu.Unlock()
	}
	w.idle()
	for _, stop := range stops {
		stop()
	}
	return dropped
}
