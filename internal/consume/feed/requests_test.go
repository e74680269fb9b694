package feed

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"
)

// expectAccount checks the messages and bytes that may still arrive, and the number of pending requests.
func expectAccount(t *testing.T, r requests, messages int, bytes int64, pending int) {
	t.Helper()
	if r.messages != messages || r.bytes != bytes || len(r.pending) != pending {
		t.Errorf("%d messages with %d bytes of %d requests are expected, want %d, %d, %d",
			r.messages, r.bytes, len(r.pending), messages, bytes, pending)
	}
}

func accountOf(messages int, bytes int64, replies ...string) requests {
	r := newRequests()
	for _, reply := range replies {
		r.add(reply, request{messages: messages, bytes: bytes})
	}
	return r
}

// The last byte of a request ends it, too. The server does not report that.
func TestFilledRequestNeedsNoStatus(t *testing.T) {
	r := accountOf(5, 1000, "a")
	r.deliver(600)
	expectAccount(t, r, 4, 400, 1)
	r.deliver(400)
	expectAccount(t, r, 0, 0, 0)
}

const patience = 6 // ticks

func TestRequestWithoutHeartbeatsIsDropped(t *testing.T) {
	r := accountOf(10, 1000, "a", "b")
	for range patience {
		r.tick(30, patience)
		r.pending["b"].unheard = 0
	}
	expectAccount(t, r, 20, 2000, 2)
	r.tick(30, patience)
	expectAccount(t, r, 10, 1000, 1)
}

func TestExpiredRequestIsDropped(t *testing.T) {
	r := accountOf(10, 1000, "a")
	for range 30 + patience {
		r.tick(30, patience)
		r.pending["a"].unheard = 0
	}
	expectAccount(t, r, 10, 1000, 1)
	r.tick(30, patience)
	expectAccount(t, r, 0, 0, 0)
}

// The server sends no heartbeats for a request while it delivers messages.
func TestRequestThatIsBeingFilledNeedsNoHeartbeats(t *testing.T) {
	r := accountOf(100, 10_000, "a")
	for range 3 * patience {
		r.tick(30, patience)
		r.deliver(1)
	}
	expectAccount(t, r, 100-3*patience, 10_000-3*patience, 1)
}

func TestConsumerLimits(t *testing.T) {
	none := limitsOf(jetstream.ConsumerConfig{}, 1024, 1<<20)
	if none != (requestLimits{128, math.MaxInt64, pullExpires, pullHeartbeat}) {
		t.Errorf("%+v without limits", none)
	}
	own := limitsOf(jetstream.ConsumerConfig{
		MaxRequestBatch: 3, MaxRequestMaxBytes: 1000, MaxRequestExpires: time.Second,
	}, 1024, 1<<20)
	if own != (requestLimits{3, 1000, time.Second, time.Second / 2}) {
		t.Errorf("%+v, expected the consumer's", own)
	}
}

// fakeServer serves pull requests like nats-server: in turn, and with a status if one ends early.
type fakeServer struct {
	waiting []*waiting
	transit []arriving
}

type waiting struct {
	reply    string
	messages int
	bytes    int64 // zero means no bound
}

// arriving is a message, or the final status of a request.
type arriving struct {
	status   bool
	reply    string // the request of the message
	size     int64  // of a message
	messages int    // not delivered by the request
	bytes    int64
}

func (s *fakeServer) end(w *waiting, status bool) {
	s.waiting = slices.DeleteFunc(s.waiting, func(other *waiting) bool { return other == w })
	if status {
		s.transit = append(s.transit, arriving{status: true, reply: w.reply, messages: w.messages, bytes: w.bytes})
	}
}

// deliver sends a message for the first request that accepts its size.
func (s *fakeServer) deliver(size int64) {
	for len(s.waiting) > 0 {
		w := s.waiting[0]
		isBound := w.bytes > 0
		if isBound && size > w.bytes {
			s.end(w, true)
			continue
		}
		if isBound {
			w.bytes -= size
		}
		w.messages--
		s.transit = append(s.transit, arriving{reply: w.reply, size: size})
		switch {
		case w.messages == 0:
			s.end(w, w.bytes > 0)
		case isBound && w.bytes == 0:
			s.end(w, false)
		default:
			s.waiting = append(s.waiting[1:], w)
		}
		return
	}
}

// possible counts the messages and bytes that may still arrive. Only a message requested alone may exceed
// the budget.
func (s *fakeServer) possible() (messages int, bytes int64) {
	for _, w := range s.waiting {
		messages += w.messages
		bytes += w.bytes
	}
	for _, a := range s.transit {
		if !a.status {
			messages++
			bytes += a.size
		}
	}
	return messages, bytes
}

