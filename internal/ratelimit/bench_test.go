package ratelimit_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// BenchmarkAdmit measures decisions on a redis-server of its own:
//
//	go test -run '^$' -bench Admit ./internal/ratelimit
//
// "script/s" is decisions per second of the script alone, by the time that Redis has counted for it; "decisions/s" is
// what one caller gets who asks for one batch after the other, with the client's work and the way there and back.
//
// deny: 20 categories under 100/30m and 10/30m, all slots taken and every one of them sent; each event has a new id.
// admit: the same categories under limits that are never reached.
func BenchmarkAdmit(b *testing.B) {
	for _, mode := range []string{"deny", "admit"} {
		for _, size := range []int{1, 8, 64, 512} {
			b.Run(fmt.Sprintf("%s/batch=%d", mode, size), func(b *testing.B) { benchmarkAdmit(b, mode, size) })
		}
	}
}

const benchmarkCategories = 20

// prepare gives a limiter for one of the modes, and events to ask for.
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
		if got := decisions[0].Outcome; (got == ratelimit.Admitted) != (mode == "admit") {
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

// eventSource gives events with ids as the worker makes them, of stream, sequence and time, the categories in turn.
func eventSource() func() ratelimit.Request {
	serial, at := 0, int64(1_795_000_000_123_456_789)
	return func() ratelimit.Request {
		serial++
		at += int64(7000 + serial*7919%3001)
		delivery := fmt.Sprintf("%d.%s", serial, strconv.FormatInt(at, 36))
		return ratelimit.Request{ID: "NOTIFY." + delivery, Delivery: delivery, Category: fmt.Sprintf("category-%d", serial%benchmarkCategories), Cost: 1}
	}
}

// sendAsManyAsAllowed takes every slot, and records what was admitted as sent.
func sendAsManyAsAllowed(b *testing.B, limiter *ratelimit.Limiter, events func() ratelimit.Request) {
	b.Helper()
	batch := make([]ratelimit.Request, 400)
	for i := range batch {
		batch[i] = events()
	}
	decisions, err := limiter.Admit(context.Background(), batch)
	kit.Check(b, err)
	for i, decision := range decisions {
		if decision.Outcome == ratelimit.Admitted {
			kit.Check(b, limiter.Sent(context.Background(), batch[i]))
		}
	}
}

var evalshaStatistics = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)

// scriptTime is how often and how long Redis has run scripts since its statistics were reset.
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
