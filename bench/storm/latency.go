package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"notifier/bench/internal/rig"
)

// The latency of an event from publication to Slack on an idle worker is compared with a loop that receives
// the event from NATS and makes one HTTP request.
const (
	latencyEvents = 300
	latencyPause  = 20 * time.Millisecond // between events, so that the worker has finished the previous one
	mostLatency   = 1.4                   // relative to the loop
	slackURL      = "STORM_SLACK_URL"     // environment variable for roleLoop
)

// serveLoop posts and acknowledges events until ctx is done.
func serveLoop(ctx context.Context) error {
	post := func(text string) error {
		form := url.Values{"channel": {"#storm"}, "text": {text}}
		request, err := http.NewRequestWithContext(
			ctx,
			http.MethodPost,
			os.Getenv(slackURL)+"chat.postMessage",
			strings.NewReader(form.Encode()),
		)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Header.Set("Authorization", "Bearer xoxb-storm")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	return consume(ctx, "NOTIFY", "notifier", func(message jetstream.Msg) {
		if err := errors.Join(post(string(message.Data())), message.Ack()); err != nil {
			fmt.Fprintln(os.Stderr, "storm: loop:", err)
		}
	})
}

// latencies holds the times from publication to Slack in milliseconds, in ascending order.
type latencies struct{ loop, worker []float64 }

func measureLatency(ctx context.Context) (measured latencies, err error) {
	b := &bench{form: formJSON}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.setUp(ctx); err != nil {
		return latencies{}, err
	}
	if err := b.create(ctx, "NOTIFY", "notifier", "notify"); err != nil {
		return latencies{}, err
	}
	loop, err := rig.Role(roleLoop, natsURL+"="+b.NATSURL, slackURL+"="+b.Slack.APIURL())
	if err != nil {
		return latencies{}, err
	}
	if err := loop.Start(); err != nil {
		return latencies{}, err
	}
	if measured.loop, err = b.publishOneByOne(ctx); err != nil {
		return latencies{}, err
	}
	_ = loop.Process.Signal(syscall.SIGTERM) // Wait returns the exit status
	if err := loop.Wait(); err != nil {
		return latencies{}, err
	}
	f, err := b.startFleet(
		ctx,
		"latency",
		1,
		[]string{"NOTIFY"},
		"LIMIT_GLOBAL=100000/30m",
		"LIMIT_CATEGORY=100000/30m",
	)
	defer func() { err = errors.Join(err, f.stop()) }()
	if err != nil {
		return latencies{}, err
	}
	measured.worker, err = b.publishOneByOne(ctx)
	if err != nil {
		return latencies{}, err
	}
	fmt.Println(measured.table() + "\n" + targetTable(measured.targets()))
	return measured, nil
}

// publishOneByOne publishes each event after the previous one has arrived in Slack, and returns the sorted
// latencies in milliseconds.
func (b *bench) publishOneByOne(ctx context.Context) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	if err := b.until(
		ctx,
		[]string{"NOTIFY"},
		func(info *jetstream.ConsumerInfo) bool { return info.NumWaiting > 0 },
	); err != nil {
		return nil, err
	}
	var took []float64
	before := b.Slack.Accepted()
	for i := range latencyEvents {
		began := time.Now()
		if err := b.JS.Conn().
			Publish(fmt.Sprintf("notify.category-%d", i%categories), b.form.payload(before+i)); err != nil {
			return nil, err
		}
		if err := b.Slack.Wait(ctx, func(accepted int) bool { return accepted > before+i }); err != nil {
			return nil, err
		}
		took = append(took, float64(time.Since(began).Microseconds())/1000)
		time.Sleep(latencyPause)
	}
	slices.Sort(took)
	return took, nil
}

// at returns a quantile of sorted times. A share of 0.5 is the median.
func at(sorted []float64, share float64) float64 { return sorted[int(float64(len(sorted)-1)*share)] }

// table returns the measurements in Markdown.
func (l latencies) table() string {
	row := func(name string, share float64) string {
		return fmt.Sprintf("| %s | %.2f | %.2f |\n", name, at(l.loop, share), at(l.worker, share))
	}
	const title = "%d events, one after the other, in milliseconds from publication to Slack:\n\n"
	return fmt.Sprintf(title, len(l.worker)) + "| | NATS and one HTTP request | notifier |\n| --- | --- | --- |\n" +
		row("half of the events", 0.5) + row("99 of 100", 0.99)
}

// targets returns the targets for a single event.
func (l latencies) targets() []target {
	ratio := at(l.worker, 0.5) / at(l.loop, 0.5)
	name := "a single event's way to Slack, times that of a loop that makes one HTTP request"
	return []target{target{name: name, most: true}.met([]float64{ratio}, mostLatency, "%.2f")}
}
