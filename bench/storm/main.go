//go:build !production

// Storm measures what an error storm costs: how fast one worker drains a stream of events that its limits refuse, a log
// line for each, compared with a consumer that does nothing but acknowledge.
//
//	go run ./bench/storm [-events 200000] [-rounds 3]
//	go run ./bench/storm -backlog
//
// With -backlog it measures the worker's memory instead; see backlog.go.
//
// The NATS server, the Redis server, the worker (the real binary, its log written to a file) and the bare consumer are
// processes of their own. Each round fills a stream with events of 100 bytes over 20 categories, has the bare consumer
// drain it, fills another one, and has the worker drain that under the default limits. Both are timed alike from
// outside, from the first delivery to the last acknowledgement as the server counts them. What is printed is events per
// second, the ratio of each round and their median, and the worker's peak memory as the kernel has counted it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
)

// The roles that this program takes in processes of its own.
const (
	roleNATS = "nats" // a NATS server; prints its URL
	roleBare = "bare" // a consumer that only acknowledges
)

const (
	payloadBytes = 100
	categories   = 20
	natsURL      = "STORM_NATS_URL" // environment variable for roleBare
	runDeadline  = 2 * time.Minute  // for one drain
	pollEvery    = 2 * time.Millisecond
	// bareInFlight is as many messages as the worker holds at most.
	bareInFlight = 2048
)

func main() {
	events := flag.Int("events", 200_000, "events of each drain")
	backlog := flag.Bool("backlog", false, "measure the memory that backlogs of large messages take")
	rounds := flag.Int("rounds", 3, "rounds; the median counts")
	role := flag.String("role", "", "for this program's own use")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch *role {
	case roleNATS:
		err = serveNATS(ctx)
	case roleBare:
		err = drainBare(ctx)
	case "":
		if *backlog {
			err = measureBacklogs(ctx)
			break
		}
		err = measure(ctx, *events, *rounds)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "storm:", err)
		os.Exit(1)
	}
}

func serveNATS(ctx context.Context) error {
	server, err := devstack.StartNATS("127.0.0.1:0", "")
	if err != nil {
		return err
	}
	fmt.Println(server.URL())
	<-ctx.Done()
	return server.Close()
}

func drainBare(ctx context.Context) error {
	connection, err := nats.Connect(os.Getenv(natsURL))
	if err != nil {
		return err
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		return err
	}
	consumer, err := js.Consumer(ctx, "BARE", "bare")
	if err != nil {
		return err
	}
	consuming, err := consumer.Consume(func(message jetstream.Msg) { _ = message.Ack() }, jetstream.PullMaxMessages(bareInFlight))
	if err != nil {
		return err
	}
	<-ctx.Done()
	consuming.Stop()
	return connection.Flush()
}

// bench is what one run has set up.
type bench struct {
	folder   string // scratch, removed at the end
	worker   string // the notifier binary
	nats     *exec.Cmd
	natsURL  string
	redis    *exec.Cmd
	redisURL string
	slack    *devstack.Slack
	js       jetstream.JetStream
	events   int
}

func measure(ctx context.Context, events, rounds int) (err error) {
	b := &bench{events: events}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.setUp(ctx); err != nil {
		return err
	}
	var ratios []float64
	var peak int64
	const row = "%5d   %11.0f events/s %5.1f µs CPU each   %9.0f events/s %5.1f µs CPU each   %.2f   %5.1f MiB\n"
	fmt.Printf("%d events of %d bytes over %d categories; limits 100/30m and 10/30m\n\n", events, payloadBytes, categories)
	fmt.Printf("round   only acknowledging                    notifier                            ratio  its peak memory\n")
	for round := 1; round <= rounds; round++ {
		bare, err := b.drainBare(ctx)
		if err != nil {
			return fmt.Errorf("bare consumer: %w", err)
		}
		worker, err := b.drainWorker(ctx, round)
		if err != nil {
			return fmt.Errorf("worker: %w", err)
		}
		ratio := worker.perSecond / bare.perSecond
		ratios, peak = append(ratios, ratio), max(peak, worker.peak)
		fmt.Printf(row, round, bare.perSecond, b.cpuEach(bare), worker.perSecond, b.cpuEach(worker), ratio, mebibytes(worker.peak))
	}
	slices.Sort(ratios)
	fmt.Printf("\nmedian ratio %.2f (at least 0.80 is asked), peak memory %.1f MiB (under 64 MiB is asked)\n", ratios[len(ratios)/2], mebibytes(peak))
	return nil
}

