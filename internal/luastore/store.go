//go:build !production

// Package luastore runs scripts that are written for Redis, in the process and at a time that the caller sets. It is for
// "notifier simulate", which asks a script a hundred thousand times.
//
// The embedded store of the other commands is a whole server: it makes a new Lua state for each call, answers each command of a
// script through its protocol, and sorts a set whenever it reads from it. This one keeps its state, calls functions, keeps its
// sets sorted, and knows only the commands that the scripts use (commands.go). Any other is an error that names it.
//
// Its clock is what SetTime has set, for TIME and for the expiry of keys alike.
//
// The package does not know keys, scripts or limits. Production builds (-tags production) do not contain it.
//
// Reading order: store.go (keys and their expiry, the client), script.go (Lua), commands.go, zset.go,
// zrange.go and sortedset.go.
package luastore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"
)

// Store holds keys and runs scripts on them. It is safe for concurrent use.
type Store struct {
	mu      sync.Mutex
	lua     *lua.LState
	scripts map[string]*lua.LFunction // by their SHA-1
	args    []string                  // of the command that a script calls; used again by the next
	keys    map[string]*value
	sweepAt int   // the number of keys at which the expired ones are looked for
	now     int64 // microseconds since 1970
}

// value is what one key holds: a sorted set or a hash.
type value struct {
	set     *sortedSet
	hash    map[string]string
	expires int64 // milliseconds since 1970; 0: never
}

// New returns an empty store at the beginning of 1970. Close releases it.
func New() *Store {
	s := &Store{scripts: map[string]*lua.LFunction{}, keys: map[string]*value{}, sweepAt: firstSweep}
	s.lua = s.newState()
	return s
}

// Close releases the store's Lua state. Nothing may use the store afterwards.
func (s *Store) Close() { s.lua.Close() }

// SetTime sets the store's clock, to the microsecond.
func (s *Store) SetTime(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = t.UnixMicro()
}

// Client returns a client whose EVAL and EVALSHA the store answers, without a network. Any other command is an error, and so
// are pipelines.
func (s *Store) Client() *redis.Client {
	client := redis.NewClient(&redis.Options{MaxRetries: -1})
	client.AddHook(hook{s})
	return client
}

// hook answers a client's commands.
type hook struct{ store *Store }

func (h hook) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("the store in this process has no network")
	}
}

func (h hook) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		called, is := cmd.(*redis.Cmd)
		if !is {
			return unknownCommand(cmd.Name())
		}
		reply, err := h.store.process(called.Args())
		if err == nil && reply == nil {
			err = redis.Nil
		}
		called.SetVal(reply)
		return err
	}
}

func (h hook) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error {
		return replyError("ERR the store in this process has no pipelines")
	}
}

// replyError is an error that the store replies, as one of Redis.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError marks it for the client.
func (e replyError) RedisError() {}

const errWrongType = replyError("WRONGTYPE Operation against a key holding the wrong kind of value")

func unknownCommand(name string) error {
	return replyError(fmt.Sprintf("ERR the store in this process does not know the command %.40q", name))
}

// firstSweep is how many keys there may be before the expired ones are looked for.
const firstSweep = 1000

// find returns the value of a key, or nil.
func (s *Store) find(key string) *value {
	v := s.keys[key]
	if v != nil && s.expired(v) {
		delete(s.keys, key)
		return nil
	}
	return v
}

// expired reports whether a value's time is over. As in Redis it lives through the millisecond at which it expires.
func (s *Store) expired(v *value) bool { return v.expires != 0 && s.now/1000 > v.expires }

// put stores the value of a new key. Keys that nobody asks for again are removed whenever there are twice as many keys as
// were left the last time.
func (s *Store) put(key string, v *value) {
	if len(s.keys) >= s.sweepAt {
		for old, v := range s.keys {
			if s.expired(v) {
				delete(s.keys, old)
			}
		}
		s.sweepAt = max(firstSweep, 2*len(s.keys))
	}
	s.keys[key] = v
}

// dropIfEmpty removes a key whose last entry is gone.
func (s *Store) dropIfEmpty(key string, v *value) {
	if v.set != nil && v.set.len() == 0 || v.set == nil && len(v.hash) == 0 {
		delete(s.keys, key)
	}
}

// Keys is how many keys the store holds, those included that have expired and were not looked for since.
func (s *Store) Keys() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}
