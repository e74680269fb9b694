package digest

import (
	"embed"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/test/kit"
)

// The scripts of release v0.1.0, whose replicas run beside those of this one during an upgrade.
//
//go:embed testdata/v0.1.0
var before embed.FS

// releases are replicas of v0.1.0 and of this release on one store. They post, fail and die in any order.
type releases struct {
	*world
	now                         *Digest
	take, begins, ended         *redis.Script // of v0.1.0
	all                         []string      // its keys
	random                      *rand.Rand
	dropped, reported, doubtful int64
}

// How an attempt ends.
const (
	succeeds   = iota
	fails      // Slack refuses it
	diesBefore // before its post has begun
	diesAfter
	ends
)

// Replicas of both releases report each drop once, or say that it is in doubt, and respect each other's
// lease.
func TestReplicasOfTheReleaseBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, w *world) {
		script := func(name string) *redis.Script {
			text, err := before.ReadFile("testdata/v0.1.0/digest_" + name + ".lua")
			kit.Check(t, err)
			return redis.NewScript(string(text))
		}
		r := &releases{
			world: w, now: w.digest(true, nil), take: script("take"), begins: script("begin"), ended: script("done"),
			all:    []string{w.keys.Lease(), w.keys.State(), w.keys.Pending(), w.keys.Posting(), w.keys.Message()},
			random: rand.New(rand.NewPCG(1, 2)),
		}
		const rounds = 120
		for round := range rounds {
			end := r.random.IntN(ends)
			if round > rounds-5 {
				end = succeeds
			}
			r.dropSome()
			w.old()
			if r.random.IntN(2) == 0 {
				r.attemptBefore(fmt.Sprint("token", round), end)
			} else {
				r.attemptNow(end)
			}
			r.wait()
		}
		if left, _ := decodeDrops(w.redis.HGetAll(t.Context(), w.keys.Pending()).Val()); r.reported+r.doubtful+total(left) != r.dropped {
			t.Errorf("of %d drops %d are reported, %d in doubt and %d pending", r.dropped, r.reported, r.doubtful, total(left))
		}
		if r.doubtful == 0 || r.reported == 0 {
			t.Errorf("%d reported, %d in doubt: this shows too little", r.reported, r.doubtful)
		}
	})
}

func (r *releases) dropSome() {
	r.t.Helper()
	field := []string{"category 10/30m errors", "global 100/30m deploys"}[r.random.IntN(2)]
	n := int64(1 + r.random.IntN(9))
	kit.Check(r.t, r.redis.HIncrBy(r.t.Context(), r.keys.Pending(), field, n).Err())
	r.dropped += n
}

// wait checks that replicas of both releases wait after a post, or after a failure, of either.
func (r *releases) wait() {
	r.t.Helper()
	if r.redis.HExists(r.t.Context(), r.keys.Posting(), "begun").Val() || !r.redis.HExists(r.t.Context(), r.keys.State(), "next").Val() {
		return // one has died
	}
	kit.Check(r.t, r.redis.HSet(r.t.Context(), r.keys.Pending(), "since", 1).Err())
	if verdict, _ := r.takeBefore("before"); verdict != 0 {
		r.t.Errorf("v0.1.0 does not wait: %d", verdict)
	}
	a := r.acquire(r.now)
	if wait := r.now.store.wait(a.snapshot, interval); wait < 50*time.Second {
		r.t.Errorf("this release waits %s, want a minute", wait)
	}
	r.now.release(r.t.Context(), a.token)
}

// expire has the lease of a dead replica expire, after replicas of both releases have waited for it.
func (r *releases) expire() {
	r.t.Helper()
	if acquired, err := r.now.store.acquire(r.t.Context(), "now", time.Minute); err != nil || acquired {
		r.t.Errorf("this release takes the lease of a replica that may be posting: %t, %v", acquired, err)
	}
	if verdict, _ := r.takeBefore("before"); verdict != 0 {
		r.t.Errorf("v0.1.0 takes the lease of a replica that may be posting: %d", verdict)
	}
	kit.Check(r.t, r.redis.Del(r.t.Context(), r.keys.Lease()).Err())
}

func (r *releases) takeBefore(token string) (verdict, drops int64) {
	r.t.Helper()
	minute, hour := microseconds(time.Minute), microseconds(time.Hour)
	reply, err := r.take.Run(r.t.Context(), r.redis, r.all, token, minute, microseconds(interval), hour, "0").Slice()
	kit.Check(r.t, err)
	fields := map[string]string{}
	for list := reply[4].([]any); len(list) > 0; list = list[2:] {
		fields[list[0].(string)] = list[1].(string)
	}
	posting, _ := decodeDrops(fields)
	return reply[0].(int64), total(posting)
}

// attemptBefore is what a replica of v0.1.0 does.
func (r *releases) attemptBefore(token string, end int) {
	r.t.Helper()
	verdict, drops := r.takeBefore(token)
	done := func(reported string) {
		r.t.Helper()
		recorded, err := r.ended.Run(r.t.Context(), r.redis, r.all, token, reported, microseconds(time.Minute), "0", "").Int64()
		if err != nil || recorded != 1 {
			r.t.Fatalf("v0.1.0 has lost its lease: %d, %v", recorded, err)
		}
	}
	if verdict == 2 {
		r.doubtful += drops
		done("1")
		return
	}
	if verdict != 1 {
		r.t.Fatalf("v0.1.0 does not get the lease: %d", verdict)
	}
	if end != diesBefore {
		begun, err := r.begins.Run(r.t.Context(), r.redis, []string{r.keys.Lease(), r.keys.Posting()}, token).Int64()
		if err != nil || begun != 1 {
			r.t.Fatalf("v0.1.0 may not begin: %d, %v", begun, err)
		}
	}
	r.dropSome()
	switch end {
	case succeeds:
		r.reported += drops
		done("1")
	case fails:
		done("0")
	default:
		r.expire()
	}
}

// attemptNow is what a replica of this release does.
func (r *releases) attemptNow(end int) {
	r.t.Helper()
	a := r.acquire(r.now)
	if a.died {
		r.doubtful += a.doubtful
		r.now.finish(r.t.Context(), a, result{reported: true, wait: time.Minute})
		r.now.release(r.t.Context(), a.token)
		return
	}
	if wait := r.now.store.wait(a.snapshot, interval); wait > 0 {
		r.t.Fatalf("this release waits %s", wait)
	}
	if end != diesBefore {
		r.begin(r.now, a)
	}
	r.dropSome()
	switch end {
	case succeeds:
		r.reported += total(a.drops)
		r.now.finish(r.t.Context(), a, result{reported: true, wait: time.Minute})
	case fails:
		r.now.finish(r.t.Context(), a, result{wait: time.Minute})
	default:
		r.expire()
	}
	r.now.release(r.t.Context(), a.token)
}
