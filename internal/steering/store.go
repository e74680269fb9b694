package steering

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/lua"
)

// Store is the hash in Redis. It is safe for concurrent use.
type Store struct {
	redis redis.UniversalClient
	key   string
	now   *redis.Script
	steer *redis.Script
}

// NewStore returns a Store that uses an open client; namespace as for ratelimit.New.
func NewStore(client redis.UniversalClient, namespace string) (*Store, error) {
	if err := ratelimit.ValidateNamespace(namespace); err != nil {
		return nil, err
	}
	return &Store{redis: client, key: "{" + namespace + "}:steering", now: redis.NewScript(lua.Now),
		steer: redis.NewScript(lua.Steer)}, nil
}

// State is one reading of the hash. It is immutable.
type State struct {
	Now     time.Time // by the clock of Redis
	Version int64     // 0: there is no hash
	Orders  []Order   // the valid ones, also those that have ended; by kind, then by target
	Invalid []string  // a few of the skipped entries, with the reason

	version string // the field as text; steer.lua writes a number
}

// The fields that are no orders. Only v0.2.0 writes bornField, and nothing reads it.
const (
	versionField = "version"
	bornField    = "born"
)

// highestVersion is the highest that lua/steer.lua reads exactly.
const highestVersion = 1<<53 - 1

const (
	mostInvalid = 5              // entries that State.Invalid describes
	mostFields  = MostOrders + 2 // of a hash that lua/steer.lua wrote
)

// ErrFull is the error when there are MostOrders already.
var ErrFull = fmt.Errorf("there are %d mutes and limits already, expected at most so many; remove one first",
	MostOrders)

// poll reads the clock and the version field in one round trip. The field is empty if there is no hash. The
// error is of the clock: a key of another type is for Read to report.
func (s *Store) poll(ctx context.Context) (now time.Time, version string, err error) {
	pipe := s.redis.Pipeline()
	clock := s.now.Eval(ctx, pipe, []string{s.key})
	field := pipe.HGet(ctx, s.key, versionField)
	_, _ = pipe.Exec(ctx) // each command has its own error
	micros, err := clock.Int64()
	if err != nil {
		return time.Time{}, "", fmt.Errorf("redis: cannot read the time: %w", err)
	}
	version, err = field.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		version = err.Error()
	}
	return time.UnixMicro(micros).UTC(), version, nil
}

// Read reads the hash. An error means that Redis is unavailable, or that the key is not one of ours.
func (s *Store) Read(ctx context.Context) (State, error) {
	micros, err := s.now.Run(ctx, s.redis, []string{s.key}).Int64()
	if err != nil {
		return State{}, fmt.Errorf("redis: cannot read the time: %w", err)
	}
	n, err := s.redis.HLen(ctx, s.key).Result()
	if err != nil && redis.IsPermissionError(err) { // a user who only reads
		err = nil
	}
	if err == nil && n > mostFields {
		return State{}, fmt.Errorf(
			"redis: %s has %d fields, expected at most %d: notifier has not written it", s.key, n, mostFields)
	}
	var fields map[string]string
	if err == nil {
		fields, err = s.redis.HGetAll(ctx, s.key).Result()
	}
	if err != nil {
		return State{}, fmt.Errorf("redis: cannot read %s: %w", s.key, err)
	}
	state := decodeState(fields)
	state.Now = time.UnixMicro(micros).UTC()
	return state, nil
}

func decodeState(fields map[string]string) State {
	state := State{version: fields[versionField]}
	if version, err := strconv.ParseInt(state.version, 10, 64); err == nil && version <= highestVersion {
		state.Version = version
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if field == versionField || field == bornField {
			continue
		}
		order, err := decodeOrder(field, fields[field])
		if err != nil {
			if len(state.Invalid) < mostInvalid {
				state.Invalid = append(state.Invalid, fmt.Sprintf("%.60q: %v", field, err))
			}
			continue
		}
		state.Orders = append(state.Orders, order)
	}
	slices.SortFunc(state.Orders, func(a, b Order) int {
		return cmp.Or(-cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Target, b.Target)) // mutes first
	})
	return state
}

// InForce returns the orders of these kinds that have not ended at a time.
func (s State) InForce(at time.Time, kinds ...Kind) []Order {
	var orders []Order
	for _, o := range s.Orders {
		if slices.Contains(kinds, o.Kind) && o.Until.After(at) {
			orders = append(orders, o)
		}
	}
	return orders
}

// Set stores an order of NewMute or NewLimit for a time, Shortest to Longest, in whole microseconds. It
// replaces one with the same target. It returns the order with its times, and the version of the change. The
// error is ErrFull, or means that Redis is unavailable; then the order may be in force.
func (s *Store) Set(ctx context.Context, o Order, length time.Duration) (Order, int64, error) {
	if length < Shortest || length > Longest {
		return Order{}, 0, fmt.Errorf("duration %s, expected %s to %s", length, Shortest, Longest)
	}
	rest, err := json.Marshal(content{By: o.By, Reason: o.Reason, Limit: o.Limit})
	if err != nil {
		return Order{}, 0, err
	}
	reply, err := s.change(ctx, s.redis, "set", o.field(), strconv.FormatInt(length.Microseconds(), 10),
		string(rest))
	if err != nil {
		return Order{}, 0, err
	}
	if reply.status < 0 {
		return Order{}, 0, ErrFull
	}
	o.Since, o.Until = time.UnixMicro(reply.now).UTC(), time.UnixMicro(reply.until).UTC()
	return o, reply.version, nil
}

// Clear ends an order. It reports whether there was one, and returns the version of the change.
func (s *Store) Clear(ctx context.Context, kind Kind, target string) (found bool, version int64, err error) {
	reply, err := s.change(ctx, s.redis, "clear", Order{Kind: kind, Target: target}.field())
	return reply.status == 1, reply.version, err
}

// restore writes a reading if there is no hash, or an older version. Repeating it is harmless.
func (s *Store) restore(ctx context.Context, client redis.Scripter, known State) (restored bool, err error) {
	arguments := []any{"restore", strconv.FormatInt(known.Version, 10)}
	for _, o := range known.Orders {
		arguments = append(arguments, o.field(), o.value)
	}
	reply, err := s.change(ctx, client, arguments...)
	return reply.status == 1, err
}

// reply is the reply of lua/steer.lua.
type reply struct{ status, now, version, until int64 }

func (s *Store) change(ctx context.Context, client redis.Scripter, arguments ...any) (reply, error) {
	fields, err := s.steer.Run(ctx, client, []string{s.key}, arguments...).Int64Slice()
	switch {
	case err != nil:
		return reply{}, fmt.Errorf("redis: cannot change %s: %w", s.key, err)
	case len(fields) != 4 || fields[0] < -1 || fields[0] > 1:
		return reply{}, errors.New(
			"redis: unexpected reply from steer.lua: expected a status, a time, a version and an end")
	}
	return reply{fields[0], fields[1], fields[2], fields[3]}, nil
}