// drained is how a consumer drained its stream.
type drained struct {
	perSecond float64       // events
	cpu       time.Duration // of its process, start and end included
	peak      int64         // memory of its process in bytes
}

// cpuEach is the processor time per event in microseconds.
func (b *bench) cpuEach(d drained) float64 {
	return float64(d.cpu.Microseconds()) / float64(b.events)
}

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func (b *bench) setUp(ctx context.Context) error {
	var err error
	if b.folder, err = os.MkdirTemp("", "notifier-storm-"); err != nil {
		return err
	}
	b.worker = filepath.Join(b.folder, "notifier")
	build := exec.CommandContext(ctx, "go", "build", "-tags", "production", "-o", b.worker, "./cmd/notifier")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("build the worker (from the top of the repository): %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b.nats = exec.Command(self, "-role", roleNATS)
	b.nats.Stderr = os.Stderr
	out, err := b.nats.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.nats.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("NATS server: %w", err)
	}
	b.natsURL = strings.TrimSpace(line)

	port := devstack.FreeAddr("127.0.0.1:0")
	b.redisURL = "redis://" + port + "/0"
	b.redis = exec.Command("redis-server", "--port", port[strings.LastIndex(port, ":")+1:], "--bind", "127.0.0.1", "--save", "", "--dir", b.folder)
	if err := b.redis.Start(); err != nil {
		return fmt.Errorf("redis-server (Debian: apt-get install redis-server): %w", err)
	}
	if b.slack, err = devstack.StartSlack("127.0.0.1:0"); err != nil {
		return err
	}
	connection, err := nats.Connect(b.natsURL)
	if err != nil {
		return err
	}
	b.js, err = jetstream.New(connection)
	return err
}

// close ends what was started. The servers hold nothing that is worth a graceful end.
func (b *bench) close() error {
	if b.js != nil {
		b.js.Conn().Close()
	}
	var errs []error
	if b.slack != nil {
		errs = append(errs, b.slack.Close())
	}
	for _, server := range []*exec.Cmd{b.redis, b.nats} {
		if server != nil && server.Process != nil {
			_ = server.Process.Signal(syscall.SIGTERM) // it may have ended by itself
			_ = server.Wait()
		}
	}
	return errors.Join(append(errs, os.RemoveAll(b.folder))...)
}

// create makes an empty stream as the worker would, with a consumer as the worker would.
func (b *bench) create(ctx context.Context, stream, consumer, subject string) error {
	if err := b.js.DeleteStream(ctx, stream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	_, err := b.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: stream, Subjects: []string{subject + ".>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return err
	}
	_, err = b.js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
		Durable: consumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 20 * time.Second, MaxDeliver: -1,
		MaxAckPending: 32_768, FilterSubject: subject + ".>",
	})
	return err
}

// fill makes such a stream full of events.
func (b *bench) fill(ctx context.Context, stream, consumer, subject string) error {
	if err := b.create(ctx, stream, consumer, subject); err != nil {
		return err
	}
	payload := []byte(strings.Repeat("x", payloadBytes))
	for i := range b.events {
		if _, err := b.js.PublishAsync(fmt.Sprintf("%s.category-%d", subject, i%categories), payload); err != nil {
			return err
		}
	}
	select {
	case <-b.js.PublishAsyncComplete():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(runDeadline):
		return errors.New("the stream could not be filled in time")
	}
}

