package ratelimit

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecodePermit(t *testing.T) {
	for name, test := range map[string]struct {
		reply []any
		want  Permit
	}{
		"post":               {[]any{"post", int64(2), "", int64(9)}, Permit{Status: Granted, Posts: 2}},
		"workspace":          {[]any{"wait workspace", int64(1), "", int64(9)}, Permit{Status: WorkspacePaused, Wait: time.Microsecond}},
		"channel":            {[]any{"wait channel", int64(2), "", int64(9)}, Permit{Status: ChannelPaused, Wait: 2 * time.Microsecond}},
		"pace":               {[]any{"wait pace", int64(3), "", int64(9)}, Permit{Status: Paced, Wait: 3 * time.Microsecond}},
		"event":              {[]any{"wait event", int64(4), "", int64(9)}, Permit{Status: Leased, Wait: 4 * time.Microsecond}},
		"unknown":            {[]any{"unknown", int64(5), "p1", int64(9)}, Permit{Status: LastPostUnknown, Posts: 5, Last: "p1"}},
		"unknown, no name":   {[]any{"unknown", int64(5), "", int64(9)}, Permit{Status: LastPostUnknown, Posts: 5}},
		"not in flight":      {[]any{"not in flight", int64(0), "", int64(9)}, Permit{Status: NotInFlight}},
		"the longest of all": {[]any{"wait pace", int64(3_600_000_000), "", int64(9)}, Permit{Status: Paced, Wait: time.Hour}},
	} {
		got, err := decodePermit(test.reply)
		if difference := cmp.Diff(test.want, got.Permit); err != nil || got.moved != 9 || difference != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, difference)
		}
	}
}

func TestDecodePermitErrors(t *testing.T) {
	for want, reply := range map[string]any{
		`expected a list`:                         "post",
		`reply has 3 entries, expected 4`:         []any{"post", int64(1), ""},
		`status is a int64, expected a word`:      []any{int64(1), int64(1), "", int64(9)},
		`status "Post", expected one`:             []any{"Post", int64(1), "", int64(9)},
		`status "", expected one`:                 []any{"", int64(1), "", int64(9)},
		`number is a string, expected a whole`:    []any{"post", "1", "", int64(9)},
		`name is a int64, expected a text`:        []any{"post", int64(1), int64(1), int64(9)},
		`"post" with 0, expected a number`:        []any{"post", int64(0), "", int64(9)},
		`"wait event" with -1, expected`:          []any{"wait event", int64(-1), "", int64(9)},
		`"not in flight" with 1, expected`:        []any{"not in flight", int64(1), "", int64(9)},
		`"post" with the name "p", expected none`: []any{"post", int64(1), "p", int64(9)},
		`expected no time above 1h0m0s`:           []any{"wait channel", int64(3_600_000_001), "", int64(9)},
	} {
		if got, err := decodePermit(reply); err == nil || !strings.Contains(err.Error(), want) || got != (permitted{}) {
			t.Errorf("%v: %+v, %v; expected an error that says %q", reply, got, err, want)
		}
	}
}

func TestDecodePausesErrors(t *testing.T) {
	if pauses, err := decodePauses([]any{"*", int64(math.MaxInt64)}); err == nil {
		t.Errorf("%+v, expected an error", pauses)
	}
}

func TestDecodeAnswered(t *testing.T) {
	for word, want := range map[string]PauseScope{"none": NoPause, "channel": PausedChannel, "workspace": PausedWorkspace} {
		if pause, err := decodeAnswered([]any{word, int64(7), int64(9)}); pause != (started{want, 7 * time.Microsecond, 9}) || err != nil {
			t.Errorf("%s: %+v, %v", word, pause, err)
		}
	}
	for want, reply := range map[string]any{
		`expected a list`:                    int64(0),
		`reply has 2 entries, expected 3`:    []any{"none", int64(0)},
		`status is a int64, expected a word`: []any{int64(1), int64(0), int64(0)},
		`status "all", expected one`:         []any{"all", int64(0), int64(0)},
		`number is a <nil>`:                  []any{"none", nil, int64(0)},
		`time is a string`:                   []any{"none", int64(0), ""},
		`"channel" with -1, expected a time`: []any{"channel", int64(-1), int64(0)},
		`expected a time from 0 to 1h0m0s`:   []any{"workspace", int64(3_600_000_001), int64(0)},
	} {
		if _, err := decodeAnswered(reply); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v; expected an error that says %q", reply, err, want)
		}
	}
}
