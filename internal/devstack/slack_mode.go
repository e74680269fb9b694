package devstack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
)

// Mode sets the response to every post without a scripted Behaviour: neither queued with Next nor set with
// Always. A Behaviour of Always that only delays does not count as scripted. The zero value accepts every
// post.
//
// A post meets, in this order: a front end's error for its text, the revoked token, errors of the request
// itself, the limits of the workspace and of its channel, Slack's internal error for its text.
// itself, the limits of the workspace and of its channel, Slack's internal error for its text.
type Mode struct {
	// ChannelLimit limits the posts of one channel in a rolling window, WorkspaceLimit the posts of all
	// channels together; nil means no limit. A post above a limit gets a 429, which begins a pause: until it
	// is over the channel, or the workspace, refuses every post, with the remaining seconds as Retry-After.
	// Refused posts count in no limit and don't extend the pause; Slack documents neither. A window is (now -
	// its duration, now].
	//
	// A channel and its ID are the same channel. Webhook posts count in the channel they name, else in one of
	// their own. The precision and the cost of the product's limits mean nothing here.
	ChannelLimit, WorkspaceLimit ratelimit.Limit

	// RetryAfter is the pause after a 429, in whole seconds up to an hour. If it is zero, the pause lasts
	// until the window has room again, rounded up to a whole second.
	RetryAfter time.Duration

	// Fail lists texts of posts that always fail. The first that a message's text contains counts.
	Fail []Failure

	// Revoked makes every known method return token_revoked, and the webhook 403 invalid_token.
	Revoked bool
}

// Failure is a text, and how a post that contains it fails.
type Failure struct {
	Text string
	Kind string // FailHTML or FailInternal
}

// The kinds of a Failure. Nothing is posted with either.
const (
	FailHTML     = "html"           // 403 and an HTML page, as from a firewall or a proxy in front of Slack
	FailInternal = "internal_error" // 200 and the code internal_error
)

// frontEndPage is the body of a FailHTML response.
const frontEndPage = `<!DOCTYPE html>
<html><head><title>403 Forbidden</title></head>
<body><h1>Request blocked</h1><p>The request was blocked by a security rule. Reference: 0.fake.0</p></body></html>
`

// Check reports every invalid field of m, with the expected value.
func (m Mode) Check() error {
	var errs []error
	if m.RetryAfter < 0 || m.RetryAfter > time.Hour || m.RetryAfter%time.Second != 0 {
		errs = append(
			errs,
			fmt.Errorf("retry_after: %s, expected whole seconds up to 1h such as 10s", m.RetryAfter),
		)
	}
	for _, f := range m.Fail {
		if f.Text == "" || f.Kind != FailHTML && f.Kind != FailInternal {
			errs = append(
				errs,
				fmt.Errorf("fail: %q, expected TEXT=%s or TEXT=%s", f.Text+"="+f.Kind, FailHTML, FailInternal),
			)
		}
	}
	return errors.Join(errs...)
}

// failure returns the kind of failure for a text, or "".
func (m Mode) failure(text string) string {
	for _, f := range m.Fail {
		if strings.Contains(text, f.Text) {
			return f.Kind
		}
	}
	return ""
}

// SetMode sets the response to posts from now on. Windows and pauses begin anew; the counts of Refused are
// kept. An invalid Mode changes nothing.
func (s *Slack) SetMode(m Mode) error {
	if err := m.Check(); err != nil {
		return err
	}
	m.ChannelLimit, m.WorkspaceLimit = slices.Clone(m.ChannelLimit), slices.Clone(m.WorkspaceLimit)
	m.Fail = slices.Clone(m.Fail)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mode = m
	s.workspace = window{}
	for _, c := range s.channels {
		c.window = window{}
	}
	s.modeVersion++
	s.announce()
	return nil
}

// SetNow replaces the clock of the limits, for tests; nil: the real one. Messages keep the real time.
func (s *Slack) SetNow(now func() time.Time) {
	if now == nil {
		now = time.Now
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// Refused returns how many posts the Mode has refused in a channel, by its name or its ID.
func (s *Slack) Refused(channel string) Refusals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelID(channel)]; c != nil {
		return c.refused
	}
	return Refusals{}
}

// standing picks the Behaviour that the Mode sets for a post without a scripted one. code is Slack's own
// error for the post, or "".
func (s *Slack) standing(m Message, code string) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure := s.mode.failure(m.Text)
	limited := s.mode.ChannelLimit != nil || s.mode.WorkspaceLimit != nil
	if failure == "" && !s.mode.Revoked && !limited {
		return Behaviour{}
	}
	c := s.channelState(m.Channel)
	refuse := func(count *int, b Behaviour) Behaviour {
		*count++
		s.refused++
		s.modeVersion++
		s.announce()
		return b
	}
	switch {
	case failure == FailHTML:
		return refuse(
			&c.refused.Failed,
			Behaviour{Status: 403, Body: frontEndPage, ContentType: "text/html; charset=utf-8"},
		)
	case s.mode.Revoked && m.Via == "webhook":
		return refuse(&c.refused.Revoked, Behaviour{Code: "invalid_token"})
	case s.mode.Revoked:
		return refuse(&c.refused.Revoked, Behaviour{Code: "token_revoked"})
	case code != "":
		return Behaviour{}
	}
	if limited {
		if seconds, count := s.limit(c); seconds > 0 {
			return refuse(count, Behaviour{RetryAfter: fmt.Sprint(seconds)})
		}
	}
	if failure == FailInternal {
		b := Behaviour{Code: FailInternal}
		if m.Via == "webhook" {
			b = Behaviour{Body: FailInternal} // with the status 200, which a code of a webhook would not have
		}
		return refuse(&c.refused.Failed, b)
	}
	return Behaviour{}
}
