package event_test

import (
	"fmt"
	"testing"

	"notifier/internal/event"
)

func TestUnreadFieldsAreListed(t *testing.T) {
	t.Parallel()
	binary := map[string][]string{"Ce-Specversion": {"1.0"}}
	for _, c := range []struct {
		header  map[string][]string
		payload string
		want    string
	}{
		{nil, `{"message":"x","host":"db1"}`, "[host message]"},
		{nil, "\uFEFF" + `{"text":"x","Text":"y","CHANNEL":"#ops"}`, "[CHANNEL Text]"},
		{nil, `{"text":"x","blocks":[],"attachments":[],"id":"1","channel":"#a","thread_ts":"1","cost":1,"time":""}`, "[]"},
		{nil, `disk full`, "[]"},
		{nil, `["message"]`, "[]"},
		{nil, `{"message":`, "[]"},
		{map[string][]string{"Content-Type": {"text/plain"}}, `{"message":"x"}`, "[]"},
		{nil, `{"specversion":"1.0","subject":"x","data":{"message":"x","id":"1"}}`, "[id message]"},
		{nil, `{"specversion":"1.0","data":"message"}`, "[]"},
		{nil, `{"specversion":1,"text":"x"}`, "[specversion]"},
		{binary, `{"text":"x","time":"1"}`, "[time]"},
	} {
		got := fmt.Sprint(event.Unread(event.Message{Header: c.header, Data: []byte(c.payload)}))
		if got != c.want {
			t.Errorf("%s: %s, expected %s", c.payload, got, c.want)
		}
	}
}
