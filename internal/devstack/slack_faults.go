package devstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"

	"notifier/internal/ratelimit"
)

// window is the state of a channel's limit.
type window struct {
	posts   []time.Time // that count, oldest first
	paused  time.Time   // until then every post is refused
	refused int
}

// SetLimit limits the posts to each channel in a rolling window, from now on. Slack takes about one message a
// second and short bursts, such as 12/10s. Nil, the default, means no limit.
//
// A post above the limit gets a 429 with Retry-After, and the channel refuses every post until that time is
// over. Refused posts do not count and do not extend the pause. retryAfter is the pause in whole seconds; if
// it is 0, the pause lasts until the window has room, rounded up to a second. A channel and its ID are the
// same channel. Webhook posts that name no channel share one.
func (s *Slack) SetLimit(limit ratelimit.Limit, retryAfter time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.retryAfter = slices.Clone(limit), retryAfter
	for _, w := range s.windows {
		w.posts, w.paused = nil, time.Time{}
	}
}

// Limited returns how many posts to a channel, by its name or its ID, the limit has refused.
func (s *Slack) Limited(channel string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.windows[channelID(channel)]; w != nil {
		return w.refused
	}
	return 0
}

// overLimit returns the response if the limit refuses a post to a channel. Otherwise it counts the post and
// returns nil.
func (s *Slack) overLimit(channel string) *Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limit == nil {
		return nil
	}
	w := s.windows[channelID(channel)]
	if w == nil {
		w = &window{}
		s.windows[channelID(channel)] = w
	}
	now := s.now()
	left := w.paused.Sub(now)
	if left <= 0 {
		left = w.add(s.limit, now)
		if left > 0 && s.retryAfter > 0 {
			left = s.retryAfter
		}
		left = wholeSeconds(left)
		w.paused = now.Add(left)
	}
	if left <= 0 {
		return nil
	}
	w.refused++
	return &Response{RetryAfter: strconv.Itoa(int(wholeSeconds(left) / time.Second))}
}

// add counts a post at now if the limit has room for it. Otherwise it returns the time until it has.
func (w *window) add(limit ratelimit.Limit, now time.Time) (full time.Duration) {
	var longest time.Duration
	for _, tier := range limit {
		longest = max(longest, tier.Window)
		if at := len(w.posts) - tier.Count; at >= 0 {
			full = max(full, w.posts[at].Add(tier.Window).Sub(now))
		}
	}
	if full > 0 {
		return full
	}
	w.posts = slices.DeleteFunc(w.posts, func(at time.Time) bool { return !at.After(now.Add(-longest)) })
	w.posts = append(w.posts, now)
	return 0
}

// wholeSeconds rounds a duration up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// Faults are the failures that the inbox page offers: a Hook and a limit, as text. Empty fields are off.
type Faults struct {
	// Fail is the response to posts: an HTTP status such as 503, or one of Slack's error codes such as
	// channel_not_found.
	Fail string `json:"fail"`
	// Channel, if set, restricts Fail to posts to this channel, by its name or its ID.
	Channel string `json:"channel"`
	// Limit is the limit of each channel, such as 12/10s.
	Limit string `json:"limit"`
	// RetryAfter is the Retry-After of the limit's and of Fail's responses, in whole seconds such as 30s.
	// Without both, every post gets a 429 with it.
	RetryAfter string `json:"retry_after"`
	// Delay delays posts by a duration such as 2s.
	Delay string `json:"delay"`
	// Revoked makes every method return token_revoked, and the webhook 403 invalid_token.
	Revoked bool `json:"revoked"`
}

var slackCode = regexp.MustCompile(`^[a-z][a-z0-9_]{0,79}$`)

// SetFaults replaces the hook and the limit. The error names every invalid field; then
// nothing changes.
func (s *Slack) SetFaults(f Faults) error {
	var errs []error
	check := func(field, value, expected string, ok bool) {
		if value != "" && !ok {
			errs = append(errs, fmt.Errorf("%s: %q, expected %s", field, value, expected))
		}
	}
	status, err := strconv.Atoi(f.Fail)
	isStatus := err == nil && status >= 300 && status <= 599
	known := isStatus || slackCode.MatchString(f.Fail)
	check("fail", f.Fail, "an HTTP status from 300 to 599 or an error code of Slack", known)
	limit, err := ratelimit.ParseLimit(f.Limit)
	check("limit", f.Limit, "COUNT/DURATION such as 12/10s", err == nil)
	retryAfter, err := time.ParseDuration(f.RetryAfter)
	whole := err == nil && retryAfter > 0 && retryAfter <= time.Hour && retryAfter%time.Second == 0
	check("retry_after", f.RetryAfter, "whole seconds up to 1h such as 30s", whole)
	delay, err := time.ParseDuration(f.Delay)
	check("delay", f.Delay, "a duration up to 1h such as 2s", err == nil && delay > 0 && delay <= time.Hour)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	failing := Response{Delay: delay}
	if isStatus {
		failing.Status = status
	} else {
		failing.Code = f.Fail
	}
	if retryAfter > 0 && (f.Fail != "" || f.Limit == "") {
		failing.RetryAfter = strconv.Itoa(int(retryAfter.Seconds()))
	}
	if f.Limit == "" {
		limit = nil
	}
	s.SetLimit(limit, retryAfter)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
	s.hook = func(r Request) *Response {
		switch {
		case f.Revoked && r.Method == methodWebhook:
			return &Response{Code: "invalid_token"}
		case f.Revoked:
			return &Response{Code: "token_revoked"}
		case !r.IsPost():
			return nil
		case f.Channel != "" && channelID(f.Channel) != channelID(r.Message.Channel):
			return &Response{Delay: delay}
		}
		return &failing
	}
	s.announce()
	return nil
}

// changeFaults replaces all Faults: fields that the request leaves out are off.
func (s *Slack) changeFaults(w http.ResponseWriter, r *http.Request) {
	var f Faults
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(&f)
	if err != nil {
		err = fmt.Errorf(`expected a JSON object such as {"fail":"503"}: %w`, err)
	} else {
		err = s.SetFaults(f)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.showFaults(w, r)
}

func (s *Slack) showFaults(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	writeAPI(w, http.StatusOK, s.status())
}
