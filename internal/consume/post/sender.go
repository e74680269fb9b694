package post

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"notifier/internal/consume/availability"
	"notifier/internal/consume/feed"
	"notifier/internal/consume/post/lanes"
	"notifier/internal/consume/result"
	"notifier/internal/event"
	"notifier/internal/ratelimit"
	"notifier/internal/slackout"
	"notifier/internal/steering"
)

// Limiter has the permits for posts, and the record of what became of admitted events; see package ratelimit.
type Limiter interface {
	Admit(ctx context.Context, batch []ratelimit.Request) ([]ratelimit.Decision, error)
	Begin(ctx context.Context, post ratelimit.Post) (ratelimit.Permit, error)
	Answered(ctx context.Context, answer ratelimit.Answer) (ratelimit.PauseScope, time.Duration, error)
	Sent(ctx context.Context, request ratelimit.Request) error
	Refund(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	Forfeit(ctx context.Context, request ratelimit.Request, known string) (bool, error)
	InFlight(ctx context.Context, request ratelimit.Request) (record ratelimit.InFlight, found bool, err error)
	WasSent(ctx context.Context, request ratelimit.Request) (bool, error)
}

// Slack makes one attempt to post, and looks up whether an earlier one has arrived; see package slackout.
type Slack interface {
	Channel(ev event.Event) string
	Post(ctx context.Context, ev event.Event) (slackout.Receipt, error)
	Find(ctx context.Context, ev event.Event) (slackout.Receipt, bool, error)
}

// Letters keep dead events until their letters are stored, and settle them then; see package letters.
type Letters interface {
	Keep(dead result.Result, after func(context.Context) error)
}

// Feed is where deliveries come from; see package feed.
type Feed interface {
	Full() bool          // nothing more is fetched for want of room
	WhyNotLater() string // why it takes nothing back at the moment; empty: it does
}

// Settings of a Sender.
type Settings struct {
	Feed    Feed
	Limiter Limiter
	Slack   Slack
	Letters Letters
	Settle  func([]*result.Result)                   // ends events; called by several goroutines
	MuteOf  func(category string) *steering.Order    // nil: it is not muted
	Refuse  func(*result.Result, ratelimit.Decision) // writes down a decision other than Admitted

	CheckClock func() // called when the script has answered: it knows whether the clock of Redis was set back

	MaxAge      time.Duration // older events are dropped as expired; 0: never
	Concurrency int           // posts in flight, 1 or more
	PostTimeout time.Duration // how long one post may take

	Channels []string // the channels that the settings name; events may name one of them
	// Pace is that of each channel's posts; zero: none. The limiter applies it; here it serves to estimate
	// waits.
	Pace ratelimit.Tier
	// LongestLater is for how long an event of a slow channel is handed back to the server at most; 5 s is
	// the least.
	LongestLater time.Duration

	Capacity int   // what the worker may hold, in events
	Budget   int64 // and in bytes

	WorkerName string // unique among all workers that there ever were; it is part of the name of each post
	Tracker    *availability.Tracker
	Log        *zap.Logger
}

// Admitted is an event that the script has let through.
type Admitted struct {
	Event    event.Event
	Delivery *feed.Delivery
	Request  ratelimit.Request
	At       time.Time // when the script last answered that it may be posted
}

// Sender posts what was admitted. Make it with New, run it once.
type Sender struct {
	Settings
	lanes    *lanes.Lanes[*posting]
	channels *closedChannels
	failing  failing
	lookups  lookups       // what was logged about them
	begun    atomic.Uint64 // posts that were asked for; with the worker's name it names each of them
	stopping atomic.Bool
	later    func(*feed.Delivery, time.Duration) bool // Delivery.Later
}

// New makes a Sender.
func New(settings Settings) *Sender {
	return &Sender{
		Settings: settings,
		lanes: lanes.New[*posting](settings.Concurrency, laneBound(settings.Capacity, settings.Budget), laneBackoff,
			settings.Channels...),
		channels: newClosedChannels(settings.Log),
		later:    (*feed.Delivery).Later,
	}
}

// posting is an admitted event on its way to Slack, and what is known so far of how it ends.
type posting struct {
	Admitted
	result   result.Result
	channel  string // as the settings name it; Slack's answer has its ID
	name     string // of the next post: kept while it is not known whether Redis has recorded it
	last     string // the name of its last post whose end is known, or that was looked up
	unsure   bool   // a post of it may have arrived, and the channel has not been searched since
	searches int    // how often Slack did not let us search, since the last post
	patience patience
	failure  string // Slack's code at its last post; empty: it has not failed
}

// turn is a posting's turn to be posted.
type turn = lanes.Turn[*posting]

// Add puts an admitted event into its channel's lane.
func (s *Sender) Add(a Admitted) {
	p := &posting{Admitted: a, channel: s.Slack.Channel(a.Event)}
	p.result = result.Result{Event: a.Event, Channel: p.channel, Decided: a.At, Delivery: a.Delivery}
	s.lanes.Add(laneOf(p.channel), lanes.Item[*posting]{
		Value: p, Bytes: a.Delivery.Cost, Since: a.Event.Published,
	})
}

// webhookLane is the lane of a webhook's own channel, whose name is not known.
const webhookLane = "webhook"

func laneOf(channel string) string {
	if channel == "" {
		return webhookLane
	}
	return channel
}

// Run posts until Close was called and all events have ended. No post begins after startCtx has ended; one
// that is under way may go on until finishCtx ends, because a post that is cut off may have reached Slack,
// and would be made again. What has no turn then stays in flight.
func (s *Sender) Run(startCtx, finishCtx context.Context) {
	var posters sync.WaitGroup
	for range s.Concurrency {
		posters.Go(func() {
			for {
				t, err := s.lanes.Next(startCtx)
				if err != nil {
					return
				}
				s.deliver(startCtx, finishCtx, t)
			}
		})
	}
	posters.Wait()
}

// Close declares that nothing more will be added.
func (s *Sender) Close() { s.lanes.Close() }

// Stopping declares that the worker is about to end, so that nothing needs room any more.
func (s *Sender) Stopping() { s.stopping.Store(true) }

// Paused reports whether no channel takes posts at the moment, because the workspace does not.
func (s *Sender) Paused() bool { return s.lanes.Closed() }

// RefusedChannels are the channels that refuse every message at the moment, each with Slack's error code.
func (s *Sender) RefusedChannels() map[string]string { return s.channels.list() }

// verdict is what a step of an attempt leads to.
type verdict struct {
	kind
	wait time.Duration // again: until the event's next turn, at the earliest
}

type kind int

const (
	goOn       kind = iota // to the next step
	again                  // the event has another turn later
	ended                  // its result is complete, and is to be settled
	handedOver             // its letter is written first, and then it is settled
)

func next() verdict                      { return verdict{kind: goOn} }
func againAfter(d time.Duration) verdict { return verdict{kind: again, wait: d} }
func end() verdict                       { return verdict{kind: ended} }
func handOver() verdict                  { return verdict{kind: handedOver} }

// deliver makes one attempt, and does what it leads to.
func (s *Sender) deliver(startCtx, finishCtx context.Context, t *turn) {
	a := attempt{Sender: s, posting: t.Item, turn: t, startCtx: startCtx, finishCtx: finishCtx}
	v := a.run()
	switch v.kind {
	case ended:
		s.failing.forget(t.Item)
		s.Settle([]*result.Result{&t.Item.result})
		t.Done()
	case handedOver:
		s.failing.forget(t.Item)
		t.Done()
	case again:
		s.failing.note(t.Item, v.wait)
		t.Return(v.wait)
	default:
		panic("post: an attempt without a verdict")
	}
}

// nextName names the event's next post.
func (s *Sender) nextName() string {
	return s.WorkerName + "-" + strconv.FormatUint(s.begun.Add(1), 36)
}

// TooOld reports whether an event is older than EVENT_MAX_AGE by now; 0: none is.
func TooOld(e *event.Event, most time.Duration, now time.Time) bool {
	return most > 0 && now.Sub(e.Time) > most
}

// Known is what Redis knows of an event: its record if it is in flight, else nil and whether it was sent.
func Known(
	ctx context.Context, limiter Limiter, request ratelimit.Request,
) (record *ratelimit.InFlight, sent bool, err error) {
	found, inFlight, err := limiter.InFlight(ctx, request)
	if err != nil {
		return nil, false, err
	}
	if inFlight {
		return &found, false, nil
	}
	sent, err = limiter.WasSent(ctx, request)
	return nil, sent, err
}
