// Bento runs Bento as a library: its JetStream input, a limit, its HTTP output to Slack.
//
// The pipeline is configured as a Bento expert would. It uses a push consumer with a queue group, because the
// input fetches messages from a pull consumer one at a time. Many threads run in parallel, because each event
// waits for Redis. Each drop is logged, and each message after its post. Bento acknowledges an event once the
// output has finished with it.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/warpstreamlabs/bento/public/service"

	// The components of the pipeline.
	_ "github.com/warpstreamlabs/bento/public/components/io"
	_ "github.com/warpstreamlabs/bento/public/components/nats"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
	_ "github.com/warpstreamlabs/bento/public/components/redis"

	"notifier/bench/peers/script"
)

//go:embed pipeline.yaml
var pipeline string

const categories = 20

func main() {
	own := flag.Bool("own", false, "Bento's own rate limit instead of the script")
	global := flag.Int("global", 100, "events in a window")
	category := flag.Int("category", 10, "events of one category in a window")
	window := flag.Duration("window", 30*time.Minute, "the window")
	channels := flag.Int("channels", 1, "category-N is posted to the channel N modulo this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	for name, value := range map[string]any{"CHANNELS": *channels, "GLOBAL": *global, "CATEGORY": *category, "WINDOW_US": window.Microseconds()} {
		if err := os.Setenv(name, fmt.Sprint(value)); err != nil {
			log.Fatal(err)
		}
	}
	if err := run(ctx, *own, *global, *category, *window); err != nil && !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
}

func run(ctx context.Context, own bool, global, category int, window time.Duration) error {
	if err := service.RegisterProcessor("ask_rate_limits", service.NewConfigSpec(), newAsking); err != nil {
		return err
	}
	limit := "ask_rate_limits: {}"
	if !own {
		limit = askScript()
	}
	builder := service.NewStreamBuilder()
	if err := builder.SetYAML(strings.Replace(pipeline, "LIMIT: {}", limit, 1)); err != nil {
		return err
	}
	if own {
		labels := []string{"global"}
		for i := range categories {
			labels = append(labels, fmt.Sprintf("category_%d", i))
		}
		for i, label := range labels {
			count := category
			if i == 0 {
				count = global
			}
			limit := fmt.Sprintf(
				"label: %s\nredis: { url: %q, count: %d, interval: %s, key: %s }",
				label,
				os.Getenv("REDIS_URL"),
				count,
				window,
				label,
			)
			if err := builder.AddRateLimitYAML(limit); err != nil {
				return err
			}
		}
	}
	stream, err := builder.Build()
	if err != nil {
		return err
	}
	return stream.Run(ctx)
}

// askScript configures Bento's redis_script processor with the plain script.
func askScript() string {
	indented := "\n            " + strings.ReplaceAll(strings.TrimSpace(script.Admit), "\n", "\n            ")
	return `branch:
        processors:
          - redis_script:
              url: ${REDIS_URL}
              script: |` + strings.ReplaceAll(indented, "\n", "\n      ") + `
              keys_mapping: 'root = [ "{bento}:global", "{bento}:category:" + @category ]'
              args_mapping: 'root = [ ${GLOBAL}, ${CATEGORY}, ${WINDOW_US}, @id ]'
        result_map: 'meta admitted = this.string()'`
}

// asking checks each event against two of Bento's rate limits, without waiting. Bento's own rate limit
// processor would wait for room, here up to half an hour, and never drop an event.
type asking struct{ resources *service.Resources }

func newAsking(_ *service.ParsedConfig, resources *service.Resources) (service.Processor, error) {
	return asking{resources}, nil
}

// Process checks the category's limit first, so a busy category does not use up the global limit.
func (a asking) Process(ctx context.Context, m *service.Message) (service.MessageBatch, error) {
	category, _ := m.MetaGet("category")
	admitted := "1"
	for _, label := range []string{strings.ReplaceAll(category, "-", "_"), "global"} {
		var wait time.Duration
		var refused error
		err := a.resources.AccessRateLimit(
			ctx,
			label,
			func(limit service.RateLimit) { wait, refused = limit.Access(ctx) },
		)
		if err := errors.Join(err, refused); err != nil {
			return nil, err
		}
		if wait != 0 {
			admitted = "0"
			break
		}
	}
	m.MetaSet("admitted", admitted)
	return service.MessageBatch{m}, nil
}

// Close has nothing to do.
func (asking) Close(context.Context) error { return nil }
