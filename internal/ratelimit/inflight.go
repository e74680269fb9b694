package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// InFlight is the record of an event that was admitted and is not yet recorded as sent: a value of the hash
// {namespace}:inflight, by the event's id. Times are UTC, to the microsecond, by the clock of Redis.
type InFlight struct {
	Admitted time.Time // when the script admitted it
	Delivery string    // the delivery that it was admitted for
	Posts    int       // how many posts of it have begun
	LastPost time.Time // when the last of them began; zero: none has
	LastName string    // the name of the last one; empty if none has begun, or if all certainly failed
}

// InFlight returns the record of an event, and whether there is one. Errors are as for Admit, and one for a
// record that the scripts have not written.
func (l *Limiter) InFlight(ctx context.Context, request Request) (record InFlight, found bool, err error) {
	text, err := l.redis.HGet(ctx, l.keys.inFlight(), request.member()).Result()
	if errors.Is(err, redis.Nil) {
		return InFlight{}, false, nil
	}
	if err == nil {
		record, err = ParseInFlight(text)
	}
	if err != nil {
		return InFlight{}, false, fmt.Errorf("redis: cannot look up %q in flight: %w", request.ID, err)
	}
	return record, true, nil
}

// WasSent reports whether an event is recorded as sent. Errors are as for Admit.
func (l *Limiter) WasSent(ctx context.Context, request Request) (bool, error) {
	err := l.redis.ZScore(ctx, l.keys.sent(), request.member()).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return false, fmt.Errorf("redis: cannot look up whether %q was sent: %w", request.ID, err)
	}
	return err == nil, nil
}

// inFlightShape is the shape of a record; see admit.lua. Releases up to v0.1.0 leave out what is about posts
// before the first.
var inFlightShape = regexp.MustCompile(`(?s)^(\d{1,18})g?(?::(\d{1,9}):(\d{1,18}):(\S*))? (.*)$`)

// ParseInFlight reads a record as the scripts write it. Any other text is an error.
func ParseInFlight(record string) (InFlight, error) {
	parts := inFlightShape.FindStringSubmatch(record)
	if parts == nil {
		return InFlight{}, fmt.Errorf("record %.60q, expected a time and a delivery", record)
	}
	parsed := InFlight{Admitted: microTime(parts[1]), LastName: parts[4], Delivery: parts[5]}
	if parts[2] != "" && parts[2] != "0" {
		parsed.Posts, _ = strconv.Atoi(parts[2]) // of digits alone, and not too many
		parsed.LastPost = microTime(parts[3])
	}
	return parsed, nil
}

func microTime(digits string) time.Time {
	micros, _ := strconv.ParseInt(digits, 10, 64) // of digits alone, and not too many
	return time.UnixMicro(micros).UTC()
}
