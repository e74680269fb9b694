package recent

import (
	"fmt"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/term"
)

// Columns names the cells of Row.
var Columns = []string{"TIME", "CATEGORY", "OUTCOME", "REASON", "DETAIL", "EVENT ID", "SOURCE"}

// Row returns the cells of a record, as the commands and the page show them. They hold foreign text: the
// caller escapes them.
func Row(r outcome.Record) []string {
	return []string{clock(r.Time), r.Category, r.Outcome, r.Reason, Detail(r), r.EventID, r.Source}
}

// Detail describes in one line how a record came about: "10/30m, room 2026-11-20T09:14:50Z".
func Detail(r outcome.Record) string {
	var facts []string
	add := func(format string, values ...any) { facts = append(facts, fmt.Sprintf(format, values...)) }
	switch {
	case r.Limit != "":
		facts = append(facts, limitFacts(r)...)
	case r.Mute != "":
		add("%s", muteFact(r))
	case r.MaxAge > 0:
		add("age %s, EVENT_MAX_AGE %s", span(r.Age), span(r.MaxAge))
	}
	if r.Detail != "" {
		add("%s", r.Detail)
	}
	if r.Channel != "" {
		add("%s", r.Channel)
	}
	if r.Attempts > 1 {
		add("%d attempts", r.Attempts)
	}
	switch {
	case r.Ambiguous && r.Found:
		add("found in the channel after an unknown result")
	case r.Ambiguous:
		add("possibly posted more than once (ambiguous)")
	}
	switch {
	case r.HasNoLetter():
		add("no letter")
	case r.LetterSeq > 0:
		add("letter %d", r.LetterSeq)
	}
	if r.LeftOut > 0 {
		add("%d more before", r.LeftOut)
	}
	return strings.Join(facts, ", ")
}

func limitFacts(r outcome.Record) []string {
	if r.AboveLimit {
		return []string{r.Limit, "the cost exceeds this temporary limit"}
	}
	room := "room " + clock(r.RoomAt())
	if r.AtLeast {
		room += " or later"
	}
	if r.Reserved > 0 {
		return []string{r.Limit, room, term.Count(r.Reserved, "slot") + " reserved for other categories"}
	}
	return []string{r.Limit, room}
}

func muteFact(r outcome.Record) string {
	text := r.Mute
	if !r.MutedUntil.IsZero() {
		text += " until " + clock(r.MutedUntil)
	}
	if r.MutedBy != "" {
		text += " by " + r.MutedBy
	}
	if r.MuteReason != "" {
		text += ": " + r.MuteReason
	}
	return text
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func span(seconds float64) string {
	return term.Duration(time.Duration(seconds * float64(time.Second)))
}
