package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// redisClient connects to the benchmark's Redis. The caller closes the client.
func (b *bench) redisClient() (*redis.Client, error) {
	options, err := redis.ParseURL(b.RedisURL)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

// scriptStatistics returns the number of script calls so far and their total time in microseconds, from
// Redis's own statistics.
func scriptStatistics(ctx context.Context, client *redis.Client) (calls, micros int, err error) {
	info, err := client.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, command := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		statistics, run := info["Commandstats"][command]
		if !run {
			continue // Redis omits commands that it has never run
		}
		var n, took int
		if _, err := fmt.Sscanf(statistics, "calls=%d,usec=%d", &n, &took); err != nil {
			return 0, 0, fmt.Errorf("redis-server's statistics of %s: %q: %w", command, statistics, err)
		}
		calls, micros = calls+n, micros+took
	}
	return calls, micros, nil
}
