package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Summary is the state in a sentence, and what needs attention. The page, status and check show it; it is
// made nowhere else.
type Summary struct {
	Kind      string      `json:"kind"`      // the same as long as the sentence says the same, whatever its figures
	Level     string      `json:"level"`     // ok, note, or bad: something is not sent that limits allow
	Title     string      `json:"title"`     // some words, for the title of a window
	Text      string      `json:"text"`      // one sentence, or some
	Attention []Attention `json:"attention"` // the worst first; at most 20
}

// Attention is one thing that needs attention, or is good to know.
type Attention struct {
	Kind  string `json:"kind"`  // no other line has it
	Level string `json:"level"` // note or bad
	Text  string `json:"text"`
}

// Levels of a Summary.
const (
	LevelOK   = "ok"
	LevelNote = "note"
	LevelBad  = "bad"
)

// view is what a summary is made of.
type view struct {
	Status
	redis Redis
}

// summary is the sentence and the list.
func (v view) summary() Summary {
	s := v.sentence()
	s.Attention = v.attention(s.Kind)
	if s.Level == LevelOK && slices.ContainsFunc(s.Attention, func(a Attention) bool { return a.Level == LevelBad }) {
		s.Level = LevelNote
	}
	return s
}

func (v view) sentence() Summary {
	if kind, why := v.stopped(); why != "" {
		return Summary{Kind: kind, Level: LevelBad, Title: "nothing is sent", Text: "Nothing is sent: " + why + "." + v.heldText()}
	}
	for _, pause := range v.Pauses {
		if pause.Channel == "" {
			text := fmt.Sprintf("Nothing is sent for %s, because Slack asked to wait.%s", seconds(pause.LeftS), v.heldText())
			return Summary{Kind: "pause", Level: LevelNote, Title: "paused", Text: text}
		}
	}
	if s, partly := v.partly(); partly {
		return s
	}
	if s, failing := v.failingChannels(); failing {
		return s
	}
	if v.redis.State == RedisCountsOnly {
		text := "Working, but counts have not been stored for %s (%s): figures are incomplete, and other replicas may be missing."
		return Summary{Kind: "counts", Level: LevelNote, Title: "no counts", Text: fmt.Sprintf(text, v.age(v.redis.Since), kindTexts[v.redis.Kind])}
	}
	return v.limits()
}

// starting is how long a replica may take until it is ready.
const starting = 15 * time.Second

// waitTexts are what a replica can wait for, for people.
var waitTexts = map[string]string{
	"nats":        "NATS is unavailable",
	"consumer":    "the stream or its consumer is missing",
	waitRedis:     "Redis is unavailable",
	"slack":       "Slack has not accepted messages",
	"credentials": "Slack does not accept the token or the webhook",
	"backlog":     "too many events wait for slow channels",
}

// everything are the waits that keep a replica from sending anything; ofAll those that meet all replicas as
// soon as they post.
var (
	everything = []string{"nats", "consumer", waitRedis, "slack", "credentials"}
	ofAll      = []string{"slack", "credentials"}
)

