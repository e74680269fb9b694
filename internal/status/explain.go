package status

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/status/config"
	"notifier/internal/status/report"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Explanation tells whether an event of one category would be sent now: the JSON of "notifier status CATEGORY".
// The event costs one slot and names no channel.
type Explanation struct {
	Category string `json:"category"`
	// Sends reports whether no mute and no limit drops the event. If it is true, the next four fields are zero.
	// An admitted event may still wait for Slack.
	Sends       bool        `json:"sends"`
	Reason      string      `json:"reason"` // of the drop: category, group, global or muted
	Limit       string      `json:"limit"`  // the tier that refuses the event
	RetryAfterS float64     `json:"retry_after_s"`
	AtLeast     bool        `json:"at_least"` // RetryAfterS is a lower bound
	Limits      []Limit     `json:"limits"`   // global, group if it has a limit, category
	Channel     string      `json:"channel"`  // "webhook" for the webhook's
	Mute        *Override   `json:"mute"`
	Sources     []SourceSum `json:"sources"` // most dropped first: at most 8, the rest as _other

	now      time.Time
	reserved int    // slots of the refusing tier that are kept for other categories
	delay    string // message of the condition that keeps admitted events from Slack, or ""
}

// SourceSum counts the events of one source.
type SourceSum struct {
	Source  string `json:"source"` // empty if the publisher named none
	Sent    int64  `json:"sent"`
	Dropped int64  `json:"dropped"`
	Total   int64  `json:"total"` // with dead events
}

// maxSources bounds the named sources.
const maxSources = 8

// CategoryError is the error for a name that no event has as its category.
type CategoryError struct{ text string }

func (e *CategoryError) Error() string { return e.text }

// Explain explains the limits, mutes and recent events of a category, which need not have had an event. The
// error is a *CategoryError, or means that Redis is unavailable.
func (s Source) Explain(ctx context.Context, category string) (Explanation, error) {
	if err := checkIsOne(category); err != nil {
		return Explanation{}, err
	}
	r := s.read(ctx)
	if err := CheckOccurs(r.deciding, category); err != nil {
		return Explanation{}, err
	}
	if r.view.readErr != nil {
		return Explanation{}, r.view.readErr
	}
	scopes, err := r.peek(ctx, r.view.tallies(), category)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Category: category, Channel: r.channelOf(category), Mute: muteOf(r.orders, category),
		Sources: r.view.sources(category), now: r.view.now,
	}
	for _, scope := range scopes {
		e.Limits = append(e.Limits, scope.rows...)
	}
	e.delay = r.view.delay(e.Channel)
	if err := e.decide(ctx, r.limiter); err != nil {
		return Explanation{}, err
	}
	return e, nil
}

func checkIsOne(category string) error {
	if err := pattern.Check(category); err != nil {
		return &CategoryError{fmt.Sprintf("category %.200q %v", category, err)}
	}
	if pattern.HasWildcard(category) {
		text := "category %q is a pattern, expected one category, such as errors"
		return &CategoryError{fmt.Sprintf(text, category)}
	}
	return nil
}

// CheckOccurs returns a *CategoryError for a category, or a pattern of categories, that no event can have
// under NATS_SUBJECT, or that repeats the prefix of NATS_SUBJECT.
func CheckOccurs(d config.Deciding, name string) error {
	if meant, found := d.Subject.Repeated(name); found {
		text := "category %q repeats the prefix of NATS_SUBJECT %q (did you mean %q?)"
		return &CategoryError{fmt.Sprintf(text, name, d.Subject, meant)}
	}
	if !d.Subject.Gives(name) {
		text := "category %q never occurs: the categories of NATS_SUBJECT %q are one token"
		return &CategoryError{fmt.Sprintf(text, name, d.Subject)}
	}
	return nil
}

// decide fills in the decision. Workers look at mutes before they call the script.
func (e *Explanation) decide(ctx context.Context, limiter Limiter) error {
	if e.Mute != nil {
		e.Reason, e.RetryAfterS = outcome.Muted, term.Seconds(e.Mute.Until.Sub(e.now))
		return nil
	}
	decision, err := limiter.DryRun(ctx, e.Category, 1)
	if err != nil {
		return err
	}
	if e.Sends = decision.Verdict == ratelimit.Admitted; e.Sends {
		return nil
	}
	e.Reason, e.Limit = decision.Verdict.Reason(), decision.Tier.String()
	e.RetryAfterS, e.AtLeast = term.Seconds(decision.RetryAfter), decision.AtLeast
	e.reserved = decision.Reserved
	return nil
}

