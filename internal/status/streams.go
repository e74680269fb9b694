package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"notifier/internal/outcome"
	"notifier/internal/status/stats"
	"notifier/internal/term"
)

// Stream is how full a stream of NATS is, as the replica says that has looked last.
type Stream struct {
	stats.Stream
	// for people: "NOTIFY is 87% full (870 of 1000 messages); a full one refuses new events"
	Text string `json:"text"`
}

// nearlyFull is the share of its bound above which a stream is worth a line.
const nearlyFull = 0.8

// mostStreams bounds a list that has two entries, unless somebody else writes heartbeats.
const mostStreams = 8

// NearlyFull reports whether the stream has little room left.
func (s Stream) NearlyFull() bool { return s.Unknown == "" && s.Used > nearlyFull }

// streamsOf are the streams that the replicas have looked at, by name. Of several reports the latest counts
// that knows something.
func streamsOf(replicas []stats.Replica) []Stream {
	latest := map[string]stats.Stream{}
	for _, replica := range replicas {
		for _, stream := range replica.Streams {
			known, there := latest[stream.Name]
			better := known.Unknown != "" && stream.Unknown == ""
			newer := (known.Unknown == "") == (stream.Unknown == "") && stream.Seen.After(known.Seen)
			if !there || better || newer {
				latest[stream.Name] = stream
			}
		}
	}
	list := []Stream{}
	for _, name := range slices.Sorted(maps.Keys(latest)) {
		if len(list) < mostStreams {
			list = append(list, Stream{Stream: latest[name], Text: streamText(latest[name])})
		}
	}
	return list
}

func streamText(s stats.Stream) string {
	if s.Unknown != "" {
		return fmt.Sprintf("%s: how full it is is not known (%s)", s.Name, s.Unknown)
	}
	used := fmt.Sprintf("%d of %d messages", s.Messages, s.MaxMessages)
	switch s.Bound {
	case "":
		return fmt.Sprintf("%s has no bound; it has %s", s.Name, term.Count(int(min(s.Messages, 1<<53)), "message"))
	case stats.BoundBytes:
		used = fmt.Sprintf("%s of %s", mebibytes(s.Bytes), mebibytes(uint64(max(0, s.MaxBytes))))
	}
	what := "a full one refuses new messages"
	if s.DiscardsOld {
		what = "a full one deletes its oldest messages"
	}
	return fmt.Sprintf("%s is %d%% full (%s); %s", s.Name, int(s.Used*100), used, what)
}

func mebibytes(n uint64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// deadText is how many events ended as dead in the last hour, and why, for people; empty: none did.
func deadText(outcomes []Outcome) string {
	var all int64
	var parts []string
	sorted := slices.Clone(outcomes)
	slices.SortStableFunc(sorted, func(a, b Outcome) int { return cmp.Compare(b.N, a.N) })
	for _, o := range sorted {
		if o.Outcome == outcome.Dead {
			all += o.N
			parts = append(parts, fmt.Sprintf("%d %s", o.N, o.Reason))
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf(
		"%s ended as dead in the last hour: %s. Replayed ones count; \"notifier dead list\" shows the rest.",
		term.Count(all, "event"),
		strings.Join(parts, ", "),
	)
}
