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

// admission is an event that a worker was allowed to send. It was charged between from, before the first
// request for it, and to, after the reply. Redis shares this machine's clock.
type admission struct {
	request  ratelimit.Request
	from, to time.Time
}

// replica is the limiter of one worker. It requests one batch after another, and repeats each until it gets a
// reply.
type replica struct {
	name    string
	limiter *ratelimit.Limiter
	group   *replicas
	log     *observer.ObservedLogs // of the healer
	kill    context.CancelFunc
	ended   chan struct{}

	mu         sync.Mutex
	admissions []admission
	answered   time.Time     // last reply with decisions
	refused    int           // consecutive batches without an admission
	silence    time.Duration // longest time between two replies
	mark       time.Time     // see resumed
	resumed    time.Duration // from the mark to the first reply after it, or zero
	lastError  error
}

// A worker pauses between two batches: pauseSteady before a fault, pauseFlood to use up the limits.
const (
	batchSize   = 5
	pauseSteady = 100 * time.Millisecond // four workers: 200 events a second
	pauseFlood  = 20 * time.Millisecond
	pauseError  = 20 * time.Millisecond // before a call is repeated
)

// run requests batches until the worker is killed.
func (r *replica) run(ctx context.Context, random *rand.Rand) {
	for number := 0; wait.For(ctx, time.Duration(r.group.pause.Load())); number++ {
		batch := r.batch(random, number)
		r.ask(ctx, batch)
	}
}

// batch returns new events, seven of ten in one category, so that its limit is used up before the global one.
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

// ask repeats the request for a batch until it gets a reply, then records every second admitted event as
// sent.
func (r *replica) ask(ctx context.Context, batch []ratelimit.Request) {
	from := time.Now()
	var decisions []ratelimit.Decision
	for {
		var err error
		decisions, err = r.limiter.Admit(ctx, batch)
		if ctx.Err() != nil {
			return // a killed worker cannot send the events of its last reply
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

// note records the decisions and returns the admitted requests.
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

// startReplica starts a replica with a limiter that is set up as in notifier serve.
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
		_ = client.Close() // no write is pending
		close(r.ended)
	}()
	t.Cleanup(func() {
		kill()
		<-r.ended
	})
	return r
}
