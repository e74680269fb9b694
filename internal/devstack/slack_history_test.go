package devstack

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// historyAnswer decodes a response of conversations.history or conversations.replies.
type historyAnswer struct {
	OK       bool
	Error    string
	Messages []struct {
		Text     string
		Metadata json.RawMessage
	}
	HasMore bool `json:"has_more"`
	Next    struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

// ask fetches one page with arguments such as "channel=C1&limit=2", and also returns its joined texts.
func ask(t *testing.T, s *Slack, client *http.Client, method, arguments string) (answer historyAnswer, texts string) {
	t.Helper()
	status, body, err := post(t, client, s.APIURL()+method, formType, "token=xoxb-1&"+arguments)
	if err != nil || status != http.StatusOK {
		t.Fatal(status, err)
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	for _, m := range answer.Messages {
		texts += m.Text
	}
	return answer, texts
}

// send posts a message through the Web API and returns its channel and timestamp.
func send(t *testing.T, s *Slack, client *http.Client, arguments string) (channel, ts string) {
	t.Helper()
	_, body, err := post(t, client, s.APIURL()+"chat.postMessage", formType, "token=xoxb-1&"+arguments)
	var answer struct {
		OK          bool
		Channel, TS string
	}
	if err != nil || json.Unmarshal([]byte(body), &answer) != nil || !answer.OK {
		t.Fatalf("%s: %v %s", arguments, err, body)
	}
	return answer.Channel, answer.TS
}

func TestSlackHistory(t *testing.T) {
	s, client := startSlack(t)
	var at []string
	for _, text := range []string{"a", "b", "c", "d", "e"} {
		_, ts := send(t, s, client, "channel=C1&text="+text)
		at = append(at, ts)
	}
	send(t, s, client, "channel=C2&text=x")
	send(t, s, client, "channel=C1&text=f&thread_ts="+at[1])
	send(t, s, client, "channel=C1&text=g&thread_ts="+at[1])

	for _, test := range []struct{ method, arguments, want string }{
		{"conversations.history", "channel=C1", "edcba"},
		{"conversations.history", "channel=C2", "x"},
		{"conversations.history", "channel=C1&limit=2", "ed cb a"},
		{"conversations.history", "channel=C1&oldest=" + at[1], "edc"},
		{"conversations.history", "channel=C1&inclusive=1&oldest=" + at[1], "edcb"},
		{"conversations.history", "channel=C1&oldest=" + at[0] + "&latest=" + at[4] + "&limit=2", "dc b"},
		{"conversations.history", "channel=C1&oldest=" + at[0] + "&limit=2", "cb ed"}, // forward, see page
		{"conversations.replies", "channel=C1&ts=" + at[1], "bfg"},
		{"conversations.replies", "channel=C1&limit=2&ts=" + at[1], "bf g"},
	} {
		var pages []string
		for cursor := ""; ; {
			answer, texts := ask(t, s, client, test.method, test.arguments+"&cursor="+url.QueryEscape(cursor))
			pages = append(pages, texts)
			cursor = answer.Next.Cursor
			if !answer.OK || answer.HasMore != (cursor != "") {
				t.Fatalf("%s: %+v", test.arguments, answer)
			}
			if cursor == "" {
				break
			}
		}
		if got := strings.Join(pages, " "); got != test.want {
			t.Errorf("%s %s: %q, want %q", test.method, test.arguments, got, test.want)
		}
	}
	for arguments, want := range map[string]string{
		"conversations.history?channel=alerts":         "channel_not_found", // a name is not accepted
		"conversations.replies?channel=C2&ts=" + at[1]: "thread_not_found",
	} {
		method, arguments, _ := strings.Cut(arguments, "?")
		if answer, _ := ask(t, s, client, method, arguments); answer.Error != want {
			t.Errorf("%s %s: %q, want %q", method, arguments, answer.Error, want)
		}
	}
}

func TestSlackShowsMetadataWhereItIsAskedFor(t *testing.T) {
	s, client := startSlack(t)
	const metadata = `{"event_type":"note","event_payload":{"id":"7"}}`
	send(t, s, client, "channel=C1&text=hi&metadata="+url.QueryEscape(metadata))
	for arguments, want := range map[string]string{"": `{"event_type":"note"}`, "&include_all_metadata=1": metadata} {
		answer, _ := ask(t, s, client, "conversations.history", "channel=C1"+arguments)
		if got := string(answer.Messages[0].Metadata); got != want {
			t.Errorf("%q: %s, want %s", arguments, got, want)
		}
	}
}
