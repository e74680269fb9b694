package ratelimit_test

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// What happens to events after they were admitted.

// postChannel is where all events of a history are posted.
const postChannel = "C0123456789"

func (h *history) sent(r *rapid.T) {
	if h.unclear {
		return
	}
	if len(h.asked) == 0 {
		r.Skip("nothing was asked")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.whichFor(r, request)
	h.stepOverEnds()
	if err := limiter.Sent(h.t.Context(), request); err != nil {
		r.Fatal(err)
	}
	at := h.virtual(h.s.latest().([]any)[1].(int64))
	if h.expire(at); h.unclear {
		return
	}
	// Its reply is the time that it has recorded, which tells of the clock only where that is ahead of all
	// admissions.
	if newest := h.model.clock; at < newest {
		r.Fatalf("recorded as sent at %d, before the newest admission at %d", at, newest)
	}
	limiter.JournalTimes(request, 0, at-h.s.aged.Microseconds())
	h.model.markSent(asking, request, at)
	h.operations++
	h.keep()
}

func (h *history) refund(r *rapid.T) {
	if h.unclear {
		return
	}
	if len(h.asked) == 0 || h.steps {
		r.Skip("nothing to refund")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	known := ""
	if a := h.model.inFlight(request); a != nil && rapid.Bool().Draw(r, "known") {
		known = a.post
	}
	limiter, asking := h.whichFor(r, request)
	h.stepOverEnds()
	if h.lossy != nil && !h.refundsForSure(request, asking) {
		r.Skip("nothing to refund for sure")
	}
	got, err := limiter.Refund(h.t.Context(), request, known)
	if err != nil {
		r.Fatal(err)
	}
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	if h.expire(now); h.unclear {
		return
	}
	want := h.model.refundable(request, known)
	if got != (want != nil) {
		r.Fatalf("refund of %+v: %t, expected %t\n%s\n%s", request, got, !got, h.model, h.s.contents(h.t))
	}
	if got {
		h.model.refund(want)
	}
	h.operations++
}

// fail records that a post certainly failed: the last one of an event, or another. The replica that made a
// post records its end.
func (h *history) fail(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 {
		r.Skip("nothing to post")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, _ := h.whichFor(r, request)
	answer := ratelimit.Answer{Request: request, Channel: postChannel, Name: "another", Failed: true}
	if a := h.model.inFlight(request); a != nil && a.post != "" && rapid.IntRange(0, 3).Draw(r, "the last one") > 0 {
		answer.Name = a.post
		if h.lossy != nil {
			limiter = h.limiters[a.poster]
		}
	}
	h.stepOverEnds()
	if _, _, err := limiter.Answered(h.t.Context(), answer); err != nil {
		r.Fatal(err)
	}
	if h.expire(h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())); h.unclear {
		return
	}
	h.model.fail(request, answer.Name)
	h.operations++
	h.keep()
}

// fresh reports whether an event in flight is known for sure.
func (h *history) fresh(request ratelimit.Request, asking replica, now int64) bool {
	a := h.model.inFlight(request)
	return a != nil && a.touched() > h.model.now(now)-asking.retention
}

// begin begins a post of an event that is in flight.
func (h *history) begin(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 {
		r.Skip("nothing to post")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.whichFor(r, request)
	h.stepOverEnds()
	now := h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
	if h.expire(now); h.unclear || !h.fresh(request, asking, now+endsBefore.Microseconds()) {
		r.Skip("nothing in flight for sure")
	}
	known := h.model.inFlight(request).post
	if known == "" { // then it need not be known
		known = rapid.SampledFrom([]string{"", "an earlier post"}).Draw(r, "known")
	}
	h.posts++
	post := ratelimit.Post{
		Request: request, Channel: postChannel, Known: known, Name: fmt.Sprint("p", h.posts), Longest: time.Second,
	}
	permit, err := limiter.Begin(h.t.Context(), post)
	if err == nil && permit.Status == ratelimit.NotInFlight {
		now = h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro())
		h.expire(now)
		// a busy machine took longer than endsBefore
		if h.unclear = h.unclear || !h.fresh(request, asking, now); h.unclear {
			return
		}
	}
	if err != nil || permit.Status != ratelimit.Granted {
		r.Fatalf("%+v: %+v, %v\n%s", post, permit, err, h.s.contents(h.t))
	}
	h.model.begin(asking, request, h.virtual(h.begunInStore(r, limiter, post)), post.Name)
	h.operations++
	h.keep()
}
