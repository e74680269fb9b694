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
	// the same as long as the sentence says the same, whatever its figures
	Kind      string      `json:"kind"`
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
	// when something was last posted to a channel, as far as its categories are known
	posted map[string]time.Time
}

// summary is the sentence and the list.
func (v view) summary() Summary {
	s := v.sentence()
	s.Attention = v.attention(s.Kind)
	if s.Level == LevelOK &&
		slices.ContainsFunc(s.Attention, func(a Attention) bool { return a.Level == LevelBad }) {
		s.Level = LevelNote
	}
	return s
}

func (v view) sentence() Summary {
	if kind, why := v.stopped(); why != "" {
		return Summary{
			Kind:  kind,
			Level: LevelBad,
			Title: "nothing is sent",
			Text:  "Nothing is sent: " + why + "." + v.heldText(),
		}
	}
	for _, pause := range v.Pauses {
		if pause.Channel == "" {
			text := fmt.Sprintf(
				"Nothing is sent for %s, because Slack asked to wait.%s",
				seconds(pause.LeftS),
				v.heldText(),
			)
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
		return Summary{
			Kind:  "counts",
			Level: LevelNote,
			Title: "no counts",
			Text:  fmt.Sprintf(text, v.age(v.redis.Since), kindTexts[v.redis.Kind]),
		}
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
	if silence := silenceOf(v.Replicas, v.Time); silence != "" {
		return "no replica", silence
	}
	running := stats.Running(v.Replicas)
	if !slices.ContainsFunc(running, func(r stats.Replica) bool { return !v.unready(r) }) {
		return "unready", "no worker is ready"
	}
	waiting, waits, causes := idle(running, everything)
	if waiting == 0 {
		return "", ""
	}
	first := slices.MinFunc(waits, func(a, b stats.Wait) int { return a.Since.Compare(b.Since) }).Since
	shared := slices.ContainsFunc(waits, func(w stats.Wait) bool { return slices.Contains(ofAll, w.For) })
	if waiting == len(running) || shared && (v.Global.LastSent == nil || v.Global.LastSent.Before(first)) {
		return "waits " + causes, causes + v.since(&first)
	}
	return "", ""
}

// silenceOf is why nobody works, as far as heartbeats show; empty: somebody does.
func silenceOf(replicas []stats.Replica, now time.Time) string {
	switch {
	case len(replicas) == 0:
		return "no worker is running"
	case len(stats.Running(replicas)) > 0:
		return ""
	}
	newest := slices.MaxFunc(replicas, func(a, b stats.Replica) int { return a.Seen.Compare(b.Seen) })
	return "no worker has reported for " + term.Duration(now.Sub(newest.Seen))
}

// unready reports whether a replica that is not ready had time to become so, and does not say what it waits
// for.
func (v view) unready(replica stats.Replica) bool {
	return !replica.Ready && len(replica.Waits) == 0 && v.Time.Sub(replica.Started) > starting
}

// idle is how many replicas have waits of these kinds that concern all of their events, these waits, and the
// causes in words.
func idle(replicas []stats.Replica, kinds []string) (n int, waits []stats.Wait, causes string) {
	var words []string
	for _, replica := range replicas {
		before := len(waits)
		for _, wait := range replica.Waits {
			if wait.Channel == "" && slices.Contains(kinds, wait.For) {
				waits, words = append(waits, wait), append(words, causeOf(wait))
			}
		}
		n += min(1, len(waits)-before)
	}
	return n, waits, strings.Join(unique(words), ", ")
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
	running := stats.Running(v.Replicas)
	waiting, _, causes := idle(running, append([]string{"backlog"}, everything...))
	if waiting == 0 {
		return s, false
	}
	text := fmt.Sprintf(
		"Partly working: %d of %s wait, because %s.%s",
		waiting,
		term.Count(len(running), "replica"),
		causes,
		v.heldText(),
	)
	return Summary{Kind: "partly " + causes, Level: LevelNote, Title: "partly working", Text: text}, true
}

// fewNames are names, or how many there are.
func fewNames(names []string, noun string) string {
	if len(names) > 3 {
		return term.Count(len(names), noun)
	}
	return strings.Join(names, ", ")
}

func (v view) heldText() string {
	if v.Held == 0 {
		return ""
	}
	return " " + term.CountAre(v.Held, "event") + " held."
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
		text := fmt.Sprintf(
			"Full: all %d global slots are taken. Everything is dropped for %s.",
			blocking.Max,
			v.Global.fullFor(v.Time),
		)
		return Summary{Kind: "full", Level: LevelNote, Title: slots + " full", Text: text}
	case reserved.Max > 0:
		text := fmt.Sprintf(
			"Full for most: %s left, kept for %s. All others are dropped.",
			term.CountAre(reserved.Max-reserved.Used, "global slot"),
			fewNames(keptFor(v.Reserves, reserved), "category"),
		)
		return Summary{Kind: "kept", Level: LevelNote, Title: slots + " kept", Text: text}
	}
	taken := fmt.Sprintf("Working. %d of %d global slots are taken; ", fullest.Used, fullest.Max)
	if fullest.Used == 0 {
		taken = fmt.Sprintf("Working. All %d global slots are free; ", fullest.Max)
	}
	full := v.full()
	if len(full) == 0 && v.More == 0 {
		return Summary{Kind: "working", Level: LevelOK, Title: slots, Text: taken + "no limit is full."}
	}
	if len(full) == 0 { // what is not listed was not looked at, or there was no room
		text := taken + "none of the " + term.Count(len(v.Categories), "listed category") + " is full."
		return Summary{Kind: "working", Level: LevelOK, Title: slots, Text: text}
	}
	return Summary{Kind: "some", Level: LevelNote, Title: slots, Text: taken + v.fullText(full) + "."}
}

// keptFor is for whom slots of a global tier are kept. Where reserves are reported for a longer one, it is
// all of them.
func keptFor(reserves []ratelimit.Reserve, tier Tier) []string {
	var names []string
	for _, reserve := range reserves {
		if reserve.Kept > 0 || reserve.Tier.String() != tier.Limit {
			names = append(names, reserve.Category)
		}
	}
	return names
}

// full are the groups and categories whose own limit is full, those with the most drops first.
func (v view) full() []Scope {
	full := slices.DeleteFunc(
		slices.Concat(v.Groups, v.Categories),
		func(s Scope) bool { return s.NextFree == nil },
	)
	slices.SortStableFunc(full, func(a, b Scope) int { return cmp.Compare(b.Dropped, a.Dropped) })
	return full
}

// fullText is "errors is full for 4m12s", or "3 limits are full, that of errors for 4m12s".
func (v view) fullText(full []Scope) string {
	first := fmt.Sprintf("%s is full for %s", scopeName(full[0]), full[0].fullFor(v.Time))
	switch len(full) {
	case 1:
		return first
	case 2:
		return fmt.Sprintf("%s, %s for %s", first, scopeName(full[1]), full[1].fullFor(v.Time))
	}
	atLeast := ""
	if v.More > 0 {
		atLeast = "at least "
	}
	return fmt.Sprintf("%s%d limits are full: %s", atLeast, len(full), first)
}
