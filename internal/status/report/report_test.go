package report_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/outcome"
	"notifier/internal/snapshot"
	"notifier/internal/status/report"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// eachStore runs a test on a redis-server, or the Cluster named by NOTIFIER_TEST_REDIS, and on the embedded
// store.
func eachStore(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	redistest.EachStore(t, func(t *testing.T, server *redistest.Server) {
		test(t, server.URL())
	}, func(t *testing.T, embedded *miniredis.Miniredis) {
		test(t, "redis://"+embedded.Addr()+"/0")
	})
}

var middleOfSlot = time.Date(2026, 11, 20, 9, 5, 0, 0, time.UTC)

// inMiddleOfSlot starts an embedded store and stops its clock at middleOfSlot, the middle of a tally.
func inMiddleOfSlot(t *testing.T) (*miniredis.Miniredis, string) {
	t.Helper()
	store := redistest.RunEmbedded(t)
	store.SetTime(middleOfSlot)
	return store, "redis://" + store.Addr()
}

// replica is a running Reporter and its log.
type replica struct {
	*report.Reporter
	stop func() // returns after the last report
	log  *observer.ObservedLogs
}

func start(t *testing.T, url, id string, change ...func(*report.Config)) replica {
	t.Helper()
	core, log := observer.New(zapcore.InfoLevel)
	config := report.Config{
		Redis: kit.OpenRedis(t, url), Namespace: "n", Replica: id, Log: zap.New(core),
		Snapshot: func() snapshot.Snapshot {
			return snapshot.Snapshot{ID: id, Version: "v9", Time: time.Now(), Ready: true, InFlight: 3}
		},
	}
	for _, c := range change {
		c(&config)
	}
	r, err := report.New(config)
	kit.Check(t, err)
	r.Hurry()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop := func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return replica{r, stop, log}
}

func newReader(t *testing.T, url string) *report.Reader {
	t.Helper()
	reader, err := report.NewReader(kit.OpenRedis(t, url), "n")
	kit.Check(t, err)
	return reader
}

func read(t *testing.T, reader *report.Reader) (now report.Report) {
	t.Helper()
	kit.EventuallyNil(t, func() (err error) {
		now, err = reader.Read(t.Context())
		return err
	})
	return now
}

func counts(t *testing.T, reader *report.Reader) map[string]int64 {
	t.Helper()
	of := map[string]int64{}
	for _, c := range read(t, reader).Counts {
		of[strings.Join([]string{c.Category, c.Outcome, c.Reason, c.Source}, " ")] = c.N
	}
	return of
}

func wantCounts(t *testing.T, reader *report.Reader, want map[string]int64) {
	t.Helper()
	kit.EventuallyNil(t, func() error {
		if diff := cmp.Diff(want, counts(t, reader)); diff != "" {
			return fmt.Errorf("counts (-want +got):\n%s", diff)
		}
		return nil
	})
}

// ids lists the IDs of replicas. An exclamation mark follows a silent one.
func ids(replicas []report.Replica) string {
	var list []string
	for _, r := range replicas {
		mark := ""
		if r.Silent {
			mark = "!"
		}
		list = append(list, r.Snapshot.ID+mark)
	}
	return strings.Join(list, " ")
}

func wantReplicas(t *testing.T, reader *report.Reader, want string) {
	t.Helper()
	kit.Eventually(t, "the replicas are "+want, func() bool { return ids(read(t, reader).Replicas) == want })
}