// muteOf returns the mute in force that ends last among those that match a category, or nil. A worker takes
// the most specific one, but drops until the last one ends.
func muteOf(orders []steering.Order, category string) *Override {
	var longest *Override
	for _, order := range orders {
		if order.Kind != steering.Mute || longest != nil && !order.Until.After(longest.Until) {
			continue
		}
		table, err := pattern.NewTable(map[string]bool{order.Target: true})
		if err != nil {
			continue
		}
		if matches, _, _ := table.Find(category); matches {
			mute := overrideOf(order)
			longest = &mute
		}
	}
	return longest
}

// delay returns the message of the condition that keeps admitted events from a channel, or "".
func (v view) delay(channel string) string {
	for _, f := range v.findings() {
		if f.stops && (!f.ofChannel() || f.channel() == short(channel)) {
			return f.message
		}
	}
	return ""
}

func (v view) sources(category string) []SourceSum {
	sums := map[string]SourceSum{}
	name := outcome.CategoryName(category)
	for _, count := range v.counts {
		if count.Category != name || count.Reason == outcome.Reply {
			continue
		}
		sum := sums[count.Source]
		sum.Source = count.Source
		sum.add(count)
		sums[count.Source] = sum
	}
	other, someOther := sums[outcome.OtherCategories]
	delete(sums, outcome.OtherCategories)
	list := []SourceSum{}
	for _, sum := range sums {
		list = append(list, sum)
	}
	slices.SortFunc(list, func(a, b SourceSum) int {
		return cmp.Or(
			cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(b.Total, a.Total), cmp.Compare(a.Source, b.Source),
		)
	})
	for _, rest := range list[min(len(list), maxSources):] {
		other.Sent += rest.Sent
		other.Dropped += rest.Dropped
		other.Total += rest.Total
	}
	if someOther || len(list) > maxSources {
		other.Source = outcome.OtherCategories
		return append(list[:min(len(list), maxSources)], other)
	}
	return list
}

func (s *SourceSum) add(count report.Count) {
	s.Total += count.N
	switch {
	case count.Outcome == outcome.Sent:
		s.Sent += count.N
	case outcome.IsDrop(count.Outcome, count.Reason):
		s.Dropped += count.N
	}
}

// Sentence is the decision, such as "Would be dropped: category/errors 10/30m is full, room in 29m58s."
func (e Explanation) Sentence() string {
	wait := span(time.Duration(e.RetryAfterS * float64(time.Second)))
	switch {
	case e.Sends && e.delay != "":
		return fmt.Sprintf("Would be sent to %s, but is not sent now: %s.", e.Channel, e.delay)
	case e.Sends:
		return fmt.Sprintf("Would be sent to %s.", e.Channel)
	case e.Mute != nil:
		return fmt.Sprintf("Would be dropped: muted by %s for %s.", e.Mute.By, wait)
	}
	if e.AtLeast {
		wait = "at least " + wait
	}
	full := "is full"
	if e.reserved > 0 {
		full = fmt.Sprintf("has room only for categories with a reserve (%s)", term.Count(e.reserved, "slot"))
	}
	return fmt.Sprintf("Would be dropped: %s %s %s, room in %s.", e.scope(), e.Limit, full, wait)
}

// scope names the scope that refuses the event.
func (e Explanation) scope() string {
	switch e.Reason {
	case outcome.Category:
		return steering.CategoryPrefix + e.Category
	case outcome.Group:
		return steering.GroupPrefix + ratelimit.GroupOf(e.Category)
	}
	return steering.GlobalScope
}

// Sections returns the tables: limits, the mute, sources. A table may have no rows.
func (e Explanation) Sections() []Section {
	var mutes []Override
	if e.Mute != nil {
		mutes = append(mutes, *e.Mute)
	}
	sources := Section{
		ID: "sources", Title: "Sources", Columns: columns("SOURCE", "SENT 1H>", "DROPPED 1H>", "TOTAL 1H>"),
		Note: "As publishers name them, as of " + e.now.UTC().Format(time.RFC3339) + ".",
	}
	for _, s := range e.Sources {
		sources.add(OK, s.Source, fmt.Sprint(s.Sent), fmt.Sprint(s.Dropped), fmt.Sprint(s.Total))
	}
	mute := overrideSection("mute", "Mute", mutes)
	mute.Columns[0].Name = "MUTE"
	return []Section{limitSection(e.Limits, e.now), mute, sources}
}

// WriteText writes the sentence, and each section that has rows.
func (e Explanation) WriteText(out io.Writer, screen term.Screen) error {
	level := OK
	if !e.Sends || e.delay != "" {
		level = Warn
	}
	return writeText(out, screen, level, e.Sentence(), e.Sections())
}
