package messages

import (
	"testing"
	"time"
)

// post is a message that Slack accepted.
type post struct {
	event string
	at    int64 // Unix microseconds, as Redis counts them
}

// events counts the events with a message in the window (until-window, until]. If a kill loses Slack's reply,
// the event may be in the channel twice. It has one slot, which moves to the later post, so each window
// counts it once.
func events(posts []post, until int64, window time.Duration) int {
	found := map[string]bool{}
	for _, p := range posts {
		if p.at > until-window.Microseconds() && p.at <= until {
			found[p.event] = true
		}
	}
	return len(found)
}

// fullest returns the number of events in the fullest window, and the end of that window. It looks only at
// windows that end with a post: any other holds at most as much as the one that ends with its last post.
func fullest(posts []post, window time.Duration) (count int, until int64) {
	for _, last := range posts {
		if n := events(posts, last.at, window); n > count {
			count, until = n, last.at
		}
	}
	return count, until
}

func TestFullestWindow(t *testing.T) {
	const window = 100 * time.Microsecond
	for name, test := range map[string]struct {
		posts []post
		want  int
	}{
		"all at once":                 {[]post{{"a", 5}, {"b", 5}, {"c", 5}}, 3},
		"a window apart":              {[]post{{"a", 0}, {"b", 100}}, 1},
		"a microsecond closer":        {[]post{{"a", 0}, {"b", 99}}, 2},
		"the second window is fuller": {[]post{{"a", 0}, {"b", 60}, {"c", 120}, {"d", 130}}, 3},
		"an event twice":              {[]post{{"a", 0}, {"a", 60}, {"b", 70}}, 2},
		"an event in two windows":     {[]post{{"a", 0}, {"b", 10}, {"a", 150}, {"c", 160}}, 2},
	} {
		if got, _ := fullest(test.posts, window); got != test.want {
			t.Errorf("%s: %d events, expected %d", name, got, test.want)
		}
	}
}
