package devstack

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"notifier/test/kit"
)

// historyAnswer is an answer of conversations.history or conversations.replies.
type historyAnswer struct {
	OK       bool
	Error    string
	Messages []struct {
		Text, TS string
		BotID    string          `json:"bot_id"`
		Metadata json.RawMessage `json:"metadata"`
	}
	HasMore bool `json:"has_more"`
	Next    struct {
		Cursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

// ask asks for the history with arguments such as "channel=C1&limit=2".
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

// send posts a text by the API and returns the answer's channel and timestamp.
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
		{"conversations.history", "channel=C3", ""},
		{"conversations.history", "channel=C1&limit=2", "ed cb a"},
		{"conversations.history", "channel=C1&oldest=" + at[1], "edc"},
		{"conversations.history", "channel=C1&inclusive=1&oldest=" + at[1], "edcb"},
		{"conversations.history", "channel=C1&latest=" + at[3], "cba"},
		{"conversations.history", "channel=C1&inclusive=true&latest=" + at[3], "dcba"},
		{"conversations.history", "channel=C1&oldest=" + at[0] + "&latest=" + at[4] + "&limit=2", "dc b"},
		{"conversations.history", "channel=C1&oldest=" + at[0] + "&limit=2", "cb ed"}, // forward, see page
		{"conversations.history", "channel=C1&oldest=0&limit=3", "cba ed"},
		{"conversations.replies", "channel=C1&ts=" + at[1], "bfg"},
		{"conversations.replies", "channel=C1&limit=2&ts=" + at[1], "bf g"},
		{"conversations.replies", "channel=C1&ts=" + at[0], "a"},
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
		"conversations.history?channel=":               "channel_not_found",
		"conversations.history?channel=%23alerts":      "channel_not_found",
		"conversations.history?channel=alerts":         "channel_not_found",
		"conversations.replies?channel=C1&ts=1.000001": "thread_not_found",
		"conversations.replies?channel=C2&ts=" + at[1]: "thread_not_found",
	} {
		method, arguments, _ := strings.Cut(arguments, "?")
		if answer, _ := ask(t, s, client, method, arguments); answer.Error != want {
			t.Errorf("%s %s: %q, want %q", method, arguments, answer.Error, want)
		}
	}
	if _, body, _ := post(t, client, s.APIURL()+"conversations.history", formType, "channel=C1"); !strings.Contains(body, "not_authed") {
		t.Errorf("without a token: %s", body)
	}
}

func TestSlackKeepsMetadata(t *testing.T) {
	s, client := startSlack(t)
	const metadata = `{"event_type":"note","event_payload":{"id":"7"}}`
	send(t, s, client, "channel=C1&text=hi&metadata="+url.QueryEscape(metadata))
	send(t, s, client, "channel=C1&text=ho")
	for arguments, want := range map[string]string{
		"channel=C1":                           `{"event_type":"note"}`,
		"channel=C1&include_all_metadata=0":    `{"event_type":"note"}`,
		"channel=C1&include_all_metadata=1":    metadata,
		"channel=C1&include_all_metadata=true": metadata,
	} {
		answer, texts := ask(t, s, client, "conversations.history", arguments)
		if texts != "hohi" || answer.Messages[0].Metadata != nil || string(answer.Messages[1].Metadata) != want {
			t.Errorf("%s: %+v", arguments, answer)
		}
	}
	messages := s.Messages()
	if string(messages[0].Metadata) != metadata || messages[1].Metadata != nil {
		t.Errorf("kept %s and %s", messages[0].Metadata, messages[1].Metadata)
	}
	data, err := json.Marshal(messages[0])
	if err != nil || !strings.Contains(string(data), `"metadata":`+metadata) {
		t.Errorf("the inbox shows %s, %v", data, err)
	}

	_, body, _ := post(t, client, s.APIURL()+"chat.postMessage", formType, "token=xoxb-1&channel=C1&text=hi&metadata=nonsense")
	if !strings.Contains(body, "invalid_metadata_format") {
		t.Errorf("metadata that is no JSON: %s", body)
	}
	_, _, _ = post(t, client, s.WebhookURL(), jsonType, `{"text":"hi","metadata":`+metadata+`}`)
	if m := s.Messages()[2]; m.Metadata != nil {
		t.Errorf("a webhook's metadata is kept: %s", m.Metadata)
	}
}

