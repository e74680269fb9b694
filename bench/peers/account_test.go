package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// at returns an inbox with one message of the events 0, 1, ... at each of the given seconds.
func at(seconds ...float64) (inbox []message) {
	begin := time.Unix(1_000_000, 0)
	for i, s := range seconds {
		inbox = append(inbox, message{id: run(1).eventID(i), at: begin.Add(time.Duration(s * float64(time.Second)))})
	}
	return inbox
}

func TestAbove(t *testing.T) {
	l := limits{global: 3, category: 2, window: 5 * time.Second}
	apart := func(i int) int { return i }
	together := func(int) int { return 0 }
	for _, c := range []struct {
		name     string
		inbox    []message
		category func(int) int
		want     int
	}{
		{"none", nil, apart, 0},
		{"as many as the global limit", at(0, 1, 2), apart, 0},
		{"one more", at(0, 1, 2, 4), apart, 1},
		{"the window has rolled", at(0, 1, 2, 5), apart, 0},
		{"a little early, by the way to Slack", at(0, 1, 2, 4.6), apart, 0},
		{"too early for that", at(0, 1, 2, 4.4), apart, 1},
		{"full at the end of one fixed window and at the beginning of the next", at(4, 4.1, 4.2, 5.1, 5.2, 5.3), apart, 3},
		{"as many as the category's limit", at(0, 1), together, 0},
		{"one more of a category", at(0, 1, 2), together, 1},
		{"what is above takes no room", at(0, 1, 2, 5), together, 1},
	} {
		if got := above(c.inbox, l, 500*time.Millisecond, c.category); got != c.want {
			t.Errorf("%s: %d, expected %d", c.name, got, c.want)
		}
	}
}

func TestOnce(t *testing.T) {
	inbox := at(0, 1, 2)
	inbox[2].id = inbox[0].id
	first, twice := once(inbox)
	if len(first) != 2 || twice != 1 || first[0].at != inbox[0].at {
		t.Errorf("%v and %d", first, twice)
	}
}

func TestLost(t *testing.T) {
	doubled := at(0, 1, 2)
	doubled[2].id = doubled[0].id
	for _, c := range []struct {
		name         string
		inbox        []message
		silent, want int
	}{
		{"all there", at(0, 1, 2), 0, 0},
		{"a slot whose message never came", at(0, 1), 0, 1},
		{"a message twice is one", doubled, 0, 1},
		{"more than the limit makes up for nothing", at(0, 1, 2, 3), 2, 2},
	} {
		if got := lost(3, c.inbox, c.silent); got != c.want {
			t.Errorf("%s: %d, expected %d", c.name, got, c.want)
		}
	}
}

func TestSilent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	log := `{"level":"info","msg":"dropped","event_id":"peers-1-1"}
{"level":"warn","msg":"no decision","event_id":"peers-1-2"}
{"level":"info","msg":"dropped","event_id":"peers-2-3"}
`
	if err := os.WriteFile(path, []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, err := linesIn([]string{path})
	if err != nil {
		t.Fatal(err)
	}
	// Event 0 is in Slack and 1 has a line. The warning does not end event 2; the last line is another run's.
	if got := silent(1, 4, at(0), lines); got != 2 {
		t.Errorf("%d, expected 2, with %v", got, lines)
	}
	if _, err := linesIn([]string{path + ".absent"}); err == nil {
		t.Error("a log that is not there is no error")
	}
}

func TestIDs(t *testing.T) {
	if got := idIn(string(run(3).payload(17))); got != "peers-3-17" || numberIn(got) != 17 {
		t.Errorf("%q, number %d", got, numberIn(got))
	}
	if got := idIn("nothing"); got != "" {
		t.Errorf("%q in a text without one", got)
	}
	var first []int
	for i := range firstFew + 45 {
		first = append(first, inBursts(i))
	}
	if !slices.Equal(first[:10], []int{0, 1, 2, 3, 4, 0, 1, 2, 3, 0}) || first[firstFew+busy] != inTurn(firstFew+busy) {
		t.Errorf("categories of the bursts: %v", first)
	}
}

// The best values of a column are bold unless all are equal. Columns that a peer wins are listed.
func TestTable(t *testing.T) {
	peer1 := &result{peer: peer{name: "peer"}, messages: 100, lost: 3, storms: []timed{{2000, 3 * time.Millisecond, time.Millisecond, 10 << 20}}}
	own := &result{peer: peer{name: "own", ours: true}, messages: 99, storms: []timed{{1000, 2 * time.Millisecond, time.Millisecond, 20 << 20}}}
	got := table([]*result{peer1, own}, 1000, 1)
	for _, want := range []string{
		"| peer | **2000** | 3.0 | 1.0 | **10** | 100 | 0 | 0 | 0 | 3 | 0 | 0 |",
		"| own | 1000 | **2.0** | 1.0 | 20 | 99 | 0 | 0 | 0 | **0** | 0 | 0 |",
		"A peer is better than notifier in: events per second (peer); memory, MiB (peer).",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	if got := table([]*result{{peer: peer{ours: true}, storms: []timed{{}}}, {lost: 1, storms: []timed{{}}}}, 1, 1); !strings.Contains(got, "No peer is better") {
		t.Errorf("a win that is none:\n%s", got)
	}
}