func TestReplicasCountTogether(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		a, b, reader := start(t, url, "a"), start(t, url, "b"), newReader(t, url)
		for range 10 {
			a.Observe("sent", "", "errors", "ci", 2)
			b.Observe("sent", "", "errors", "ci", 1)
			b.Observe("dropped", "category", "errors", "", 3)
			b.Observe("dead", "malformed", "_other", "_other", 1)
			b.Observe("dead", "malformed", "", "", 1) // its category is invalid
		}
		wantCounts(t, reader, map[string]int64{
			"errors sent  ci": 30, "errors dropped category ": 30, "__other dead malformed __other": 10,
			" dead malformed ": 10,
		})
		now := read(t, reader)
		if covered := now.Now.Sub(now.Since); covered < 50*time.Minute || covered > time.Hour {
			t.Errorf("the counts cover %s", covered)
		}
		wantReplicas(t, reader, "a b")
		replica := read(t, reader).Replicas[0]
		if s := replica.Snapshot; s.Version != "v9" || s.InFlight != 3 || !s.Ready || replica.Silent {
			t.Errorf("%+v", replica)
		}
		b.Observe("sent", "", "late", "", 1)
		b.stop()
		if got := ids(read(t, reader).Replicas); got != "a" {
			t.Errorf("after b has stopped the replicas are %q", got)
		}
		if n := counts(t, reader)["late sent  "]; n != 1 {
			t.Errorf("its last count is %d", n)
		}
		a.stop()
		client, slot := kit.OpenRedis(t, url), report.Period(time.Now(), 10*time.Minute)
		expires := func(slot int64) time.Duration {
			return client.PTTL(t.Context(), fmt.Sprintf("{n}:tally:%d", slot)).Val()
		}
		if ttl := max(expires(slot), expires(slot-1)); ttl < time.Hour || ttl > 2*time.Hour {
			t.Errorf("the counts expire in %s, expected two hours", ttl)
		}
	})
}

// A worker that dies is silent after five seconds and gone after a minute. Its own clock does not matter: the
// store's clock is hours off.
func TestReplicaDies(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{-7 * time.Hour, 7 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			store := redistest.RunEmbedded(t)
			begun := time.Now().Add(off)
			store.SetTime(begun)
			url := "redis://" + store.Addr()
			reader := newReader(t, url)
			proxy := redistest.StartProxy(t, store.Addr())
			start(t, url, "a")
			b := start(t, "redis://"+proxy.Addr, "b")
			wantReplicas(t, reader, "a b") // connected; an earlier failed pipeline would lose the count
			b.Observe("sent", "", "errors", "", 1)
			wantCounts(t, reader, map[string]int64{"errors sent  ": 1})
			proxy.Cut()
			for _, step := range []struct {
				after time.Duration
				want  string
			}{{4 * time.Second, "a b"}, {6 * time.Second, "a b!"}, {61 * time.Second, "a"}} {
				store.SetTime(begun.Add(step.after))
				kit.Eventually(t, fmt.Sprintf("after %s the replicas are %s", step.after, step.want), func() bool {
					return ids(read(t, reader).Replicas) == step.want
				})
			}
			seen := read(t, reader).Replicas[0].Seen
			if now := read(t, reader).Now; now.Sub(seen).Abs() > 4*time.Second {
				t.Errorf("a was seen at %s, and it is %s", seen, now)
			}
		})
	}
}

// Tallies follow Redis's clock, and the reader ignores counts older than an hour.
func TestCountsGetOld(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	begun := time.Date(2026, 11, 20, 8, 59, 59, 0, time.UTC)
	store.SetTime(begun)
	url := "redis://" + store.Addr()
	a, reader := start(t, url, "a"), newReader(t, url)
	a.Observe("sent", "", "old", "", 1)
	wantCounts(t, reader, map[string]int64{"old sent  ": 1})
	store.SetTime(begun.Add(50 * time.Minute))
	wantReplicas(t, reader, "a") // its heartbeat shows that it has the new time
	a.Observe("sent", "", "new", "", 1)
	wantCounts(t, reader, map[string]int64{"old sent  ": 1, "new sent  ": 1})
	store.SetTime(begun.Add(50*time.Minute + time.Second))
	wantCounts(t, reader, map[string]int64{"new sent  ": 1})
}

// The limit on names starts anew with each tally.
func TestNextSlotHasOtherNames(t *testing.T) {
	t.Parallel()
	store, url := inMiddleOfSlot(t)
	a, reader := start(t, url, "a"), newReader(t, url)
	for i := range 100 {
		a.Observe("sent", "", fmt.Sprint("noise", i), "", 1)
	}
	a.Observe("sent", "", "errors", "", 1)
	kit.Eventually(t, "errors is not counted by name", func() bool { return counts(t, reader)["_other sent  "] == 1 })
	store.SetTime(middleOfSlot.Add(10 * time.Minute))
	kit.Eventually(t, "errors is counted by name", func() bool {
		a.Observe("sent", "", "errors", "", 1)
		return counts(t, reader)["errors sent  "] > 0
	})
}