// TestAccountCoversAllThatMayArrive lets a server fill requests and a worker settle events in random order.
func TestAccountCoversAllThatMayArrive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const capacity, budget = 64, 1 << 20
		config := jetstream.ConsumerConfig{MaxRequestBatch: rapid.SampledFrom([]int{0, 5}).Draw(t, "max batch")}
		limits := limitsOf(config, capacity, budget)
		r, s := newRequests(), fakeServer{}
		replicated := rapid.Bool().Draw(t, "replicated")
		var held []int64 // costs
		inFlight := func() (sum int64) {
			for _, cost := range held {
				sum += cost
			}
			return sum
		}
		made, isBlocked, sizes := 0, false, rapid.SampledFrom([]int64{100, 1000, 30_000, 100_000, 400_000})
		ask := func(t *rapid.T) {
			reserved := r.reserved()
			free := room{max(0, capacity-len(held)-reserved.messages), max(0, budget-inFlight()-reserved.bytes)}
			asked, found := r.next(limits, free, capacity, budget)
			if isBlocked {
				asked, found = r.nextAlone(500_000, free, budget)
			}
			if !found {
				if len(r.pending) == 0 && r.messages == 0 && free.messages > 0 && free.bytes > budget/minShare {
					t.Fatalf("no request with %+v free", free)
				}
				t.Skip()
			}
			if asked.messages < 1 || asked.bytes < 1 {
				t.Fatalf("%+v", asked)
			}
			isBlocked = false
			made++
			reply := string(rune('A' + made))
			r.add(reply, asked)
			if used := inFlight() + r.reserved().bytes; used > budget && !asked.alone {
				t.Fatalf("%d bytes are in flight or requested with a new request", used)
			}
			if asked.alone {
				asked.bytes = 0
			}
			s.waiting = append(s.waiting, &waiting{reply, asked.messages, asked.bytes})
		}
		arrive := func(t *rapid.T) {
			if len(s.transit) == 0 {
				t.Skip()
			}
			i := 0
			if replicated && rapid.Bool().Draw(t, "a status overtakes") {
				i = max(0, slices.IndexFunc(s.transit, func(a arriving) bool { return a.status }))
			}
			a := s.transit[i]
			s.transit = slices.Delete(s.transit, i, i+1)
			asked := r.pending[a.reply]
			switch {
			case !a.status:
				r.deliver(int(a.size))
				held = append(held, a.size+perMessage)
			case asked != nil:
				isBlocked = isBlocked || (a.messages == asked.messages && a.messages > 0)
				r.end(a.reply, a.messages, a.bytes)
			}
		}
		alone := func() bool { return r.isAlone() }
		t.Repeat(map[string]func(*rapid.T){
			"ask":     ask,
			"deliver": func(t *rapid.T) { s.deliver(sizes.Draw(t, "size")) },
			"fill": func(t *rapid.T) {
				if len(s.waiting) == 0 || s.waiting[0].bytes == 0 {
					t.Skip()
				}
				s.deliver(s.waiting[0].bytes)
			},
			"arrive":       arrive,
			"arrive again": arrive,
			"expire": func(t *rapid.T) {
				if len(s.waiting) == 0 {
					t.Skip()
				}
				s.end(s.waiting[0], true)
			},
			"settle": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip()
				}
				held = slices.Delete(held, 0, 1)
			},
			"": func(t *rapid.T) {
				messages, bytes := s.possible()
				if r.messages < messages || (r.bytes < bytes && !alone()) {
					t.Fatalf("%d messages with %d bytes may arrive, and the account has %d with %d",
						messages, bytes, r.messages, r.bytes)
				}
				if len(r.pending) > maxRequests || len(held)+r.messages > capacity {
					t.Fatalf("%d requests pending, %d messages held and %d requested",
						len(r.pending), len(held), r.messages)
				}
				large := len(held) > 0 && slices.Max(held) > budget/minShare // perhaps requested alone
				if used := inFlight() + r.reserved().bytes; used > budget && !large {
					t.Fatalf("%d bytes are in flight or requested", used)
				}
			},
		})
		for len(s.waiting) > 0 {
			s.end(s.waiting[0], true)
		}
		for len(s.transit) > 0 {
			arrive(t)
		}
		for range patience + 1 {
			r.tick(30, patience)
		}
		if r.messages != 0 || r.bytes != 0 || len(r.pending) != 0 {
			t.Fatalf("when all requests have ended, the account has %+v", r)
		}
	})
}