// stopped is why nothing is sent, and a word for it; empty: something is, as far as limits and channels
// allow. A pause that Slack asked for is not looked at: that it ends is known.
func (v view) stopped() (kind, why string) {
	if v.redis.State == RedisRefuses || v.redis.State == RedisUnavailable {
		return "redis " + v.redis.Kind, kindTexts[v.redis.Kind] + v.since(v.redis.Since)
	}
	running := v.running()
	switch {
	case len(v.Replicas)+v.MoreReplicas == 0:
		return "no replica", "no worker has reported in the last minute"
	case len(running) == 0:
		newest := slices.MaxFunc(v.Replicas, func(a, b stats.Replica) int { return a.Seen.Compare(b.Seen) })
		return "no replica", "no worker has reported for " + term.Duration(v.Time.Sub(newest.Seen))
	}
	waiting, unready, shared := 0, 0, false
	var first *stats.Wait
	var causes []string
	for _, replica := range running {
		waits := wholly(replica, everything)
		if len(waits) > 0 {
			waiting++
		}
		if !replica.Ready && len(replica.Waits) == 0 && v.Time.Sub(replica.Started) > starting {
			unready++
		}
		for _, wait := range waits {
			shared = shared || slices.Contains(ofAll, wait.For)
			causes = append(causes, causeOf(wait))
			if first == nil || wait.Since.Before(first.Since) {
				first = &wait
			}
		}
	}
	switch {
	case unready == len(running):
		return "unready", "no worker is ready"
	case waiting == 0:
	case waiting == len(running), shared && (v.Global.LastSent == nil || v.Global.LastSent.Before(first.Since)):
		causes = unique(causes)
		return "waits " + strings.Join(causes, ", "), strings.Join(causes, ", ") + v.since(&first.Since)
	}
	return "", ""
}

// running are the replicas that report.
func (v view) running() []stats.Replica {
	var list []stats.Replica
	for _, replica := range v.Replicas {
		if v.Time.Sub(replica.Seen) < silentAfter {
			list = append(list, replica)
		}
	}
	return list
}

// wholly are the waits of these kinds that concern all events of a replica.
func wholly(replica stats.Replica, kinds []string) []stats.Wait {
	return slices.DeleteFunc(slices.Clone(replica.Waits), func(w stats.Wait) bool {
		return w.Channel != "" || !slices.Contains(kinds, w.For)
	})
}

// causeOf is what a replica waits for, in words.
func causeOf(wait stats.Wait) string {
	if wait.For == waitRedis && kindTexts[wait.Kind] != "" {
		return kindTexts[wait.Kind]
	}
	return cmp.Or(waitTexts[wait.For], wait.For)
}

