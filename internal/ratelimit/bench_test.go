package ratelimit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/redistest"
)

// BenchmarkAdmit measures decisions per second of one caller that asks in batches, on a redis-server of its own:
//
//	go test -run '^$' -bench Admit ./internal/ratelimit
//
// deny: 20 categories under 100/30m and 10/30m, all slots taken and every one of them sent, each event with a new
// id. admit: the same categories under limits that are never reached.
func BenchmarkAdmit(b *testing.B) {
	for _, mode := range []string{"deny", "admit"} {
		for _, size := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%s/batch=%d", mode, size), func(b *testing.B) { benchmarkAdmit(b, mode, size) })
		}
	}
}

func benchmarkAdmit(b *testing.B, mode string, size int) {
	const categories = 20
	rules := ratelimit.Rules{Global: mustParse("100/30m"), Category: mustParse("10/30m")}
	if mode == "admit" {
		rules = ratelimit.Rules{Global: mustParse("1000000/1s"), Category: mustParse("1000000/1s")}
	}
	limiter := newLimiter(b, redistest.Start(b), rules, 24*time.Hour)
	ctx := context.Background()
	serial := 0
	fill := func(batch []ratelimit.Request) {
		for i := range batch {
			serial++
			id := fmt.Sprintf("NOTIFY.%d.1h2k3j4h5g6f", serial)
			batch[i] = ratelimit.Request{ID: id, Delivery: id, Category: fmt.Sprintf("category-%d", serial%categories), Cost: 1}
		}
	}
	if mode == "deny" {
		batch := make([]ratelimit.Request, 400)
		fill(batch)
		decisions, err := limiter.Admit(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		for i, decision := range decisions {
			if decision.Outcome == ratelimit.Admitted {
				if err := limiter.Sent(ctx, batch[i]); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	batch := make([]ratelimit.Request, size)
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		b.StopTimer()
		fill(batch)
		b.StartTimer()
		decisions, err := limiter.Admit(ctx, batch)
		if err != nil {
			b.Fatal(err)
		}
		want := ratelimit.Admitted
		if mode == "deny" {
			if decisions[0].Outcome == want {
				b.Fatal("admitted above the limit")
			}
		} else if decisions[0].Outcome != want {
			b.Fatalf("not admitted: %+v", decisions[0])
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}
