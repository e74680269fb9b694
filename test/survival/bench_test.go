package survival

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// BenchmarkAdmit is what it costs that a replica remembers what it was given, while nothing is lost:
//
//	go test -run '^$' -bench Admit -benchtime 100000x ./test/survival
//
// Two limiters ask the same server in turns, a batch each, so that a busy machine concerns both. "plain" and "heals" are the medians
// of the times for a batch, in microseconds, and "ratio" is the second through the first.
func BenchmarkAdmit(b *testing.B) {
	for name, limit := range map[string]string{"deny": "100/30m", "admit": "1000000/30m"} {
		for _, size := range []int{1, 64, 512} {
			b.Run(fmt.Sprintf("%s/batch=%d", name, size), func(b *testing.B) { benchmarkAdmit(b, limit, size) })
		}
	}
}

func benchmarkAdmit(b *testing.B, limit string, size int) {
	server := redistest.Start(b)
	rules := kit.Rules(limit, limit, "")
	limiter := func(namespace string) (*ratelimit.Limiter, redis.UniversalClient, *ratelimit.Guard) {
		client, guard, err := ratelimit.OpenGuarded(server.URL(), nil)
		kit.Check(b, err)
		limiter, err := ratelimit.New(client, namespace, rules, time.Hour)
		kit.Check(b, err)
		return limiter, client, guard
	}
	plain, plainClient, _ := limiter("plain")
	defer func() { _ = plainClient.Close() }()
	heals, client, guard := limiter("heals")
	defer func() { _ = client.Close() }()
	healer, err := ratelimit.NewHealer(heals, guard, ratelimit.Healing{Replica: "r"})
	kit.Check(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); healer.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	kit.EventuallyNil(b, func() error { return heals.Ready(ctx) })

	var times [2][]time.Duration
	batch := make([]ratelimit.Request, size)
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		for i := range batch {
			id := fmt.Sprint("e", done+i)
			batch[i] = ratelimit.Request{ID: id, Delivery: id, Category: fmt.Sprint("c", (done+i)%20), Cost: 1}
		}
		for i, limiter := range []*ratelimit.Limiter{plain, heals} {
			begun := time.Now()
			_, err := limiter.Admit(ctx, batch)
			kit.Check(b, err)
			times[i] = append(times[i], time.Since(begun))
		}
	}
	b.StopTimer()
	first, second := median(times[0]), median(times[1])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(first.Microseconds()), "plain-µs")
	b.ReportMetric(float64(second.Microseconds()), "heals-µs")
	b.ReportMetric(float64(second)/float64(first), "ratio")
}
