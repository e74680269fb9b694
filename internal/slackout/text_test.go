package slackout

import (
	"strings"
	"testing"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

const ourText = "errors &lt;b&gt; <!date^1791115920^{time}|14:32 UTC>"

func TestPostTextPostsTheTextAsItIs(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			receipt, err := newPoster(t, way.config(s)).PostText(t.Context(), "C0OTHER", ourText)
			kit.Check(t, err)
			m := s.Messages()[0]
			if m.Text != ourText || m.Form["unfurl_links"] != "false" || m.Metadata != nil {
				t.Errorf("posted %+v", m)
			}
			want := Receipt{Channel: "C0OTHER", TS: m.TS}
			if way.name == "webhook" {
				want = Receipt{}
			}
			if m.Channel != "C0OTHER" || receipt != want {
				t.Errorf("receipt %+v, want %+v; posted to %s", receipt, want, m.Channel)
			}
		})
	}
}

func TestUpdateTextReplacesTheText(t *testing.T) {
	s := startSlack(t)
	p := newPoster(t, ways[0].config(s))
	// a name: the receipt has its ID, which an edit needs
	receipt, err := p.PostText(t.Context(), "#general", "first")
	kit.Check(t, err)
	kit.Check(t, p.UpdateText(t.Context(), receipt.Channel, receipt.TS, ourText))
	messages := s.Messages()
	if len(messages) != 1 || messages[0].Text != ourText || messages[0].TS != receipt.TS {
		t.Errorf("messages %+v, want one, edited", messages)
	}
	if parse := messages[0].Form["parse"]; parse != "none" {
		t.Errorf("parse=%q, want none: Slack's default for an edit makes mentions", parse)
	}
}

func TestUpdateTextFails(t *testing.T) {
	s := startSlack(t)
	p := newPoster(t, ways[0].config(s))
	receipt, err := p.PostText(t.Context(), "C0", "first")
	kit.Check(t, err)
	edit := func(channel, ts string) error { return p.UpdateText(t.Context(), channel, ts, "second") }
	for code, err := range map[string]error{
		"message_not_found": edit(receipt.Channel, "1.000001"),
		"channel_not_found": edit("#general", receipt.TS),
	} {
		if err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("%v, want %s", err, code)
		}
	}
	for _, code := range []string{"edit_window_closed", "cant_update_message", "message_not_found"} {
		s.Next(devstack.Behaviour{Code: code})
		failure, ok := edit(receipt.Channel, receipt.TS).(*Error)
		if !ok || failure.Class != Rejected || failure.Code != code {
			t.Errorf("%v, want %s, rejected", failure, code)
		}
	}
	s.Next(devstack.Behaviour{ResetAfter: true})
	wantError(t, edit(receipt.Channel, receipt.TS), Error{Class: Ambiguous, Code: "connection_reset"})
	if m := s.Messages(); len(m) != 1 || m[0].Text != "second" {
		t.Errorf("messages %+v, want the one that was edited before the cut", m)
	}
	s.Next(devstack.Behaviour{RetryAfter: "7"})
	if failure, ok := edit(receipt.Channel, receipt.TS).(*Error); !ok || failure.Class != RetryAfter {
		t.Errorf("%v, want a wait", failure)
	}
}

func TestAWebhookCannotEdit(t *testing.T) {
	s := startSlack(t)
	err := newPoster(t, ways[1].config(s)).UpdateText(t.Context(), "C0", "1.000001", "text")
	wantError(t, err, Error{Class: Rejected, Code: "not_supported"})
	if s.Requests() != 0 {
		t.Errorf("%d requests, want none", s.Requests())
	}
}
