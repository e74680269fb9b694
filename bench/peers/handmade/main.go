// Handmade is a worker that takes an afternoon to write: nats.go, one call to a limiter and one post to Slack
// per event.
//
// It is written as an expert in these libraries would. Many goroutines decide events, and a post that waits
// for Slack blocks none of them. The worker obeys Retry-After, acknowledges an event after its post and its
// log line, and reports progress to NATS while a post waits.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/zap"
)

const deciding = 64 // concurrent decisions

type worker struct {
	limiter  limiter
	log      *zap.Logger
	slack    string
	channels int
	free     chan struct{} // holds a token for each event that is being decided
}

type event struct {
	ID   string `json:"id"`
	Text string `json:"text"`
}

func main() {
	kind := flag.String("limiter", "script", "script, redis_rate or memory")
	global := flag.Int("global", 100, "events in a window")
	category := flag.Int("category", 10, "events of one category in a window")
	window := flag.Duration("window", 30*time.Minute, "the window")
	channels := flag.Int("channels", 1, "category-N is posted to the channel N modulo this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	config := zap.NewProductionConfig()
	config.Sampling, config.DisableCaller = nil, true // the default sampling drops most lines of a storm
	w := &worker{
		log:      zap.Must(config.Build()),
		slack:    os.Getenv("SLACK_API_URL"),
		channels: *channels,
		free:     make(chan struct{}, deciding),
	}
	var err error
	if w.limiter, err = newLimiter(*kind, limits{*global, *category, *window}); err != nil {
		log.Fatal(err)
	}
	if err := w.run(ctx); err != nil {
		log.Fatal(err)
	}
}

func (w *worker) run(ctx context.Context) error {
	connection, err := nats.Connect(os.Getenv("NATS_URL"))
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, "NOTIFY", "notifier")
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(m jetstream.Msg) {
		w.free <- struct{}{}
		go w.decide(ctx, m)
	}, jetstream.PullMaxMessages(1024))
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return connection.Flush()
}

func (w *worker) decide(ctx context.Context, m jetstream.Msg) {
	defer func() { <-w.free }()
	category := strings.TrimPrefix(m.Subject(), "notify.")
	var e event
	if err := json.Unmarshal(m.Data(), &e); err != nil {
		w.log.Error("broken event", zap.String("subject", m.Subject()), zap.Error(err))
		_ = m.Term()
		return
	}
	switch admitted, err := w.limiter.admit(ctx, category, e.ID); {
	case err != nil:
		w.log.Warn("no decision", zap.String("event_id", e.ID), zap.Error(err))
		_ = m.NakWithDelay(time.Second)
	case admitted:
		go w.post(ctx, m, category, e)
	default:
		w.log.Info("dropped", zap.String("event_id", e.ID), zap.String("category", category))
		_ = m.Ack()
	}
}

// post retries until Slack accepts the message.
func (w *worker) post(ctx context.Context, m jetstream.Msg, category string, e event) {
	n, _ := strconv.Atoi(strings.TrimPrefix(category, "category-"))
	body, _ := json.Marshal(
		map[string]string{"channel": "#channel-" + strconv.Itoa(n%w.channels), "text": e.Text},
	)
	for {
		wait := w.try(ctx, body)
		if wait == 0 {
			w.log.Info("sent", zap.String("event_id", e.ID), zap.String("category", category))
			_ = m.Ack()
			return
		}
		for until := time.Now().Add(wait); time.Now().Before(until); time.Sleep(min(time.Until(until), 5*time.Second)) {
			_ = m.InProgress()
		}
	}
}

// try posts once. It returns the wait before the next attempt, or 0 if Slack accepted the message.
func (w *worker) try(ctx context.Context, body []byte) time.Duration {
	request, err := http.NewRequestWithContext(
		ctx,
		http.MethodPost,
		w.slack+"chat.postMessage",
		bytes.NewReader(body),
	)
	if err != nil {
		return time.Second
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("Authorization", "Bearer "+os.Getenv("SLACK_BOT_TOKEN"))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return time.Second
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		OK bool `json:"ok"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err == nil && answer.OK {
		return 0
	}
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return time.Duration(max(seconds, 1)) * time.Second
}
