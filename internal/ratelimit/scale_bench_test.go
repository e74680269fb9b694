package ratelimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// autoPipelined is a client whose script calls go through go-redis's auto-pipelining.
type autoPipelined struct {
	redis.UniversalClient
	pipeline *redis.AutoPipeliner
}

func (a autoPipelined) EvalSha(ctx context.Context, hash string, keys []string, arguments ...any) *redis.Cmd {
	return a.pipeline.EvalSha(ctx, hash, keys, arguments...)
}

// BenchmarkAutoPipelining is what one gets without batches: 256 callers who ask for one event each, with go-redis putting
// into one pipeline what comes at the same time. Compare decisions/s of BenchmarkAdmit:
//
//	go test -run '^$' -bench 'Admit|AutoPipelining' -benchtime 100000x ./internal/ratelimit
func BenchmarkAutoPipelining(b *testing.B) {
	for _, mode := range []string{"deny", "admit"} {
		b.Run(mode, func(b *testing.B) {
			server := redistest.Start(b)
			client := server.Client(b)
			pipeline, err := client.AutoPipeline()
			kit.Check(b, err)
			b.Cleanup(func() { _ = pipeline.Close() })
			limiter, events := prepare(b, server, autoPipelined{client, pipeline}, mode)
			var requests []ratelimit.Request
			for range b.N {
				requests = append(requests, events())
			}
			next := make(chan ratelimit.Request, len(requests))
			for _, request := range requests {
				next <- request
			}
			close(next)
			b.SetParallelism(128)
			b.ResetTimer()
			b.RunParallel(func(loop *testing.PB) {
				for loop.Next() {
					if _, err := limiter.Admit(context.Background(), []ratelimit.Request{<-next}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
	}
}

// BenchmarkMemory reports what Redis keeps for an admitted event, in bytes by MEMORY USAGE over all keys: while it
// counts and is in flight, while it counts and is in Slack, and how much of that is its id in the set of sent ids, which
// lasts for the dedupe window. Ids are of the length that the worker makes; a tenth of the limit is one category's.
//
//	go test -run '^$' -bench Memory -benchtime 1x ./internal/ratelimit
func BenchmarkMemory(b *testing.B) {
	for _, limit := range []int{100, 10_000} {
		b.Run(fmt.Sprint("limit=", limit), func(b *testing.B) {
			ctx := context.Background()
			for range b.N {
				server := redistest.StartProcess(b)
				client := server.Client(b)
				limiter := newLimiter(b, server, ratelimit.Rules{
					Global:   ratelimit.Limit{{Count: limit, Window: time.Hour}},
					Category: ratelimit.Limit{{Count: limit / 10, Window: time.Hour}},
				}, day)
				perEvent := func(wanted string) float64 {
					var bytes int64
					for _, key := range client.Keys(ctx, "*").Val() {
						if strings.HasSuffix(key, wanted) {
							bytes += client.MemoryUsage(ctx, key, 0).Val()
						}
					}
					return float64(bytes) / float64(limit)
				}
				batch := make([]ratelimit.Request, limit)
				for i := range batch {
					batch[i] = event(fmt.Sprintf("NOTIFY.%d.1h2k3j4h5g6f", i), fmt.Sprint("category-", i%10))
					batch[i].Delivery = fmt.Sprintf("%d.1h2k3j4h5g6f", i)
				}
				if _, err := limiter.Admit(ctx, batch); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(perEvent(""), "B/event-in-flight")
				for _, request := range batch {
					kit.Check(b, limiter.Sent(ctx, request))
				}
				b.ReportMetric(perEvent(""), "B/event-sent")
				b.ReportMetric(perEvent(":sent"), "B/event-sent-id")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
