package ratelimit_test

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

// benchmarkRules are what BenchmarkLevels compares, on two exact levels.
func benchmarkRules(name, global, category string) ratelimit.Rules {
	rules := kit.Rules(global, category, "")
	switch name {
	case "group": // all groups have one category, and a limit that does not refuse
		rules.Group = mustParse("1000/30m")
	case "reserve":
		rules.Reserve = map[string]int{"category-1": 5}
	case "buckets":
		rules = kit.Rules(global+":30s", category+":30s", "")
	}
	return rules
}

// BenchmarkLevels compares what a third level, a reserve and buckets cost, against two exact levels ("two"):
//
//	go test -run '^$' -bench Levels ./internal/ratelimit
//
// deny: 20 categories with all slots taken. admit: the same under limits that are never reached.
func BenchmarkLevels(b *testing.B) {
	for _, mode := range []string{"deny", "admit"} {
		for _, size := range []int{64, 512} {
			for _, rules := range []string{"two", "group", "reserve", "buckets"} {
				b.Run(fmt.Sprintf("%s/batch=%d/%s", mode, size, rules), func(b *testing.B) {
					global, category := "100/30m", "10/30m"
					if mode == "admit" {
						global, category = "1000000/30m", "1000000/30m"
					}
					benchmarkLevels(b, benchmarkRules(rules, global, category), size, mode == "deny")
				})
			}
		}
	}
}

func benchmarkLevels(b *testing.B, rules ratelimit.Rules, size int, deny bool) {
	ctx := context.Background()
	server := redistest.Start(b)
	if server.Embedded {
		b.Skip("the embedded store's speed says nothing")
	}
	client := server.Client(b)
	limiter, err := ratelimit.New(client, b.Name(), rules, day)
	kit.Check(b, err)
	events := eventSource()
	if deny {
		sendAsManyAsAllowed(b, limiter, events)
	}
	kit.Check(b, client.ConfigResetStat(ctx).Err())
	batch := make([]ratelimit.Request, size)
	b.ResetTimer()
	for done := 0; done < b.N; done += size {
		for i := range batch {
			batch[i] = events()
		}
		_, err := limiter.Admit(ctx, batch)
		kit.Check(b, err)
	}
	calls, seconds := scriptTime(b, client)
	b.ReportMetric(float64(calls*size)/seconds, "script/s")
}

// BenchmarkOneCall compares a call for one event with a bare EVALSHA of a plain script that trims, counts and adds to two sets.
// "us/script" is the time that Redis counts for a call of a script, "ns/op" the whole way there and back.
func BenchmarkOneCall(b *testing.B) {
	const plain = `
		local time = redis.call('TIME')
		local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
		for i = 1, 2 do
			redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', string.format('%.0f', now - tonumber(ARGV[1])))
			if redis.call('ZCARD', KEYS[i]) >= tonumber(ARGV[1 + i]) then return 0 end
		end
		for i = 1, 2 do
			redis.call('ZADD', KEYS[i], string.format('%.0f', now), ARGV[4])
			redis.call('PEXPIRE', KEYS[i], 1800000)
		end
		return 1`
	for _, mode := range []string{"deny", "admit"} {
		for _, name := range []string{"plain", "admit.lua"} {
			b.Run(mode+"/"+name, func(b *testing.B) {
				ctx := context.Background()
				server := redistest.Start(b)
				if server.Embedded {
					b.Skip("the embedded store's speed says nothing")
				}
				client := server.Client(b)
				limiter, events := prepare(b, server, client, mode)
				limit := 1_000_000
				if mode == "deny" {
					limit = 0
				}
				script := redis.NewScript(plain)
				b.ResetTimer()
				for range b.N {
					event := events()
					if name == "plain" {
						kit.Check(b, script.Run(ctx, client, []string{"{p}:global", "{p}:" + event.Category}, 1_000_000, limit, limit, event.ID).Err())
						continue
					}
					_, err := limiter.Admit(ctx, []ratelimit.Request{event})
					kit.Check(b, err)
				}
				calls, seconds := scriptTime(b, client)
				b.ReportMetric(seconds*1e6/float64(calls), "us/script")
			})
		}
	}
}

// BenchmarkLargeCost measures how long Redis is blocked by one event that takes 400,000 slots, and what the two scopes of such
// a limit take in memory with as many buckets as fit into its window.
func BenchmarkLargeCost(b *testing.B) {
	ctx := context.Background()
	server := redistest.Start(b)
	if server.Embedded {
		b.Skip("the embedded store's speed says nothing")
	}
	client := server.Client(b)
	limiter, err := ratelimit.New(client, "n", kit.Rules("1000000/24h:15m", "1000000/24h:15m", ""), time.Hour)
	kit.Check(b, err)
	longest := 0.0
	for i := range b.N {
		kit.Check(b, client.Del(ctx, "{n}:buckets:global", "{n}:buckets:category:a").Err())
		kit.Check(b, client.ConfigResetStat(ctx).Err())
		event := costing(event(fmt.Sprint("e", i), "a"), 400_000)
		decisions, err := limiter.Admit(ctx, []ratelimit.Request{event})
		kit.Check(b, err)
		if decisions[0].Outcome != ratelimit.Admitted {
			b.Fatalf("%+v", decisions[0])
		}
		_, err = limiter.Refund(ctx, event, "")
		kit.Check(b, err)
		_, seconds := scriptTime(b, client)
		longest = max(longest, seconds)
	}
	b.ReportMetric(longest*1e3, "ms/worst")
	buckets := make([]redis.Z, 96)
	for i := range buckets {
		buckets[i] = redis.Z{Score: float64(1_795_149_541_123_457 + i), Member: fmt.Sprintf("%d %d 1795149541123457", 10_000*i, 10_000*(i+1))}
	}
	kit.Check(b, client.Del(ctx, "{n}:buckets:global").Err())
	kit.Check(b, client.ZAdd(ctx, "{n}:buckets:global", buckets...).Err())
	bytes, err := client.MemoryUsage(ctx, "{n}:buckets:global").Result()
	kit.Check(b, err)
	b.ReportMetric(float64(bytes), "B/scope")
}