func (b *bench) drainBare(ctx context.Context) (drained, error) {
	if err := b.fill(ctx, "BARE", "bare", "bare"); err != nil {
		return drained{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return drained{}, err
	}
	command := exec.Command(self, "-role", roleBare)
	command.Env = append(os.Environ(), natsURL+"="+b.natsURL)
	command.Stderr = os.Stderr
	return b.drain(ctx, command, "BARE", "bare")
}

// serve is the worker's process, not started yet, with further settings.
func (b *bench) serve(namespace string, log *os.File, settings ...string) *exec.Cmd {
	command := exec.Command(b.worker, "serve")
	command.Env = append(append(os.Environ(),
		"NATS_URL="+b.natsURL, "REDIS_URL="+b.redisURL, "REDIS_NAMESPACE="+namespace,
		"SLACK_BOT_TOKEN=xoxb-storm", "SLACK_CHANNEL=#storm", "SLACK_API_URL="+b.slack.APIURL(), "ADMIN_ADDR=", "SLACK_PACE=off"), settings...)
	command.Stdout, command.Stderr = log, os.Stderr
	return command
}

func (b *bench) drainWorker(ctx context.Context, round int) (drained, error) {
	if err := b.fill(ctx, "NOTIFY", "notifier", "notify"); err != nil {
		return drained{}, err
	}
	log, err := os.Create(filepath.Join(b.folder, fmt.Sprintf("notifier-%d.log", round)))
	if err != nil {
		return drained{}, err
	}
	defer func() { _ = log.Close() }()
	command := b.serve(fmt.Sprintf("storm-%d", round), log)
	before := b.slack.Accepted()
	result, err := b.drain(ctx, command, "NOTIFY", "notifier")
	if err != nil {
		return drained{}, err
	}
	const sent = 100
	if got := b.slack.Accepted() - before; got != sent {
		return drained{}, fmt.Errorf("%d messages sent, expected %d", got, sent)
	}
	lines, err := countLines(log.Name(), `"msg":"notification dropped"`)
	if err == nil && lines != b.events-sent {
		err = fmt.Errorf("%d lines for drops in the log, expected %d", lines, b.events-sent)
	}
	return result, err
}

// drain starts a consumer's process, times it from the first delivery until everything is acknowledged, and ends it.
func (b *bench) drain(ctx context.Context, command *exec.Cmd, stream, consumer string) (drained, error) {
	ctx, cancel := context.WithTimeout(ctx, runDeadline)
	defer cancel()
	if err := command.Start(); err != nil {
		return drained{}, err
	}
	var started, ended time.Time
	for ended.IsZero() && ctx.Err() == nil {
		durable, err := b.js.Consumer(ctx, stream, consumer)
		if err != nil {
			break
		}
		info := durable.CachedInfo()
		if started.IsZero() && info.Delivered.Stream > 0 {
			started = time.Now()
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			ended = time.Now()
		}
		time.Sleep(pollEvery)
	}
	_ = command.Process.Signal(syscall.SIGTERM) // Wait returns how it ended
	if err := command.Wait(); err != nil {
		return drained{}, err
	}
	if ended.IsZero() || started.IsZero() {
		return drained{}, fmt.Errorf("not drained within %s", runDeadline)
	}
	state := command.ProcessState
	result := drained{perSecond: float64(b.events) / ended.Sub(started).Seconds(), cpu: state.UserTime() + state.SystemTime()}
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		result.peak = usage.Maxrss << 10 // Linux counts in KiB
	}
	return result, nil
}

func countLines(path, with string) (int, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	count := 0
	scanner := bufio.NewScanner(file)
	for scanner.Scan() {
		if strings.Contains(scanner.Text(), with) {
			count++
		}
	}
	return count, scanner.Err()
}