func TestSlackTellsTheIDOfAChannel(t *testing.T) {
	s, client := startSlack(t)
	first, _ := send(t, s, client, "channel=%23alerts&text=a")
	again, _ := send(t, s, client, "channel=alerts&text=b")
	other, _ := send(t, s, client, "channel=%23deploys&text=c")
	itself, _ := send(t, s, client, "channel=G1&text=d")
	if !isChannelID.MatchString(first) || again != first || other == first || itself != "G1" {
		t.Errorf("#alerts is %s and %s, #deploys %s, G1 %s", first, again, other, itself)
	}
	if _, texts := ask(t, s, client, "conversations.history", "channel="+first); texts != "ba" {
		t.Errorf("history of #alerts: %q", texts)
	}
	if got := s.Messages()[0].Channel; got != "#alerts" {
		t.Errorf("kept as posted to %q", got)
	}
}

func TestSlackHistoryMisbehaves(t *testing.T) {
	s, client := startSlack(t)
	for _, text := range []string{"a", "b", "c"} {
		send(t, s, client, "channel=C1&text="+text)
	}
	control := func(body string, want int) {
		t.Helper()
		if status, answer, err := post(t, client, s.URL()+"/fake/history", jsonType, body); err != nil || status != want {
			t.Errorf("%s: %d %s %v, want %d", body, status, answer, err, want)
		}
	}
	for _, body := range []string{"", "[]", `{"no_such":1}`, `{"page_size":-1}`, `{"retry_after":1}`} {
		control(body, http.StatusBadRequest)
	}
	look := func() (int, string) {
		t.Helper()
		changed := s.Changed()
		status, body, err := post(t, client, s.APIURL()+"conversations.history", formType, "token=xoxb-1&channel=C1")
		kit.Check(t, err)
		select {
		case <-changed:
		default:
			t.Error("a request for the history is not announced")
		}
		return status, body
	}
	control(`{"missing_scope":true}`, http.StatusOK)
	if status, body := look(); status != 200 || !strings.Contains(body, "missing_scope") {
		t.Errorf("without the scope: %d %s", status, body)
	}
	control(`{"retry_after":"1"}`, http.StatusOK)
	if status, body := look(); status != 429 || !strings.Contains(body, "ratelimited") {
		t.Errorf("limited: %d %s", status, body)
	}
	s.NextHistory(Behaviour{Status: 503}, Behaviour{})
	if status, _ := look(); status != 503 {
		t.Errorf("status %d, want what was queued", status)
	}
	if status, body := look(); status != 200 || !strings.Contains(body, `"ok":true`) {
		t.Errorf("%d %s, want the truth that was queued", status, body)
	}
	control(`{"page_size":2}`, http.StatusOK)
	if answer, texts := ask(t, s, client, "conversations.history", "channel=C1&limit=100"); texts != "cb" || !answer.HasMore {
		t.Errorf("a page of two: %+v", answer)
	}
	control(`{}`, http.StatusOK)
	if _, texts := ask(t, s, client, "conversations.history", "channel=C1"); texts != "cba" {
		t.Errorf("then %q", texts)
	}

	// Posts go on all the while, and are counted apart.
	control(`{"missing_scope":true,"retry_after":"1"}`, http.StatusOK)
	send(t, s, client, "channel=C1&text=d")
	if s.Requests() != 4 || s.HistoryRequests() != 6 {
		t.Errorf("%d posts and %d requests for the history, want 4 and 6", s.Requests(), s.HistoryRequests())
	}
	expectStats(t, s, client, map[string]int{"requests": 4, "accepted": 4, "queued": 0, "history": 6})
}
