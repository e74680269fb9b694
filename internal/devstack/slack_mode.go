package devstack

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"notifier/internal/ratelimit"
)

// Bounds of a Mode. They bound what a Slack keeps in memory for it.
const (
	maxModeCount    = keptMessages // of each tier of a limit
	maxModeFailures = 100
	maxFailureText  = 1000 // bytes
	maxModePause    = time.Hour
)

// Mode is how a Slack treats every post that no Behaviour is scripted for: neither queued with Next nor set with Always, where
// a Behaviour of Always that only delays counts as none. The zero value accepts them.
//
// A post meets, in this order: a front end's error for its text, the revoked token, errors of the request itself, the
// limits of the workspace and of its channel, Slack's internal error for its text.
type Mode struct {
	// ChannelLimit is how many posts one channel takes in a rolling window, WorkspaceLimit how many all of them take together;
	// nil: any number. A post above a limit is answered with a 429, which begins a pause: until it is over the channel, or the
	// workspace, refuses every post, with the seconds that are left as Retry-After. Refused posts count in no limit and
	// don't extend the pause; Slack documents neither. A window is (now - its duration, now].
	//
	// A channel and its ID are the same channel. Webhook posts count in the channel they name, else in one of their own. chat.update
	// meets no limit: Slack counts it separately. The precision and the cost of the product's limits mean nothing here.
	ChannelLimit, WorkspaceLimit ratelimit.Limit

	// RetryAfter is how long the pause after a 429 is, in whole seconds up to an hour; 0: until the window has room again,
	// rounded up to a whole second.
	RetryAfter time.Duration

	// Fail lists texts of posts and edits that always fail. The first that a message's text contains counts.
	Fail []Failure

	// Revoked makes every known method answer token_revoked, and the webhook 403 invalid_token.
	Revoked bool
}

// Failure is a text, and how a post or an edit that contains it fails.
type Failure struct {
	Text string // 1 to 1,000 bytes, without control characters
	Kind string // FailHTML or FailInternal
}

// The kinds of a Failure. Nothing is posted with either.
const (
	FailHTML     = "html"           // 403 and an HTML page, as from a firewall or a proxy in front of Slack
	FailInternal = "internal_error" // 200 and the code internal_error
)

// frontEndPage is what a FailHTML answers.
const frontEndPage = `<!DOCTYPE html>
<html><head><title>403 Forbidden</title></head>
<body><h1>Request blocked</h1><p>The request was blocked by a security rule. Reference: 0.fake.0</p></body></html>
`

// ParseModeLimit parses a limit of a Mode, COUNT/DURATION or several of them joined with "+", with COUNT up to 10,000.
func ParseModeLimit(text string) (ratelimit.Limit, error) {
	limit, err := ratelimit.ParseLimit(text)
	if err != nil {
		return nil, err
	}
	return limit, checkModeLimit(limit)
}

func checkModeLimit(limit ratelimit.Limit) error {
	for _, tier := range limit {
		if tier.Count < 1 || tier.Count > maxModeCount || tier.Window <= 0 {
			return fmt.Errorf("%s, expected a count from 1 to %d", tier, maxModeCount)
		}
	}
	return nil
}

// ParseModePause parses the RetryAfter of a Mode, a Go duration.
func ParseModePause(text string) (time.Duration, error) {
	pause, err := time.ParseDuration(text)
	if err != nil || checkModePause(pause) != nil || pause == 0 {
		return 0, fmt.Errorf("%q, expected whole seconds from 1s to 1h such as 10s", text)
	}
	return pause, nil
}

func checkModePause(pause time.Duration) error {
	if pause < 0 || pause > maxModePause || pause%time.Second != 0 {
		return fmt.Errorf("%s, expected whole seconds from 1s to 1h", pause)
	}
	return nil
}

// ParseFailure parses a Failure from TEXT=KIND. The text may contain "=".
func ParseFailure(text string) (Failure, error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return Failure{}, fmt.Errorf("%q, expected TEXT=%s or TEXT=%s", shortened(text), FailHTML, FailInternal)
	}
	f := Failure{Text: text[:at], Kind: text[at+1:]}
	return f, f.check()
}

func (f Failure) check() error {
	switch {
	case f.Kind != FailHTML && f.Kind != FailInternal:
		return fmt.Errorf("kind %q of %q, expected %s or %s", shortened(f.Kind), shortened(f.Text), FailHTML, FailInternal)
	case f.Text == "" || len(f.Text) > maxFailureText:
		return fmt.Errorf("text of %d bytes, expected 1 to %d", len(f.Text), maxFailureText)
	case strings.ContainsFunc(f.Text, unicode.IsControl):
		return fmt.Errorf("text %q, expected no control characters", shortened(f.Text))
	}
	return nil
}

// shortened is a text from outside for an error.
func shortened(text string) string {
	const most = 60
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// Check reports everything that a Mode must not have, and what was expected.
func (m Mode) Check() error {
	if len(m.Fail) > maxModeFailures {
		return fmt.Errorf("%d failing texts, expected at most %d", len(m.Fail), maxModeFailures)
	}
	errs := []error{checkModeLimit(m.ChannelLimit), checkModeLimit(m.WorkspaceLimit), checkModePause(m.RetryAfter)}
	for _, failure := range m.Fail {
		errs = append(errs, failure.check())
	}
	return errors.Join(errs...)
}

// failure is how a text fails; "": it doesn't.
func (m Mode) failure(text string) string {
	for _, f := range m.Fail {
		if strings.Contains(text, f.Text) {
			return f.Kind
		}
	}
	return ""
}

// SetMode sets how posts are treated from now on. Windows and pauses begin anew, the numbers of Refused go on. On an error,
// which says what was expected, nothing changes.
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

// Refused returns how many posts and edits the Mode has refused in a channel, by its name or its ID. Of more than 1,000
// channels those that were used last are remembered.
func (s *Slack) Refused(channel string) Refusals {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[channelKey(channel)]; c != nil {
		return c.refused
	}
	return Refusals{}
}

// standing decides by the Mode about a post, or an edit, for which no Behaviour is scripted. code is Slack's own error for it,
// "" if there is none.
func (s *Slack) standing(m Message, code string, edit bool) Behaviour {
	s.mu.Lock()
	defer s.mu.Unlock()
	failure := s.mode.failure(m.Text)
	limited := !edit && (s.mode.ChannelLimit != nil || s.mode.WorkspaceLimit != nil)
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
		return refuse(&c.refused.Failed, Behaviour{Status: 403, Body: frontEndPage, ContentType: "text/html; charset=utf-8"})
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
