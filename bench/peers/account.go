package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// message is what Slack has accepted.
type message struct {
	id string
	at time.Time
}

const idPrefix = "peers-"

// run is the number of a run. It is in the ids of its events: a worker that looks into a channel whether an
// event is there must not find an earlier run's.
type run int

func (r run) eventID(i int) string { return fmt.Sprintf("%s%d-%d", idPrefix, r, i) }

// idIn is the first event id in a text; "": none.
func idIn(text string) string {
	at := strings.Index(text, idPrefix)
	if at < 0 {
		return ""
	}
	end := at + len(idPrefix)
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || text[end] == '-') {
		end++
	}
	return text[at:end]
}

// numberIn is the number of an event within its run.
func numberIn(id string) int {
	n, _ := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
	return n
}

// once is the first message of each event, and how many were further ones.
func once(inbox []message) (first []message, twice int) {
	seen := map[string]bool{}
	for _, m := range inbox {
		if seen[m.id] {
			twice++
			continue
		}
		seen[m.id] = true
		first = append(first, m)
	}
	return first, twice
}

// above is how many messages an exact limiter would have kept back if it had seen each at the time at which
// it was posted. The window is shortened by slack, so that a message which takes a moment longer on its way
// than another one does not count.
func above(inbox []message, l limits, slack time.Duration, category func(i int) int) int {
	window, kept := l.window-slack, 0
	var all []time.Time
	own := map[int][]time.Time{}
	within := func(times []time.Time, now time.Time) (n int) {
		for _, t := range times {
			if t.After(now.Add(-window)) {
				n++
			}
		}
		return n
	}
	for _, m := range inbox {
		c := category(numberIn(m.id))
		if within(all, m.at) >= l.global || within(own[c], m.at) >= l.category {
			kept++
			continue
		}
		all, own[c] = append(all, m.at), append(own[c], m.at)
	}
	return kept
}

// silent is how many of the events from 0 to events-1 were neither posted nor named by a line.
func silent(r run, events int, inbox []message, lines map[string]bool) int {
	posted, count := map[string]bool{}, 0
	for _, m := range inbox {
		posted[m.id] = true
	}
	for i := range events {
		if id := r.eventID(i); !posted[id] && !lines[id] {
			count++
		}
	}
	return count
}

// lost is how many messages are missing: slots of the limit that were taken and whose message never came, and
// events that nobody knows anything of. There were many more events than slots, so that each slot that stays
// empty is a loss.
func lost(slots int, inbox []message, silent int) int {
	first, _ := once(inbox)
	return max(0, slots-len(first)) + silent
}

// linesIn reads logs, and returns the ids that a line of level info names: what was dropped, and what was
// sent.
func linesIn(paths []string) (map[string]bool, error) {
	named := map[string]bool{}
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if line := lines.Text(); strings.Contains(line, `"level":"info"`) {
				named[idIn(line)] = true
			}
		}
		_ = file.Close()
		if err := lines.Err(); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return named, nil
}
