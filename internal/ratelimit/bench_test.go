package ratelimit_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// BenchmarkAdmit measures decisions on a redis-server of its own:
//
//	go test -run '^$' -bench Admit ./internal/ratelimit
//
// "script/s" counts decisions per second of the script's own time, as Redis measures it. "decisions/s" counts
// decisions for one caller that sends batches one after another, including the client's work and the round
// trip.
//
// deny: 20 categories under 100/30m and 10/30m. Sent events hold all global slots, and each event has a new
// id. admit: the same categories under limits that are never reached.
func BenchmarkAdmit(b *testing.B) {
	for _, mode := range []string{"deny", "admit"} {
		for _, size := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%s/batch=%d", mode, size), func(b *testing.B) { benchmarkAdmit(b, mode, size) })
		}
	}
}

const benchmarkCategories = 20

// prepare returns a limiter for one of the modes, and a source of events.
func prepare(b *testing.B, server *redistest.Server, client redis.UniversalClient, mode string) (*ratelimit.Limiter, func() ratelimit.Request) {
	b.Helper()
	held := kit.Rules("100/30m", "10/30m", "")
	if mode == "admit" {
		held = kit.Rules("1000000/1s", "1000000/1s", "")
	}
	limiter, err := ratelimit.New(client, b.Name(), held, day)
	kit.Check(b, err)
	events := eventSource()
	if mode == "deny" {
		sendAsManyAsAllowed(b, limiter, events)
	}
	if !server.Embedded {
		kit.Check(b, server.Client(b).ConfigResetStat(context.Background()).Err())
	}
	return limiter, events
}

func benchmarkAdmit(b *testing.B, mode string, size int) {
	ctx := context.Background()
	server := redistest.Start(b)
	client := server.Client(b)
	limiter, events := prepare(b, server, client, mode)
	batch := make([]ratelimit.Request, size)
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		b.StopTimer()
		for i := range batch {
			batch[i] = events()
		}
		b.StartTimer()
		decisions, err := limiter.Admit(ctx, batch)
		kit.Check(b, err)
		if got := decisions[0].Verdict; (got == ratelimit.Admitted) != (mode == "admit") {
			b.Fatalf("outcome %v", got)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
	if !server.Embedded {
		calls, seconds := scriptTime(b, client)
		b.ReportMetric(float64(calls*size)/seconds, "script/s")
	}
}

// eventSource returns events with ids as the worker makes them, from stream, sequence and time. The
// categories take turns.
func eventSource() func() ratelimit.Request {
	serial, at := 0, int64(1_795_000_000_123_456_789)
	return func() ratelimit.Request {
		serial++
		at += int64(7000 + serial*7919%3001)
		delivery := fmt.Sprintf("%d.%s", serial, strconv.FormatInt(at, 36))
		return ratelimit.Request{ID: "NOTIFY." + delivery, Delivery: delivery, Category: fmt.Sprintf("category-%d", serial%benchmarkCategories), Cost: 1}
	}
}

// sendAsManyAsAllowed takes every global slot, and records the admitted events as sent.
func sendAsManyAsAllowed(b *testing.B, limiter *ratelimit.Limiter, events func() ratelimit.Request) {
	b.Helper()
	batch := make([]ratelimit.Request, 400)
	for i := range batch {
		batch[i] = events()
	}
	decisions, err := limiter.Admit(context.Background(), batch)
	kit.Check(b, err)
	for i, decision := range decisions {
		if decision.Verdict == ratelimit.Admitted {
			kit.Check(b, limiter.Sent(context.Background(), batch[i]))
		}
	}
}

var evalshaStatistics = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// scriptTime returns the number of script calls since the statistics were reset, and the time that Redis
// spent on them.
func scriptTime(b *testing.B, client *redis.Client) (calls int, seconds float64) {
	b.Helper()
	info, err := client.Info(context.Background(), "commandstats").Result()
	kit.Check(b, err)
	found := evalshaStatistics.FindStringSubmatch(info)
	if found == nil {
		b.Fatalf("no statistics of EVALSHA in %q", info)
	}
	calls, _ = strconv.Atoi(found[1])
	micros, _ := strconv.Atoi(found[2])
	return calls, float64(micros) / 1e6
}

// autoPipelined is a client that sends script calls through go-redis's auto-pipelining.
type autoPipelined struct {
	redis.UniversalClient
	pipeline *redis.AutoPipeliner
}

func (a autoPipelined) EvalSha(ctx context.Context, hash string, keys []string, arguments ...any) *redis.Cmd {
	return a.pipeline.EvalSha(ctx, hash, keys, arguments...)
}

// BenchmarkAutoPipelining measures the alternative to batches: 128 callers per processor submit one event at
// a time, and go-redis combines concurrent calls into pipelines. Compare decisions/s with BenchmarkAdmit:
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

// BenchmarkMemory reports the memory of an admitted event in Redis, in bytes by MEMORY USAGE over all keys:
// while its slots count and it is in flight, then while they count and it is sent. Of the latter it also
// reports the share of the set of sent ids, which keeps an id for the dedupe window. Ids are as long as the
// worker makes them. Each of ten categories takes a tenth of the limit.
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
