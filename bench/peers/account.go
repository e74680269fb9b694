package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// message is one message in Slack's inbox.
type message struct {
	id string
	at time.Time
}

const idPrefix = "peers-"

// run numbers the runs. Event ids contain it: a worker that searches a channel for an event must not find
// the message of an earlier run.
type run int

func (r run) eventID(i int) string { return fmt.Sprintf("%s%d-%d", idPrefix, r, i) }

// idIn returns the first event id in a text, or "" if it contains no id.
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

// numberIn returns the number of an event within its run.
func numberIn(id string) int {
	n, _ := strconv.Atoi(id[strings.LastIndex(id, "-")+1:])
	return n
}

// once returns the first message of each event, and counts the repetitions.
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

// above counts the messages that an exact limiter would have refused, had it decided each one when it
// arrived in Slack. slack shortens the window, because some messages take longer to arrive than others.
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

// silent counts the events, numbered from 0, that have neither a message in Slack nor a log line.
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

// lost counts missing messages: slots without a message, and silent events. A storm has far more events than
// slots, so each slot should have led to a message.
func lost(slots int, inbox []message, silent int) int {
	first, _ := once(inbox)
	return max(0, slots-len(first)) + silent
}

// linesIn returns the event ids in the info lines of logs. Peers log each sent and each dropped event at this
// level; a warning does not end an event.
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
