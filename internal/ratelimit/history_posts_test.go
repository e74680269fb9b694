package ratelimit_test

import (
	"fmt"

	"pgregory.net/rapid"

	"notifier/internal/ratelimit"
)

// Operations of a history on admitted events.

// postChannel receives all posts of a history.
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
	before := h.now()
	if err := limiter.Sent(h.t.Context(), request); err != nil {
		r.Fatal(err)
	}
	at, moved := h.moved(1), h.moved(2)
	if h.expire(at); h.unclear {
		return
	}
	// The reply has the recorded time: the server's clock or the latest score, if that is later.
	if newest := h.model.clock; at < newest {
		r.Fatalf("recorded as sent at %d, before the latest score %d", at, newest)
	}
	h.wantMoved(r, asking, h.model.inFlight(request), moved, before, at)
	limiter.JournalTimes(request, 0, at-h.s.aged.Microseconds())
	limiter.JournalMoved(request, moved, -h.s.aged.Microseconds())
	h.model.markSent(asking, request, at, moved)
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

// answer records that a post has certainly or perhaps failed: the last post of an event, or another one. In
// a history with losses, the worker that made the last post records its failure.
func (h *history) answer(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 {
		r.Skip("nothing to post")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.whichFor(r, request)
	answer := ratelimit.Answer{
		Request: request, Channel: postChannel, Name: "another", Failed: rapid.Bool().Draw(r, "certain"),
	}
	if a := h.model.inFlight(request); a != nil && a.post != "" && rapid.IntRange(0, 3).Draw(r, "the last one") > 0 {
		answer.Name = a.post
		if h.lossy != nil {
			limiter, asking = h.limiters[a.poster], h.replicas[a.poster]
		}
	}
	h.stepOverEnds()
	before := h.now()
	if _, _, err := limiter.Answered(h.t.Context(), answer); err != nil {
		r.Fatal(err)
	}
	moved := h.moved(2)
	now := h.now()
	if h.expire(now); h.unclear {
		return
	}
	a := h.model.inFlight(request)
	if a != nil && a.post != answer.Name {
		a = nil
	}
	h.wantMoved(r, asking, a, moved, before, now)
	if a != nil {
		limiter.JournalMoved(request, moved, -h.s.aged.Microseconds())
		h.model.answered(asking, a, answer.Failed, moved)
	}
	h.operations++
	h.keep()
}

// now returns the server's time with all advances; see virtual.
func (h *history) now() int64 { return h.virtual(h.s.Time(h.t.Context()).Val().UnixMicro()) }

// moved returns the time in a column of the latest reply: slots moved to it. Zero means that none moved.
func (h *history) moved(column int) int64 {
	if moved := h.s.latest().([]any)[column].(int64); moved > 0 {
		return h.virtual(moved)
	}
	return 0
}

// wantMoved expects that a script has moved the slots of an event if, and only if, they still counted. The
// script ran between the two times. If a is nil, nothing may have moved.
func (h *history) wantMoved(r *rapid.T, asking replica, a *admission, moved, before, after int64) {
	counted := a != nil && h.model.stillCounts(asking, a, h.model.latest(before))
	counts := a != nil && h.model.stillCounts(asking, a, h.model.latest(after))
	if counted == counts && counts != (moved > 0) {
		r.Fatalf("slots of %+v moved to %d, and they count: %t\n%s\n%s",
			a, moved, counts, h.model, h.s.contents(h.t))
	}
}

// begin begins a post of an event in flight. The permit is refused if the event's slots no longer count.
func (h *history) begin(r *rapid.T) {
	if h.unclear || len(h.asked) == 0 {
		r.Skip("nothing to post")
	}
	request := rapid.SampledFrom(h.asked).Draw(r, "request")
	limiter, asking := h.whichFor(r, request)
	h.stepOverEnds()
	before := h.now()
	a := h.model.inFlight(request)
	if h.expire(before); h.unclear || a == nil || !a.inFlight {
		r.Skip("nothing in flight")
	}
	known := a.post
	if known == "" { // then begin.lua ignores it
		known = rapid.SampledFrom([]string{"", "an earlier post"}).Draw(r, "known")
	}
	h.posts++
	post := ratelimit.Post{
		Request: request, Channel: postChannel, Known: known, Name: fmt.Sprint("p", h.posts), Longest: aPost,
	}
	permit, err := limiter.Begin(h.t.Context(), post)
	if err != nil {
		r.Fatal(err)
	}
	moved := int64(0)
	if permit.Status == ratelimit.Granted {
		moved = h.moved(3)
	}
	now := h.now()
	if h.expire(now); h.unclear {
		return
	}
	h.wantMoved(r, asking, a, moved, before, now)
	switch permit.Status {
	case ratelimit.Granted:
		begun := h.begunInStore(r, limiter, post)
		limiter.JournalMoved(request, moved, -h.s.aged.Microseconds())
		h.model.begin(asking, request, h.virtual(begun), moved, post.Name)
	case ratelimit.NotInFlight:
	default:
		r.Fatalf("%+v: %+v\n%s", post, permit, h.s.contents(h.t))
	}
	h.operations++
	h.keep()
}
