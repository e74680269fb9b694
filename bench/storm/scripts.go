package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// redisClient is a client of the measurement's Redis, which its caller closes.
func (b *bench) redisClient() (*redis.Client, error) {
	options, err := redis.ParseURL(b.RedisURL)
	if err != nil {
		return nil, err
	}
	return redis.NewClient(options), nil
}

// scriptStatistics is how many scripts Redis has run so far, and for how many microseconds, by its own
// statistics.
func scriptStatistics(ctx context.Context, client *redis.Client) (calls, micros int, err error) {
	info, err := client.InfoMap(ctx, "commandstats").Result()
	if err != nil {
		return 0, 0, err
	}
	for _, command := range []string{"cmdstat_eval", "cmdstat_evalsha"} {
		statistics, run := info["Commandstats"][command]
		if !run {
			continue // a command that was never run is not there
		}
		var n, took int
		if _, err := fmt.Sscanf(statistics, "calls=%d,usec=%d", &n, &took); err != nil {
			return 0, 0, fmt.Errorf("redis-server's statistics of %s: %q: %w", command, statistics, err)
		}
		calls, micros = calls+n, micros+took
	}
	return calls, micros, nil
}
