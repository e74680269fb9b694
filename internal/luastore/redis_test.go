//go:build !production

package luastore_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"notifier/internal/luastore"
	"notifier/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestAnswersAsRedis makes random calls from a script, of the store and of a redis-server, and compares each answer.
func TestAnswersAsRedis(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t).Client(t)
	calls, histories := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		histories++
		store := luastore.New()
		defer store.Close()
		store.SetTime(time.Now())
		client := store.Client()
		defer client.Close()
		var before []string
		for range rapid.IntRange(40, 160).Draw(r, "calls") {
			call := anyCall(r, histories)
			before = append(before, fmt.Sprint(call))
			want, got := answer(t, server, call), answer(t, client, call)
			if diff := cmp.Diff(want, got); diff != "" {
				r.Fatalf("%s (-Redis +store):\n%s", strings.Join(before, "\n"), diff)
			}
			calls++
		}
	})
	t.Logf("%d answers compared", calls)
}

// anyCall is a command on one of two keys of this history.
func anyCall(r *rapid.T, history int) []string {
	pick := func(what string, values ...string) string { return rapid.SampledFrom(values).Draw(r, what) }
	member := func() string { return pick("member", "a", "b", "c", "d", "e", "f", "g") }
	score := func() string {
		return pick("score", "0", "1", "2", "3", "-1", "2.5", "1795159285175896", "1795159285175897", "+inf", "-inf", "x")
	}
	edge := func() string { return pick("open", "", "", "(") + score() }
	rank := func() string { return strconv.Itoa(rapid.IntRange(-4, 8).Draw(r, "rank")) }
	several := func(fields ...func() string) (texts []string) {
		for range rapid.IntRange(1, 3).Draw(r, "several") {
			for _, field := range fields {
				texts = append(texts, field())
			}
		}
		return texts
	}
	options := func(of ...string) []string { return strings.Fields(pick("options", of...)) }
	key := fmt.Sprintf("%d %s", history, pick("key", "z", "z", "z", "z", "h", "h"))
	expiry := func() string { return pick("expiry", "4102444800000", "4102444800001", "1000", "soon") }
	forms := map[string]func() []string{
		"EXISTS": nil, "DEL": nil, "PEXPIRETIME": nil, "HLEN": nil, "ZCARD": nil, "HKEYS": nil,
		"PEXPIREAT": func() []string { return []string{expiry()} },
		"HSET":      func() []string { return several(member, score) },
		"HGET":      func() []string { return []string{member()} },
		"HEXISTS":   func() []string { return []string{member()} },
		"HMGET":     func() []string { return several(member) },
		"HDEL":      func() []string { return several(member) },
		"ZADD":      func() []string { return several(score, member) },
		"Zadd":      func() []string { return append([]string{"GT"}, several(score, member)...) },
		"zadd":      func() []string { return several(score, member, member) },
		"ZREM":      func() []string { return several(member) },
		"ZSCORE":    func() []string { return []string{member()} },
		"ZMSCORE":   func() []string { return several(member) },
		"ZRANK":     func() []string { return []string{member()} },
		"ZCOUNT":    func() []string { return []string{edge(), edge()} },
		"ZRANGE": func() []string {
			return append([]string{edge(), edge()}, options("BYSCORE", "byscore rev", "BYSCORE REV WITHSCORES LIMIT 1 2", "BYSCORE LIMIT -1 2", "BYSCORE LIMIT 0 -1", "BYSCORE LIMIT 1")...)
		},
		"zrange": func() []string {
			return append([]string{rank(), rank()}, options("", "REV", "WITHSCORES", "REV WITHSCORES", "LIMIT 0 1")...)
		},
		"ZREVRANGE":        func() []string { return append([]string{rank(), rank()}, options("", "WITHSCORES")...) },
		"ZRANGEBYSCORE":    func() []string { return append([]string{edge(), edge()}, options("", "WITHSCORES", "LIMIT 1 2")...) },
		"ZREVRANGEBYSCORE": func() []string { return append([]string{edge(), edge()}, options("", "WITHSCORES", "LIMIT 0 1")...) },
		"ZREMRANGEBYSCORE": func() []string { return []string{edge(), edge()} },
		"ZREMRANGEBYRANK":  func() []string { return []string{rank(), rank()} },
	}
	names := []string{"ZADD", "ZADD", "ZADD", "HSET"} // what fills the keys comes more often
	for name := range forms {
		names = append(names, name)
	}
	name := rapid.SampledFrom(sorted(names)).Draw(r, "command")
	call := []string{name, key}
	if form := forms[name]; form != nil {
		call = append(call, form()...)
	}
	return call
}

// answer is what a script's call of a command comes to: a reply, or the kind of an error.
func answer(t *testing.T, client *redis.Client, call []string) any {
	reply, err := client.Eval(t.Context(), "return redis.call(unpack(ARGV))", nil, call).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil && strings.Contains(err.Error(), "WRONGTYPE"):
		return "error: wrong type"
	case err != nil:
		return "error"
	}
	if fields, isList := reply.([]any); isList && call[0] == "HKEYS" { // in no order
		slices.SortFunc(fields, func(a, b any) int { return strings.Compare(a.(string), b.(string)) })
	}
	return reply
}