// A lost reply never counts events twice, and an outage of Redis loses only the counts of that time.
func TestCountsReachRedisAtMostOnce(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	reader := newReader(t, server.URL())
	a := start(t, "redis://"+proxy.Addr, "a")
	wantReplicas(t, reader, "a")
	for i, fault := range []redistest.Fault{redistest.LoseReply, redistest.CutReply, redistest.Silence} {
		category := fmt.Sprint("c", i)
		proxy.Break(fault, fault)
		for range 20 {
			a.Observe("sent", "", category, "", 1)
			time.Sleep(time.Millisecond) // spreads the counts over several pipelines
		}
		a.Observe("sent", "", category+"-last", "", 1)
		kit.Eventually(t, "it counts again", func() bool {
			a.Observe("sent", "", "again", "", 1)
			before := counts(t, reader)["again sent  "]
			return kit.Within(time.Second, func() bool { return counts(t, reader)["again sent  "] > before })
		})
		if n := counts(t, reader)[category+" sent  "]; n > 20 {
			t.Errorf("%v: 20 events are counted as %d", fault, n)
		}
	}
	proxy.Cut()
	for range 1000 {
		a.Observe("sent", "", "away", "", 1)
	}
	if lines := a.log.Len(); lines > 0 {
		t.Errorf("%v", a.log.All())
	}
	time.Sleep(2 * time.Second) // longer than the timeout of a pipeline
	proxy.Heal()
	a.Observe("sent", "", "back", "", 7)
	kit.Eventually(t, "it counts again", func() bool { return counts(t, reader)["back sent  "] == 7 })
	if n := counts(t, reader)["away sent  "]; n != 0 {
		t.Errorf("%d events of the outage are counted", n)
	}
}

