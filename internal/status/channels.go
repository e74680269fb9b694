package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// What the sentence, the list and the page say of channels in which Slack takes no posts, or not all.

// failingChannels is the sentence where there are such channels.
func (v view) failingChannels() (s Summary, failing bool) {
	refusals := v.refusals()
	ofAll := func(r refusal) bool { return r.Level == LevelBad }
	closed, open := v.failing()
	switch {
	case slices.ContainsFunc(refusals, ofAll):
		return v.refusing(slices.DeleteFunc(refusals, func(r refusal) bool { return !ofAll(r) })), true
	case len(closed) > 0:
		return v.closed(closed), true
	case len(refusals) > 0:
		text := refusals[0].Text + "." + v.heldText()
		return Summary{Kind: refusals[0].Kind, Level: LevelNote, Title: "channel refused", Text: text}, true
	case len(open) > 0:
		text := "Slack refused " + v.failedText(open[0])
		if len(open) > 1 {
			text += ", and some for other channels"
		}
		text += "." + v.heldText()
		return Summary{Kind: "refused events", Level: LevelNote, Title: "events refused", Text: text}, true
	case len(v.Pauses) > 0:
		return v.paused(), true
	}
	return s, false
}

func (v view) refusing(refusals []refusal) Summary {
	var channels, codes []string
	for _, r := range refusals {
		channels, codes = append(channels, r.channel), append(codes, r.code)
	}
	names := fewNames(channels, "channel")
	because := fmt.Sprintf("because Slack refuses the channel itself (%s)", strings.Join(unique(codes), ", "))
	text := fmt.Sprintf("Nothing is posted to %s, %s: events for it are dead-lettered.", names, because)
	kind := "refused " + strings.Join(channels, " ")
	return Summary{Kind: kind, Level: LevelBad, Title: "nothing to " + names, Text: text + v.heldText()}
}

func (v view) closed(waits []*sharedWait) Summary {
	var channels []string
	failed, first := 0, &waits[0].Since
	for _, w := range waits {
		channels, failed = append(channels, w.Channel), failed+v.failedIn(w.Channel)
		if w.Since.Before(*first) {
			first = &w.Since
		}
	}
	names := fewNames(unique(channels), "channel")
	text := fmt.Sprintf("Nothing is posted to %s: %s%s.", names, waitTexts["slack"], v.since(first))
	if failed == 1 { // what else waits was not tried
		text = "Slack refused " + v.failedText(waits[len(waits)-1]) + "; nothing was posted there since."
	}
	text += v.heldText()
	return Summary{Kind: "channels " + names, Level: LevelBad, Title: "nothing to " + names, Text: text}
}

func (v view) paused() Summary {
	var channels []string
	longest := 0.0
	for _, pause := range v.Pauses {
		channels, longest = append(channels, pause.Channel), max(longest, pause.LeftS)
	}
	names := fewNames(unique(channels), "channel")
	text := fmt.Sprintf("Nothing is posted to %s for %s, because Slack asked to wait.", names, seconds(longest))
	text += v.heldText()
	return Summary{Kind: "channels " + names, Level: LevelNote, Title: names + " paused", Text: text}
}

// failing are the waits for channels that are not paused: closed ones, to which nothing was posted since, and
// open ones, in which Slack takes other events.
func (v view) failing() (closed, open []*sharedWait) {
	for _, w := range v.waits() {
		paused := slices.ContainsFunc(v.Pauses, func(p Pause) bool { return p.Channel == w.Channel })
		switch {
		case w.Channel == "" || paused:
		case v.posted[w.Channel].After(w.Since): // by another replica
			open = append(open, w)
		default:
			closed = append(closed, w)
		}
	}
	return closed, open
}

// failedText is "one event for #alerts: http_503 (for 40s)".
func (v view) failedText(w *sharedWait) string {
	what := "one event"
	if n := v.failedIn(w.Channel); n > 1 {
		what = term.Count(n, "event")
	}
	return what + " for " + w.Text() + v.since(&w.Since)
}

// failedIn is how many events for a channel were tried and fail, as far as replicas list them. Others wait
// untried.
func (v view) failedIn(channel string) int {
	failed := map[[2]string]bool{}
	for _, replica := range v.Replicas {
		for _, f := range replica.Failing {
			if f.Channel == channel {
				failed[[2]string{f.Category, f.EventID}] = true
			}
		}
	}
	return len(failed)
}

// refusal is a channel that refuses the messages of some replica, and what the list says of it: a note where
// another replica posts there.
type refusal struct {
	Attention
	channel, code string
}

// refusals are those channels. Since when is not known, so another replica counts as posting there for a
// minute.
func (v view) refusals() (list []refusal) {
	running, codes := stats.Running(v.Replicas), refusedChannels(v.Replicas)
	for _, channel := range slices.Sorted(maps.Keys(codes)) {
		r := refusal{channel: channel, code: codes[channel]}
		r.Attention = Attention{Kind: "refused " + channel, Level: LevelBad, Text: refusedText(channel, r.code)}
		n := 0
		for _, replica := range running {
			if replica.Refused[channel] != "" {
				n++
			}
		}
		if n < len(running) && v.Time.Sub(v.posted[channel]) < time.Minute {
			replicas := term.Count(len(running), "replica")
			text := fmt.Sprintf("%d of %s count %s as refused (%s)", n, replicas, channel, r.code)
			r.Attention = Attention{Kind: "some refuse " + channel, Level: LevelNote, Text: text}
		}
		list = append(list, r)
	}
	return list
}

// refusedChannels are the channels that reject every message, with Slack's code.
func refusedChannels(replicas []stats.Replica) map[string]string {
	codes := map[string]string{}
	for _, replica := range replicas {
		maps.Copy(codes, replica.Refused)
	}
	return codes
}

func refusedText(channel, code string) string {
	return fmt.Sprintf("%s rejects every message (%s); its events are dead-lettered", channel, code)
}

// refusedTexts are refusedChannels for people.
func refusedTexts(replicas []stats.Replica) (texts []string) {
	codes := refusedChannels(replicas)
	for _, channel := range slices.Sorted(maps.Keys(codes)) {
		texts = append(texts, refusedText(channel, codes[channel]))
	}
	return texts
}
