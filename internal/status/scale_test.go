package status_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
	"notifier/internal/status"
	"notifier/internal/status/stats"
	"notifier/internal/term"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// crowd is how many categories the scripts keep in their index.
const crowd = 100_000

// crowded fills a server as a notifier with so many busy categories would have: each has a slot, zz-burns is
// full, and the counts have as many categories as they keep. It returns what reads the status, under limits
// of categories and of groups, of which each category has its own; an empty text: groups have none.
func crowded(tb testing.TB, groups string) (status.Source, *redistest.Server) {
	tb.Helper()
	server := redistest.StartProcess(tb)
	client := server.Client(tb)
	ctx, now := context.Background(), time.Now()
	micros := func(ago time.Duration) float64 { return float64(now.Add(-ago).UnixMicro()) }
	fill := func(count int, add func(pipe redis.Pipeliner, i int)) {
		for first := 0; first < count; first += 10_000 {
			_, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for i := first; i < min(first+10_000, count); i++ {
					add(pipe, i)
				}
				return nil
			})
			kit.Check(tb, err)
		}
	}
	fill(crowd, func(pipe redis.Pipeliner, i int) {
		name, at := fmt.Sprintf("service-%06d.errors", i), micros(time.Duration(i)*time.Millisecond)
		pipe.ZAdd(ctx, "{notifier}:categories", redis.Z{Score: at, Member: name})
		pipe.ZAdd(ctx, "{notifier}:category:"+name, redis.Z{Score: at, Member: name + ":e"})
		pipe.ZAdd(ctx, "{notifier}:global", redis.Z{Score: at, Member: name + ":e"})
	})
	fill(10, func(pipe redis.Pipeliner, i int) {
		pipe.ZAdd(ctx, "{notifier}:category:zz-burns", redis.Z{Score: micros(25 * time.Minute), Member: fmt.Sprint("zz-burns:", i)})
	})
	fill(60*stats.MaxCategories, func(pipe redis.Pipeliner, i int) {
		minute, category := now.Unix()/60+1-int64(i%60), fmt.Sprintf("service-%06d.errors", i)
		if i < 60 {
			category = "zz-burns"
		}
		key := "{notifier}:counts:" + strconv.FormatInt(minute, 10)
		pipe.HSet(ctx, key, "dropped/category/"+category, 3, "sent//"+category, 1, "dropped/global/_other", 500)
	})
	// The minutes end with the next one, and begin with the one that the hour has lost when it begins.
	oldest := "{notifier}:counts:" + strconv.FormatInt(now.Unix()/60-59, 10)
	kit.Check(tb, client.HSet(ctx, oldest, "dropped/category/zz-burns", 3, "sent//zz-burns", 1).Err())
	rules := kit.Rules("1000000/30m", "10/30m", "")
	if groups != "" {
		rules.Group = kit.Rules(groups, groups, "").Global
	}
	limiter, err := ratelimit.New(client, "notifier", rules, time.Hour)
	kit.Check(tb, err)
	reader, err := stats.NewReader(client, "notifier")
	kit.Check(tb, err)
	return status.Source{Limiter: limiter, Stats: reader}, server
}

// With 100,000 categories a status costs Redis few commands, is short, and shows what burns first. A limit
// that is looked at takes three commands of one script. How long it takes is measured by
// BenchmarkStatusOfACrowd.
func TestAStatusOfACrowd(t *testing.T) {
	for groups, most := range map[string]int{"": 800, "50/30m": 1400} {
		t.Run("limit of groups "+groups, func(t *testing.T) { statusOfACrowd(t, groups, most) })
	}
}

func statusOfACrowd(t *testing.T, groups string, most int) {
	t.Helper()
	source, server := crowded(t, groups)
	_, err := source.Read(t.Context()) // which loads the scripts
	kit.Check(t, err)
	before := server.Commands(t)
	got, err := source.Read(t.Context())
	commands := server.Commands(t) - before
	kit.Check(t, err)
	body, err := json.Marshal(got)
	kit.Check(t, err)
	table := got.Table(term.Screen{})
	t.Logf("%d commands, %d bytes as JSON, %d as a table", commands, len(body), len(table))
	if commands > most || len(body) > 64<<10 || len(table) > 64<<10 {
		t.Errorf("%d commands, %d bytes as JSON, %d as a table; expected at most %d, and 65536 of each", commands, len(body), len(table), most)
	}
	if shown := len(got.Groups) + got.MoreGroups; groups != "" && (shown != 200 || len(got.Groups) > 50) || groups == "" && shown > 0 {
		t.Errorf("%d groups and %d more", len(got.Groups), got.MoreGroups)
	}
	if first := got.Categories[0]; first.Category != "zz-burns" || first.Dropped != 180 || first.NextFree == nil {
		t.Errorf("%+v is first, expected the full one with 180 drops", first)
	}
	if got.More < crowd-100 || got.More > crowd+stats.MaxCategories*60 || len(got.Slots) < 100 {
		t.Errorf("%d more categories, %d slots; expected about %d and at least 100", got.More, len(got.Slots), crowd)
	}
}

func BenchmarkStatusOfACrowd(b *testing.B) {
	source, _ := crowded(b, "50/30m")
	for b.Loop() {
		if _, err := source.Read(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
