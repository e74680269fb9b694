package survival

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"notifier/internal/ratelimit"
	"notifier/internal/wait"
	"notifier/test/kit"
)

// admission is an event that a replica was allowed to send. The clock of Redis, which is this machine's,
// showed a time between from and to when it was charged: from before it was asked for, for the first time,
// until the answer.
type admission struct {
	request  ratelimit.Request
	from, to time.Time
}

// replica asks for events as a worker does: a batch after the other, each again until there is an answer.
type replica struct {
	name    string
	limiter *ratelimit.Limiter
	group   *replicas
	log     *observer.ObservedLogs // of its healing
	kill    context.CancelFunc
	ended   chan struct{}

	mu         sync.Mutex
	admissions []admission
	answered   time.Time     // when it was last given decisions
	refused    int           // so many batches in a row without an admission
	silence    time.Duration // the longest time between two answers
	mark       time.Time     // see resumed
	resumed    time.Duration // from the mark to the first answer after it; 0: there was none yet
	lastError  error
}

// pauses are the times between two batches of a replica: under the load before a fault, and under the one
// that uses the limits up.
const (
	batchSize   = 5
	pauseSteady = 100 * time.Millisecond // four replicas: 200 events a second
	pauseFlood  = 20 * time.Millisecond
	pauseError  = 20 * time.Millisecond // before the same batch is asked for again
)

// run asks until the replica is killed.
func (r *replica) run(ctx context.Context, random *rand.Rand) {
	for number := 0; wait.For(ctx, time.Duration(r.group.pause.Load())); number++ {
		batch := r.batch(random, number)
		r.ask(ctx, batch)
	}
}

// batch makes new events: seven of ten in one category, so that this one's own limit is used up before the
// global one.
func (r *replica) batch(random *rand.Rand, number int) []ratelimit.Request {
	batch := make([]ratelimit.Request, batchSize)
	for i := range batch {
		category := "busy"
		if n := random.IntN(10); n >= 7 {
			category = []string{"team.a", "team.b", "quiet"}[n-7]
		}
		id := fmt.Sprintf("%s-%d-%d", r.name, number, i)
		batch[i] = ratelimit.Request{ID: id, Delivery: "message " + id, Category: category, Cost: 1}
	}
	return batch
}

// ask asks for a batch until there is an answer. Every second event that is admitted is recorded as sent, as
// if Slack had it.
func (r *replica) ask(ctx context.Context, batch []ratelimit.Request) {
	from := time.Now()
	var decisions []ratelimit.Decision
	for {
		var err error
		decisions, err = r.limiter.Admit(ctx, batch)
		if ctx.Err() != nil {
			return // what a killed process was answered in its last moment it cannot send
		}
		if err == nil {
			break
		}
		r.failed(err)
		if !wait.For(ctx, pauseError) {
			return
		}
	}
	for i, request := range r.note(batch, decisions, from) {
		for i%2 == 0 && r.limiter.Sent(ctx, request) != nil && wait.For(ctx, pauseError) {
		}
	}
}

// note keeps what was decided, and returns what was admitted.
func (r *replica) note(batch []ratelimit.Request, decisions []ratelimit.Decision, from time.Time) (admitted []ratelimit.Request) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, decision := range decisions {
		if decision.Verdict == ratelimit.Admitted {
			admitted = append(admitted, batch[i])
			r.admissions = append(r.admissions, admission{request: batch[i], from: from, to: now})
		}
	}
	if r.refused++; len(admitted) > 0 {
		r.refused = 0
	}
	if !r.answered.IsZero() {
		r.silence = max(r.silence, now.Sub(r.answered))
	}
	r.answered = now
	if !r.mark.IsZero() && r.resumed == 0 {
		r.resumed = now.Sub(r.mark)
	}
	return admitted
}

func (r *replica) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastError = err
}

// startReplica starts a replica, as serve has its limiter.
func startReplica(t *testing.T, f *replicas, number int, url string) *replica {
	t.Helper()
	client, guard, err := ratelimit.OpenGuarded(url, nil, 8)
	kit.Check(t, err)
	limiter, err := ratelimit.New(client, f.form.name, f.form.rules, time.Hour)
	kit.Check(t, err)
	ctx, kill := context.WithCancel(t.Context())
	r := &replica{name: fmt.Sprintf("r%d", number), limiter: limiter, group: f, kill: kill, ended: make(chan struct{})}
	var running sync.WaitGroup
	if heals {
		core, lines := observer.New(zapcore.DebugLevel)
		r.log = lines
		healer, err := ratelimit.NewHealer(limiter, guard, ratelimit.Healing{Replica: r.name, Log: zap.New(core)})
		kit.Check(t, err)
		running.Go(func() { healer.Run(ctx) })
	}
	running.Go(func() { r.run(ctx, rand.New(rand.NewPCG(uint64(number), 0))) })
	go func() {
		running.Wait()
		_ = client.Close() // what is left there is lost
		close(r.ended)
	}()
	t.Cleanup(func() {
		kill()
		<-r.ended
	})
	return r
}
