//go:build !production

package luastore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/internal/luastore"
	"notifier/internal/testkit"
)

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}

// open gives a store and its client, which end with the test.
func open(t *testing.T) (*luastore.Store, *redis.Client) {
	store := luastore.New()
	client := store.Client()
	t.Cleanup(func() {
		_ = client.Close()
		store.Close()
	})
	return store, client
}

// eval runs a script that does not fail.
func eval(t *testing.T, client *redis.Client, script string, args ...any) any {
	t.Helper()
	reply, err := redis.NewScript(script).Run(t.Context(), client, []string{"k"}, args...).Result()
	if !errors.Is(err, redis.Nil) {
		testkit.Check(t, err)
	}
	return reply
}

// The clock stands still until it is set, to the microsecond, and keys age by it.
func TestTheClock(t *testing.T) {
	t.Parallel()
	store, client := open(t)
	store.SetTime(time.UnixMicro(1795159285_000042))
	if diff := cmp.Diff([]any{"1795159285", "42"}, eval(t, client, "return redis.call('TIME')")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	eval(t, client, "redis.call('ZADD', KEYS[1], 1, 'a') redis.call('PEXPIREAT', KEYS[1], 1795159285500)")
	store.SetTime(time.UnixMicro(1795159285_500999))
	if got := eval(t, client, "return redis.call('EXISTS', KEYS[1])"); got != int64(1) {
		t.Errorf("in its last millisecond: %v keys, expected 1", got)
	}
	store.SetTime(time.UnixMicro(1795159285_501000))
	want := []any{int64(0), int64(-2), int64(0), []any{}}
	got := eval(t, client, "local k, call = KEYS[1], redis.call return {call('ZCARD', k), call('PEXPIRETIME', k), call('EXISTS', k), call('ZRANGE', k, 0, -1)}")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("when it has expired (-want +got):\n%s", diff)
	}
}

// TestMemoryIsBoundedByWhatLives: keys that expire are removed although nobody asks for them again.
func TestMemoryIsBoundedByWhatLives(t *testing.T) {
	t.Parallel()
	store, client := open(t)
	const script = "redis.call('HSET', ARGV[1], 'a', 'b') redis.call('PEXPIREAT', ARGV[1], ARGV[2])"
	for i := range 20_000 {
		store.SetTime(time.UnixMilli(int64(i)))
		eval(t, client, script, fmt.Sprint("key ", i), i+10)
		if n := store.Keys(); n > 1001 {
			t.Fatalf("%d keys after %d, of which 11 live", n, i)
		}
	}
}

func TestScripts(t *testing.T) {
	t.Parallel()
	_, client := open(t)
	for script, want := range map[string]any{
		"return 7.9":                          int64(7),
		"return 'x'":                          "x",
		"return true":                         int64(1),
		"return false":                        nil,
		"return nil":                          nil,
		"return {1, 'a', {2}, false, nil, 3}": []any{int64(1), "a", []any{int64(2)}, nil},
		"return redis.status_reply('OK')":     "OK",
		"return {KEYS[1], ARGV[1], #KEYS}":    []any{"k", "1795159285175896", int64(1)},
		"return redis.call('ZADD', 'z', 1795159285175896, 'a') and redis.call('ZSCORE', 'z', 'a')": "1795159285175896",
		"return redis.call('ZSCORE', 'z', 'b')":                                                    nil,
		"return type(redis.call('ZSCORE', 'z', 'b'))":                                              "boolean",
		"redis.call('ZADD', 'z', 1, 'a') return type(redis.pcall('HGET', 'z', 'a').err)":           "string",
		"return string.format('%.0f', 1795159285175896)":                                           "1795159285175896",
		"local a = {} for i = 1, 1000 do a[i] = i end return {unpack(a)} and #{unpack(a)}":         int64(1000),
	} {
		for range 2 { // at first with the text, then by its SHA-1
			if diff := cmp.Diff(want, eval(t, client, script, int64(1795159285175896))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", script, diff)
			}
		}
	}
}

// A script that fails is an error, and leaves nothing to the next.
func TestScriptsThatFail(t *testing.T) {
	t.Parallel()
	_, client := open(t)
	for script, want := range map[string]string{
		"return +":                       "ERR Error compiling script",
		"error('no')":                    "no",
		"leaked = 1":                     "Script attempted to create global variable 'leaked'",
		"return leaked":                  "Script attempted to access nonexistent global variable 'leaked'",
		"return redis.call('ZADD', 'z')": "ERR wrong number of arguments for 'zadd' command",
		"return redis.call('TIME', {})":  "arguments must be strings or integers",
		"return redis.call()":            "at least one argument",
		"return redis.call('FLUSHALL')":  `does not know the command "FLUSHALL"`,
		"return redis.pcall('FLUSHALL')": `does not know the command "FLUSHALL"`,
		"return {1, redis.pcall('GET')}": `does not know the command "GET"`,
		"redis.call('HSET', 'h', 'a', 'b') return redis.call('ZCARD', 'h')": "WRONGTYPE",
	} {
		err := client.Eval(t.Context(), script, nil).Err()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, expected %q", script, err, want)
		}
		if got := eval(t, client, "return 5"); got != int64(5) {
			t.Errorf("after %s: %v", script, got)
		}
	}
}

func TestTheClientHasScriptsAlone(t *testing.T) {
	t.Parallel()
	_, client := open(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"another command": {client.Get(t.Context(), "a").Err(), `does not know the command "get"`},
		"by Do":           {client.Do(t.Context(), "get", "a").Err(), `does not know the command "GET"`},
		"no script":       {client.Do(t.Context(), "eval").Err(), "wrong number of arguments"},
		"too many keys":   {client.Do(t.Context(), "eval", "return 1", 3, "a").Err(), "ERR Number of keys"},
		"an odd argument": {client.Eval(t.Context(), "return 1", nil, 1.5).Err(), "argument 3 is a float64, expected a string or a whole number"},
		"a pipeline": {func() error {
			_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error { return p.Get(t.Context(), "a").Err() })
			return err
		}(), "no pipelines"},
		"an unknown SHA": {client.EvalSha(t.Context(), "abc", nil).Err(), "NOSCRIPT"},
		"canceled":       {client.Eval(canceled, "return 1", nil).Err(), "context canceled"},
	} {
		if test.err == nil || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, expected %q", name, test.err, test.want)
		}
	}
}
