package event_test

import (
	"fmt"
	"strings"
	"testing"

	"notifier/internal/event"
)

func TestUnread(t *testing.T) {
	t.Parallel()
	binary := map[string][]string{"Ce-Specversion": {"1.0"}}
	for _, c := range []struct {
		header  map[string][]string
		payload string
		want    string
	}{
		{nil, `{"message":"x"}`, "[{message text}]"},
		{nil, `{"txt":"x"}`, "[{txt text}]"},
		{nil, `{"Text":"x","CHANNEL":"#ops","threadTs":"1"}`, "[{CHANNEL channel} {Text text} {threadTs thread_ts}]"},
		{nil, `{"text":"x","chanel":"#ops","block":[],"costs":2}`, "[{block blocks} {chanel channel} {costs cost}]"},
		{nil, "\uFEFF" + `{"attachments":[],"event_id":"1"}`, "[{attachments blocks} {event_id id}]"},

		{nil, `{"text":"x","message":"y","Text":"z"}`, "[]"}, // what is meant is there
		{nil, `{"text":"x","host":"db1","code":1,"type":"a","uid":1,"title":"b","changed":1,"":1}`, "[]"},
		{nil, `disk full`, "[]"},
		{nil, `["message"]`, "[]"},
		{nil, `{"message":`, "[]"},
		{map[string][]string{"Content-Type": {"text/plain"}}, `{"message":"x"}`, "[]"},

		// an extension
		{nil, `{"specversion":"1.0","message":"x","data":{"message":"x","ID":"1"}}`, "[{message text}]"},
		{nil, `{"specversion":"1.0","data":"message"}`, "[]"},
		{nil, `{"specversion":1,"message":"x"}`, "[{message text}]"},
		{binary, `{"message":"x","timestamp":"1"}`, "[{message text}]"},
		{nil, `{"` + strings.Repeat("x", 1<<20) + `":1}`, "[]"},
	} {
		if got := fmt.Sprint(event.Unread(event.Message{Header: c.header, Data: []byte(c.payload)})); got != c.want {
			t.Errorf("%.80s: %s, expected %s", c.payload, got, c.want)
		}
	}
}
