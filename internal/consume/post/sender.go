package post

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/decide"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
)

// Limiter grants permits for posts, and records their results; see package ratelimit.
type Limiter interface {
	Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error)
	Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error)
	Sent(ctx context.Context, request ratelimit.Request) error
	InFlight(ctx context.Context, request ratelimit.Request) (record ratelimit.InFlight, found bool, err error)
}

// Slack posts once, and finds a message that an earlier post may have left; see package slackout.
type Slack interface {
	Channel(ev event.Event) string
	Post(ctx context.Context, ev event.Event) (slackout.Receipt, error)
	Find(ctx context.Context, ev event.Event) (slackout.Receipt, bool, error)
}

// Letters keeps dead events until their letters are stored, and then settles them; see package letters.
type Letters interface {
	// after, if not nil, runs once the letter is stored, and again until it succeeds.
	Keep(dead result.Result, after func(context.Context) error)
}

// Settings of a Sender.
type Settings struct {
	Decider *decide.Decider
	Limiter Limiter
	Slack   Slack
	Letters Letters
	// Settle ends events. Several goroutines call it. It returns an error if ctx is done first; the events stay
	// in flight then.
	Settle func(context.Context, []*result.Result) error

	Concurrency int           // posts in flight, 1 or more
	PostTimeout time.Duration // bounds one post
	Channels    []string      // get their lanes at once
	Capacity    int           // events that the worker may hold
	Budget      int64         // and their bytes
	WorkerName  string        // unique among all workers ever; part of the name of each post

	Tracker *availability.Tracker
	Log     *zap.Logger
}

// Sender posts admitted events. Make it with New, run it once.
type Sender struct {
	settings Settings
	lanes    *lanes.Lanes[*posting]
	channels *closedChannels
	failing  failing
	foreign  foreign
	lookups  lookups       // reasons that were logged
	begun    atomic.Uint64 // posts; numbers their names
}

// posting is an admitted event on its way to Slack.
type posting struct {
	job           decide.Job
	channel       string // as the settings name it; Slack returns its ID
	mustSearch    bool   // the channel must be searched before the next post
	searches      int    // failed searches since the last post
	patience      patience
	backoff       *backoff.ExponentialBackOff // of failures without a reason; nil before the first
	failure       string                      // slackout.Error.Detail of the last post, if it failed
	redisFailures int                         // failed turns in a row
}

// laneBackoff bounds how long a channel, or the workspace, is left alone after a failure.
var laneBackoff = lanes.Backoff{
	First: 500 * time.Millisecond, Max: time.Minute, MaxUnexplained: 5 * time.Second, Retries: time.Second,
}

// Bounds of the delay after which the server delivers an event of a full lane again. Within them the delay is
// about how long the lane needs to empty. The admission stays in Redis. Tests shorten them.
var (
	minReturn = 250 * time.Millisecond
	maxReturn = 30 * time.Second
)

// New makes a Sender. Its lanes share three quarters of the worker's room; the rest is for undecided events.
func New(settings Settings) *Sender {
	room := lanes.Size{Items: max(1, settings.Capacity*3/4), Bytes: settings.Budget * 3 / 4}
	return &Sender{
		settings: settings,
		lanes:    lanes.New[*posting](room, laneBackoff, settings.Channels...),
		channels: newClosedChannels(settings.Log),
	}
}

// Add queues an admitted event in its channel's lane. If the lane holds more than its share then, its
// youngest events go back to the server. If the server takes none back, the lane keeps them, and the worker
// tries again every returnPeriod.
func (s *Sender) Add(job decide.Job) {
	p := &posting{job: job, channel: s.settings.Slack.Channel(job.Result.Event)}
	p.job.Result.Channel = p.channel
	lane, item := laneOf(p.channel), lanes.Item[*posting]{
		Value: p, Category: job.Result.Event.Category,
		Bytes: job.Result.Delivery.Bytes, Since: job.Result.Event.Published,
	}
	s.lanes.Add(lane, item)
	s.returnSurplus(lane)
}

// returnSurplus hands back the surplus of a lane, the events beyond its share, the youngest first.
func (s *Sender) returnSurplus(lane string) {
	for {
		youngest, found := s.lanes.Surplus(lane)
		if !found {
			return
		}
		delay := min(max(s.lanes.DrainTime(lane), minReturn), maxReturn)
		if !youngest.Value.job.Result.Delivery.Later(delay) {
			s.lanes.Add(lane, youngest)
			return
		}
	}
}

// returnPeriod is the time between two attempts to hand back the surplus of all lanes. A full worker adds no
// event, so Add alone would leave it full until a failing channel recovers.
const returnPeriod = time.Second

// returnRegularly hands back the surplus of every lane until ctx is done. It begins with the slowest lane,
// which may leave the others within their shares.
func (s *Sender) returnRegularly(ctx context.Context) {
	ticker := time.NewTicker(returnPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, lane := range s.lanes.Crowded() {
			s.returnSurplus(lane)
		}
	}
}

// webhookLane names the lane of a webhook: its channel is unknown.
const webhookLane = "webhook"

func laneOf(channel string) string {
	if channel == "" {
		return webhookLane
	}
	return channel
}

// Run posts until Close was called and every event has ended. No post begins after startCtx is done. A post
// in progress may last until finishCtx is done, because one that is cut off may have reached Slack and would
// be repeated. Events that no poster took stay in flight.
func (s *Sender) Run(startCtx, finishCtx context.Context) {
	var posters sync.WaitGroup
	for range s.settings.Concurrency {
		posters.Go(func() {
			for {
				turn, err := s.lanes.Next(startCtx)
				if err != nil {
					return
				}
				s.takeTurn(startCtx, finishCtx, turn)
			}
		})
	}
	ctx, cancel := context.WithCancel(startCtx)
	var returning sync.WaitGroup
	returning.Go(func() { s.returnRegularly(ctx) })
	posters.Wait()
	cancel()
	returning.Wait()
}

// Close declares that nothing more will be added.
func (s *Sender) Close() { s.lanes.Close() }

// Paused reports whether no channel takes posts at the moment, because the workspace does not.
func (s *Sender) Paused() bool { return s.lanes.Paused() }

// nextName names the event's next post.
func (s *Sender) nextName() string {
	return s.settings.WorkerName + "-" + strconv.FormatUint(s.begun.Add(1), 36)
}
