package ratelimit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
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

// BenchmarkCategories measures by how much a decision's cost grows when there are 10,000 categories instead of 10, and
// BenchmarkLimit when limits are 10,000 instead of 10 and full:
//
//	go test -run '^$' -bench 'Categories|Limit' -benchtime 500x ./internal/ratelimit
//
// "ratio" is the script's time by Redis's own clock over that of the smallest, measured in turns; 500 batches of each. A
// batch is 64 events in 8 distinct categories, whichever they are: it is the distinct categories of a batch that cost
// something each, not those that exist.
func BenchmarkCategories(b *testing.B) {
	compare(b, []int{10, 100, 1000, 10_000}, func(categories int) world { return world{categories: categories, limit: 10} })
}

func BenchmarkLimit(b *testing.B) {
	compare(b, []int{10, 100, 1000, 10_000}, func(limit int) world { return world{categories: 10, limit: limit} })
}

// world is how much there is before anything is measured: so many categories, each with so many admissions.
type world struct{ categories, limit int }

func compare(b *testing.B, sizes []int, of func(size int) world) {
	const size, distinct = 64, 8
	for _, mode := range []string{"deny", "admit"} {
		b.Run(mode, func(b *testing.B) {
			ctx := context.Background()
			clients := make([]*redis.Client, len(sizes))
			limiters := make([]*ratelimit.Limiter, len(sizes))
			best := make([]float64, len(sizes)) // microseconds of script time for one decision, the best of all rounds
			for i, n := range sizes {
				server := redistest.StartProcess(b)
				clients[i] = server.Client(b)
				w := of(n)
				full := ratelimit.Limit{{Count: w.limit, Window: time.Hour}}
				limiters[i] = newLimiter(b, server, ratelimit.Rules{Global: mustParse("1000000/1h"), Category: full}, day)
				w.fill(b, limiters[i])
				if mode == "admit" {
					limiters[i] = newLimiter(b, server, kit.Rules("1000000/1h", "1000000/1h", ""), day)
				}
			}
			serial := 0
			const inOneRound = 25
			b.ResetTimer()
			for done := 0; done < b.N; done += inOneRound {
				for i, n := range sizes {
					kit.Check(b, clients[i].ConfigResetStat(ctx).Err())
					for range inOneRound {
						batch := make([]ratelimit.Request, size)
						first := rand.IntN(of(n).categories)
						for j := range batch {
							serial++
							batch[j] = event(fmt.Sprintf("NOTIFY.%d.1h2k3j4h5g6f", serial), fmt.Sprint("category-", (first+j%distinct)%of(n).categories))
						}
						decisions, err := limiters[i].Admit(ctx, batch)
						kit.Check(b, err)
						if admitted := decisions[0].Outcome == ratelimit.Admitted; admitted != (mode == "admit") {
							b.Fatalf("%+v", decisions[0])
						}
						if mode == "admit" {
							takeBack(b, clients[i], batch)
						}
					}
					calls, seconds := scriptTime(b, clients[i])
					cost := seconds * 1e6 / float64(calls*size)
					if best[i] == 0 || cost < best[i] {
						best[i] = cost
					}
				}
			}
			for i, n := range sizes {
				b.ReportMetric(best[i], fmt.Sprintf("us/decision:%d", n))
			}
			b.ReportMetric(best[len(best)-1]/best[0], "ratio")
			b.ReportMetric(0, "ns/op") // means nothing here
		})
	}
}

// fill admits and sends until every category is full.
func (w world) fill(b *testing.B, limiter *ratelimit.Limiter) {
	b.Helper()
	var batch []ratelimit.Request
	for i := range w.categories * w.limit {
		batch = append(batch, event(fmt.Sprintf("BEFORE.%d.1h2k3j4h5g6f", i), fmt.Sprint("category-", i%w.categories)))
	}
	if _, err := limiter.Admit(context.Background(), batch); err != nil {
		b.Fatal(err)
	}
}

// takeBack removes what a batch has written, past the scripts, so that the next one finds as much as this one has.
func takeBack(b *testing.B, client *redis.Client, batch []ratelimit.Request) {
	b.Helper()
	prefix := "{" + b.Name() + "}:"
	at, err := client.HGet(context.Background(), prefix+"meta", "clock").Result() // of the admission
	kit.Check(b, err)
	_, err = client.Pipelined(context.Background(), func(pipe redis.Pipeliner) error {
		for _, request := range batch {
			pipe.ZRem(context.Background(), prefix+"global", slot(request)+" "+at)
			pipe.ZRem(context.Background(), prefix+"category:"+request.Category, slot(request)+" "+at)
			pipe.HDel(context.Background(), prefix+"inflight", slot(request))
		}
		return nil
	})
	kit.Check(b, err)
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