func TestOutageIsLoggedOnceAMinute(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	core, log := observer.New(zapcore.InfoLevel)
	r, err := report.New(report.Config{
		Redis: kit.OpenRedis(t, "redis://"+store.Addr()), Namespace: "n", Replica: "a", Log: zap.New(core),
	})
	kit.Check(t, err)
	begun, away := time.Now(), errors.New("away")
	for second := range 59 {
		r.Note(away, begun.Add(time.Duration(second)*time.Second))
	}
	r.Note(nil, begun.Add(59*time.Second))
	if log.Len() != 0 {
		t.Fatalf("a short outage is logged: %v", log.All())
	}
	for second := range 150 {
		r.Note(away, begun.Add(time.Duration(second)*time.Second))
	}
	r.Note(nil, begun.Add(150*time.Second))
	r.Note(nil, begun.Add(151*time.Second))
	var lines []string
	for _, line := range log.All() {
		lines = append(lines, fmt.Sprint(line.Message, " ", line.ContextMap()["for_s"]))
	}
	want := []string{
		"counts and heartbeats do not reach Redis 60", "counts and heartbeats do not reach Redis 120",
		"counts and heartbeats reach Redis again 150",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

func TestNamesAreBounded(t *testing.T) {
	t.Parallel()
	_, url := inMiddleOfSlot(t)
	reader := newReader(t, url)
	a := start(t, url, "a", func(c *report.Config) { c.Digest = time.Hour })
	for i := range 150 {
		a.Observe("dropped", "category", fmt.Sprintf("c%03d", i), "", 1)
	}
	for i := range 20 {
		a.Observe("sent", "", "c000", fmt.Sprintf("s%02d", i), 1)
	}
	a.Observe("sent", "", "c000", strings.Repeat("x", 1000), 1)
	a.Observe("sent", "", "tab\tbed", "", 1)
	kit.Eventually(t, "all are counted", func() bool {
		of := counts(t, reader)
		return of["_other dropped category "] == 50 && of["_other sent  "] == 1 && of["c000 sent  _other"] == 13 &&
			of["c099 dropped category "] == 1 && of["c000 sent  s07"] == 1 && len(of) == 100+8+3
	})
	drops, err := reader.Drops(t.Context(), time.Hour, report.Period(read(t, reader).Now, time.Hour))
	kit.Check(t, err)
	if len(drops) != 101 {
		t.Errorf("%d drops for the digest, expected 100 categories and one for the others", len(drops))
	}
}

// The reader skips anything that no Reporter writes, because other programs may use the same keys.
func TestJunkIsSkipped(t *testing.T) {
	eachStore(t, func(t *testing.T, url string) {
		client, ctx := kit.OpenRedis(t, url), t.Context()
		reader := newReader(t, url)
		a := start(t, url, "a")
		a.Observe("sent", "", "good", "ci", 1)
		wantCounts(t, reader, map[string]int64{"good sent  ci": 1})
		now := read(t, reader).Now
		slot := report.Period(now, 10*time.Minute)
		for field, value := range map[string]string{
			"": "1", "sent/\tx": "1", "sent/\tx\ty\tz": "1", "lost/\tx\t": "1",
			"dropped/<script>\tx\t": "1", "sent/\tnegative\t": "-5", "sent/\ttext\t": "many",
			"sent/\thuge\t": "9223372036854775807",
			"sent/\t" + strings.Repeat("x", 300) + "\t": "1",
		} {
			for i := range int64(2) { // the tally may just have ended
				kit.Check(t, client.HSet(ctx, fmt.Sprintf("{n}:tally:%d", slot+i), field, value).Err())
			}
		}
		kit.Check(t, client.Set(ctx, fmt.Sprintf("{n}:tally:%d", slot-2), "text", 0).Err())
		many := map[string]any{}
		for i := range report.MaxFields + 1 {
			many[fmt.Sprintf("sent/\tm%d\t", i)] = 1
		}
		kit.Check(t, client.HSet(ctx, fmt.Sprintf("{n}:tally:%d", slot-3), many).Err())

		valid := `{"id":"x","time":"2026-11-20T09:00:00Z"}`
		beats := map[string]string{
			"junk": "junk", "null": "null", "empty": "{}", "list": "[]", "types": `{"time":5}`,
			"negative": `{"time":"2026-11-20T09:00:00Z","held":-5}`, "foreign": valid,
			"many":                     `{"time":"2026-11-20T09:00:00Z","held":9000000000000000000}`,
			"large":                    `{"time":"2026-11-20T09:00:00Z","version":"` + strings.Repeat("x", report.MaxSnapshotBytes) + `"}`,
			strings.Repeat("long", 99): valid,
		}
		alive := []redis.Z{
			{Score: float64(now.UnixMilli()), Member: "expired"}, {Score: float64(now.UnixMilli()), Member: "hash"},
			{Score: 1e18, Member: "future"}, {Score: -1, Member: "past"},
		}
		for id, content := range beats {
			alive = append(alive, redis.Z{Score: float64(now.UnixMilli() + 3000), Member: id})
			kit.Check(t, client.Set(ctx, "{n}:replica:"+id, content, 0).Err())
		}
		kit.Check(t, client.Set(ctx, "{n}:replica:future", valid, 0).Err())
		kit.Check(t, client.HSet(ctx, "{n}:replica:hash", "a", "b").Err())
		kit.Check(t, client.ZAdd(ctx, "{n}:alive", alive...).Err())

		after := read(t, reader)
		if got := ids(after.Replicas); got != "a foreign" || after.Skipped != 1 { // the ID is in the key
			t.Errorf("replicas %q, %d slots skipped", got, after.Skipped)
		}
		if after.Replicas[1].Seen.After(after.Now) {
			t.Errorf("foreign was seen at %s, and it is %s", after.Replicas[1].Seen, after.Now)
		}
		wantCounts(t, reader, map[string]int64{"good sent  ci": 1})

		for _, key := range []string{"{n}:alive", fmt.Sprintf("{n}:tally:%d", slot)} {
			kit.Check(t, client.Del(ctx, key).Err())
			kit.Check(t, client.Set(ctx, key, "text", 0).Err())
		}
		if got := read(t, reader); len(got.Replicas) != 0 {
			t.Errorf("replicas %q without a set of them", ids(got.Replicas))
		}
	})
}

// One worker must not fill the hash that all workers share, even if a publisher gives each event its own
// source.
func TestNamesOfAReplicaStayFarBelowTheReadersBound(t *testing.T) {
	t.Parallel()
	_, url := inMiddleOfSlot(t)
	a, reader := start(t, url, "a"), newReader(t, url)
	for i := range 200 {
		for j := range 20 {
			category, source := fmt.Sprint("c", i), fmt.Sprint("build-", i, "-", j)
			a.Observe("sent", "", category, source, 1)
			a.Observe("dropped", "global", category, source, 1)
		}
	}
	var got report.Report
	kit.Eventually(t, "all are counted", func() bool {
		got = read(t, reader)
		sum := int64(0)
		for _, c := range got.Counts {
			sum += c.N
		}
		return sum == 2*200*20
	})
	if n := len(got.Counts); n > report.MaxFields/15 {
		t.Errorf("%d names in a slot, expected room for 15 replicas in %d", n, report.MaxFields)
	}
}

// The clock of a worker can be hours off. The reader converts its times to Redis's clock and bounds its
// lists.
func TestClocksOfReplicas(t *testing.T) {
	t.Parallel()
	url, ahead := "redis://"+redistest.RunEmbedded(t).Addr(), 3*time.Hour
	start(t, url, "a", func(c *report.Config) {
		c.Snapshot = func() snapshot.Snapshot {
			s := snapshot.Snapshot{Time: time.Now().Add(ahead), Waits: make([]snapshot.Wait, report.MaxEntries+1)}
			s.Waits[0].Since = s.Time.Add(-4 * time.Minute)
			return s
		}
	})
	reader := newReader(t, url)
	kit.EventuallyNil(t, func() error {
		now := read(t, reader)
		if len(now.Replicas) != 1 {
			return fmt.Errorf("replicas %q", ids(now.Replicas))
		}
		waits := now.Replicas[0].Snapshot.Waits
		if age := now.Now.Sub(waits[0].Since).Round(time.Minute); age != 4*time.Minute || len(waits) != report.MaxEntries {
			return fmt.Errorf("%d waits, the first for %s", len(waits), age)
		}
		return nil
	})
}

func TestReplicasAreBounded(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	url := "redis://" + store.Addr()
	client, reader := kit.OpenRedis(t, url), newReader(t, url)
	now, pipe := time.Now(), client.Pipeline()
	for i := range report.MaxReplicas + 7 {
		id := fmt.Sprintf("r%03d", i)
		pipe.Set(t.Context(), "{n}:replica:"+id, `{"time":"2026-11-20T09:00:00Z"}`, 0)
		pipe.ZAdd(t.Context(), "{n}:alive", redis.Z{Score: float64(now.UnixMilli() + int64(i)), Member: id})
	}
	_, err := pipe.Exec(t.Context())
	kit.Check(t, err)
	got := read(t, reader)
	if len(got.Replicas) != report.MaxReplicas || got.More != 7 || got.Replicas[0].Snapshot.ID != "r007" {
		t.Errorf("%d replicas, %d more", len(got.Replicas), got.More)
	}
}

// A snapshot that is too long loses its lists, but the worker stays visible.
func TestLongSnapshotIsShortened(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	url := "redis://" + store.Addr()
	start(t, url, "a", func(c *report.Config) {
		c.Snapshot = func() snapshot.Snapshot {
			channel := snapshot.Channel{Name: strings.Repeat("x", 80)}
			s := snapshot.Snapshot{ID: "a", Time: time.Now(), Held: 5}
			for range 1000 {
				s.Channels = append(s.Channels, channel)
			}
			return s
		}
	})
	reader := newReader(t, url)
	wantReplicas(t, reader, "a")
	if s := read(t, reader).Replicas[0].Snapshot; s.Held != 5 || len(s.Channels) != 0 {
		t.Errorf("held %d, %d channels", s.Held, len(s.Channels))
	}
}

func TestDigestCountsLimitsAndMutes(t *testing.T) {
	t.Parallel()
	store := redistest.RunEmbedded(t)
	store.SetTime(time.Date(2026, 11, 20, 9, 10, 0, 0, time.UTC))
	url := "redis://" + store.Addr()
	reader := newReader(t, url)
	a := start(t, url, "a", func(c *report.Config) { c.Digest = 90 * time.Second })
	for _, reason := range []string{"global", "group", "category", "muted", "duplicate", "expired", "reply"} {
		a.Observe("dropped", reason, "errors", "ci", 2)
	}
	a.Observe("dead", "malformed", "errors", "", 1)
	a.Observe("sent", "", "errors", "", 1)
	a.stop()
	now := read(t, reader).Now
	drops, err := reader.Drops(t.Context(), 90*time.Second, report.Period(now, 90*time.Second))
	kit.Check(t, err)
	got := map[report.Drop]bool{}
	for _, d := range drops {
		got[d] = true
	}
	want := map[report.Drop]bool{}
	for _, reason := range append(outcome.LimitReasons(), outcome.Muted) {
		want[report.Drop{Reason: reason, Category: "errors", N: 2}] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	key := fmt.Sprintf("{n}:digest:90:%d", report.Period(now, 90*time.Second))
	if fields, _ := store.HKeys(key); len(fields) != len(want) {
		t.Errorf("fields %q", fields)
	}
	if ttl := store.TTL(key); ttl <= 0 || ttl > 270*time.Second {
		t.Errorf("the drops expire in %s, expected three intervals", ttl)
	}
}

// If Redis fails, Read returns an error instead of a report without workers.
func TestReadWithoutRedis(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	reader := newReader(t, "redis://"+proxy.Addr)
	start(t, server.URL(), "a")
	wantReplicas(t, reader, "a")
	for range 5 { // the faults can hit any round trip
		proxy.Break(redistest.LoseReply, redistest.LoseReply, redistest.LoseReply)
		if now, err := reader.Read(t.Context()); err == nil && len(now.Replicas) != 1 {
			t.Errorf("no error, and replicas %q", ids(now.Replicas))
		}
	}
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := reader.Read(ctx); err == nil || report.Trouble(err.Error()) != report.Unreachable {
		t.Errorf("%v", err)
	}
}

func TestReaderMayBeDenied(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	server.SetUser(t, "word", "some", "~*", "+@all", "-get")
	start(t, server.URL(), "a")
	wantReplicas(t, newReader(t, server.URL()), "a")
	_, err := newReader(t, "redis://some:word@"+server.Addr).Read(t.Context())
	if err == nil || report.Trouble(err.Error()) != report.Denied {
		t.Errorf("%v, expected that GET is denied", err)
	}
}

func TestRedisRefusesWrites(t *testing.T) {
	t.Parallel()
	server := redistest.StartProcess(t)
	admin, reader := server.Client(t), newReader(t, server.URL())
	want := func(kind string) {
		t.Helper()
		err := reader.RefusesWrites(t.Context())
		if kind == "" && err != nil || kind != "" && (err == nil || report.Trouble(err.Error()) != kind) {
			t.Errorf("%v, expected %q", err, kind)
		}
	}
	set := func(name, value string) { t.Helper(); kit.Check(t, admin.ConfigSet(t.Context(), name, value).Err()) }
	want("")
	set("maxmemory", "1")
	want(report.Full)
	set("maxmemory", "0")
	set("min-replicas-to-write", "3")
	want(report.NoReplicas)
	set("min-replicas-to-write", "0")
	kit.Check(t, admin.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
	want(report.ReadOnly)
}

func TestTrouble(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"MISCONF Redis is configured to save RDB snapshots, but ...":       report.NotSaving,
		"LOADING Redis is loading the dataset in memory":                   report.Loading,
		"NOPERM this user has no permissions to run the 'evalsha' command": report.Denied,
		"dial tcp: lookup LOOM on 127.0.0.1: no host":                      report.Unreachable,
	} {
		if got := report.Trouble(text); got != want {
			t.Errorf("%q is %s, expected %s", text, got, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, config := range []report.Config{
		{Namespace: "{", Replica: "a"}, {Namespace: "n"}, {Namespace: "n", Replica: "a", Digest: 1},
	} {
		if _, err := report.New(config); err == nil {
			t.Errorf("%+v: no error", config)
		}
	}
}