func unique(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// partly is for when some replicas send nothing, or read nothing more.
func (v view) partly() (s Summary, partly bool) {
	waiting := 0
	var causes []string
	for _, replica := range v.Replicas {
		waits := wholly(replica, append([]string{"backlog"}, everything...))
		if len(waits) > 0 {
			waiting++
		}
		for _, wait := range waits {
			causes = append(causes, causeOf(wait))
		}
	}
	if waiting == 0 {
		return s, false
	}
	what, all := strings.Join(unique(causes), ", "), len(v.Replicas)+v.MoreReplicas
	text := fmt.Sprintf("Partly working: %d of %s wait, because %s.%s", waiting, term.Count(all, "replica"), what, v.heldText())
	return Summary{Kind: "partly " + what, Level: LevelNote, Title: "partly working", Text: text}, true
}

// failingChannels is for when Slack takes no posts in some channels.
func (v view) failingChannels() (s Summary, failing bool) {
	var paused, refusing []string
	longest := 0.0
	for _, pause := range v.Pauses {
		paused = append(paused, pause.Channel)
		longest = max(longest, pause.LeftS)
	}
	var first *time.Time
	for _, replica := range v.Replicas {
		for _, wait := range replica.Waits {
			if wait.Channel == "" || slices.Contains(paused, wait.Channel) {
				continue
			}
			refusing = append(refusing, wait.Channel)
			if first == nil || wait.Since.Before(*first) {
				first = &wait.Since
			}
		}
	}
	refusing = unique(refusing)
	channels := unique(slices.Concat(paused, refusing))
	if len(channels) == 0 {
		return s, false
	}
	s = Summary{Kind: "channels " + strings.Join(channels, " "), Level: LevelNote, Title: fewNames(channels, "channel") + " paused"}
	s.Text = fmt.Sprintf("Nothing is posted to %s for %s, because Slack asked to wait.%s", fewNames(channels, "channel"), seconds(longest), v.heldText())
	if len(refusing) > 0 {
		s.Level, s.Title = LevelBad, "nothing to "+fewNames(refusing, "channel")
		s.Text = fmt.Sprintf("Nothing is posted to %s: %s%s.%s", fewNames(refusing, "channel"), waitTexts["slack"], v.since(first), v.heldText())
	}
	return s, true
}

// fewNames are names, or how many there are.
func fewNames(names []string, noun string) string {
	if len(names) > 3 {
		return term.Count(len(names), noun)
	}
	return strings.Join(names, ", ")
}

func (v view) heldText() string {
	switch v.Held {
	case 0:
		return ""
	case 1:
		return " 1 event is held."
	}
	return fmt.Sprintf(" %d events are held.", v.Held)
}

// since is for how long something has been the case: " (for 40s)"; empty: that is not known.
func (v view) since(begin *time.Time) string {
	if begin == nil {
		return ""
	}
	return " (for " + v.age(begin) + ")"
}

func (v view) age(begin *time.Time) string { return term.Duration(max(0, v.Time.Sub(*begin))) }

func seconds(s float64) string { return term.Duration(time.Duration(s * float64(time.Second))) }

// limits is for when everything works: the sentence is about which limits are full.
func (v view) limits() Summary {
	if len(v.Global.Tiers) == 0 {
		return Summary{Kind: "working", Level: LevelOK, Text: "Working."}
	}
	fullest, blocking, reserved := v.fullest(), v.Global.Tiers[0], Tier{}
	for _, tier := range v.Global.Tiers {
		if tier.FreeS > blocking.FreeS {
			blocking = tier
		}
		if tier.keptOnly() {
			reserved = tier
		}
	}
	slots := fmt.Sprintf("%d/%d", fullest.Used, fullest.Max)
	switch {
	case blocking.FreeS > 0:
		text := fmt.Sprintf("Full: all %d global slots are taken. Everything is dropped for %s.", blocking.Max, seconds(blocking.FreeS))
		return Summary{Kind: "full", Level: LevelNote, Title: slots + " full", Text: text}
	case reserved.Max > 0:
		text := fmt.Sprintf("Full for most: %s left, kept for %s. All others are dropped.",
			term.CountAre(reserved.Max-reserved.Used, "global slot"), fewNames(keptFor(v.Reserves), "category"))
		return Summary{Kind: "kept", Level: LevelNote, Title: slots + " kept", Text: text}
	}
	taken := fmt.Sprintf("Working. %d of %d global slots are taken; ", fullest.Used, fullest.Max)
	if fullest.Used == 0 {
		taken = fmt.Sprintf("Working. All %d global slots are free; ", fullest.Max)
	}
	full := v.full()
	if len(full) == 0 {
		return Summary{Kind: "working", Level: LevelOK, Title: slots, Text: taken + "no limit is full."}
	}
	return Summary{Kind: "some", Level: LevelNote, Title: slots, Text: taken + v.fullText(full) + "."}
}

func keptFor(reserves []ratelimit.Reserve) []string {
	var names []string
	for _, reserve := range reserves {
		if reserve.Kept > 0 {
			names = append(names, reserve.Category)
		}
	}
	return names
}

// full are the groups and categories whose own limit is full, those with the most drops first.
func (v view) full() []Scope {
	full := slices.DeleteFunc(slices.Concat(v.Groups, v.Categories), func(s Scope) bool { return s.NextFree == nil })
	slices.SortStableFunc(full, func(a, b Scope) int { return cmp.Compare(b.Dropped, a.Dropped) })
	return full
}

// fullText is "errors is full for 4m12s", or "3 limits are full, that of errors for 4m12s".
func (v view) fullText(full []Scope) string {
	first := fmt.Sprintf("%s is full for %s", scopeName(full[0]), term.Duration(full[0].NextFree.Sub(v.Time)))
	switch len(full) {
	case 1:
		return first
	case 2:
		return fmt.Sprintf("%s, %s for %s", first, scopeName(full[1]), term.Duration(full[1].NextFree.Sub(v.Time)))
	}
	return fmt.Sprintf("%d limits are full: %s", len(full), first)
}
