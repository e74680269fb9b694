package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"notifier/internal/ratelimit"
)

// Times differ from host to host and from hour to hour, so regressions are measured as ratios within one run:
// the worker's processor time relative to a consumer that only acknowledges, and the time of the admission
// script relative to an empty script.
const (
	regressRounds   = 5
	regressEvents   = 100_000
	decisionBatch   = 64
	decisionBatches = 300
	bareCalls       = 5_000
	worthAWarning   = 1.25 // relative to the recorded ratio
	recordedPath    = "bench/storm/recorded.json"
)

// ratios holds medians of regressRounds rounds.
type ratios struct {
	CPU    float64 `json:"processor_time_per_event"` // relative to the bare consumer
	Script float64 `json:"script_time_per_decision"` // relative to one call of an empty script
}

//go:embed recorded.json
var recordedRatios []byte

// reportRegressions prints the ratios beside the recorded ones and warns if one is much worse. A regression
// is not an error.
func reportRegressions(ctx context.Context) error {
	var recorded ratios
	if err := json.Unmarshal(recordedRatios, &recorded); err != nil {
		return fmt.Errorf("%s: %w", recordedPath, err)
	}
	now, err := measureRatios(ctx)
	if err != nil {
		return err
	}
	fmt.Print(now.besides(recorded))
	return nil
}

// besides compares the ratios with recorded ones, one per line.
func (r ratios) besides(recorded ratios) string {
	line := func(name, beside string, now, then float64) string {
		text := fmt.Sprintf("%s: %.2f times that of %s, recorded %.2f", name, now, beside, then)
		if now > worthAWarning*then {
			text = fmt.Sprintf("WARNING: %s; this is %.2f times as much", text, now/then)
		}
		return text + "\n"
	}
	return line("processor time per event", "a consumer that only acknowledges", r.CPU, recorded.CPU) +
		line("script time per refused decision", "a call of a script that does nothing", r.Script, recorded.Script)
}

// record stores the ratios for comparison with later runs.
func (r ratios) record() error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(recordedPath, append(text, '\n'), 0o644)
}

func measureRatios(ctx context.Context) (measured ratios, err error) {
	b := &bench{form: formJSON, events: regressEvents}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return ratios{}, err
	}
	storms, err := b.storms(ctx, regressRounds)
	if err != nil {
		return ratios{}, err
	}
	client, err := b.redisClient()
	if err != nil {
		return ratios{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	var scripts []float64
	for i := range regressRounds {
		decision, err := scriptTime(
			ctx,
			client,
			decisionBatches*decisionBatch,
			func() error { return refuse(ctx, client, fmt.Sprint("script-", i)) },
		)
		if err != nil {
			return ratios{}, err
		}
		bare, err := scriptTime(ctx, client, bareCalls, func() error { return callNothing(ctx, client) })
		if err != nil {
			return ratios{}, err
		}
		scripts = append(scripts, decision/bare)
	}
	return ratios{CPU: median(each(storms.all, round.cpu)), Script: median(scripts)}, nil
}

// refuse requests admission for batches of events under the default limits, which refuse nearly all of them.
func refuse(ctx context.Context, client *redis.Client, namespace string) error {
	global, err := ratelimit.ParseLimit("100/30m")
	if err != nil {
		return err
	}
	category, err := ratelimit.ParseLimit("10/30m")
	if err != nil {
		return err
	}
	limiter, err := ratelimit.New(
		client,
		namespace,
		ratelimit.Rules{Global: global, Category: category},
		24*time.Hour,
	)
	if err != nil {
		return err
	}
	batch := make([]ratelimit.Request, decisionBatch)
	for n := range decisionBatches {
		for i := range batch {
			id := strconv.Itoa(n*decisionBatch + i)
			batch[i] = ratelimit.Request{
				ID:       id,
				Delivery: id,
				Category: fmt.Sprintf("category-%d", i%categories),
				Cost:     1,
			}
		}
		if _, err := limiter.Admit(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

func callNothing(ctx context.Context, client *redis.Client) error {
	nothing := redis.NewScript("return 1")
	for range bareCalls {
		if err := nothing.Run(ctx, client, nil).Err(); err != nil {
			return err
		}
	}
	return nil
}

// scriptTime calls do and returns the time that Redis spent in scripts meanwhile, divided by n. The time is
// in microseconds and comes from Redis's own statistics.
func scriptTime(ctx context.Context, client *redis.Client, n int, do func() error) (float64, error) {
	_, before, err := scriptStatistics(ctx, client)
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	_, after, err := scriptStatistics(ctx, client)
	return float64(after-before) / float64(n), err
}
