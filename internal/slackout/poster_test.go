package slackout

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"notifier/internal/devstack"
	"notifier/internal/devstack/https"
	"notifier/internal/event"
	"notifier/internal/pattern"
	"notifier/test/kit"
)

func TestMain(m *testing.M) {
	kit.Overlap(12) // they wait for timeouts
	goleak.VerifyTestMain(m)
}

const testToken = "xoxb-1234-SeCrEtToKeN"

// way is one of the two ways of posting, against a fake Slack.
type way struct {
	name   string
	config func(*devstack.Slack) Config
}

var ways = []way{
	{"api", func(s *devstack.Slack) Config {
		return Config{
			Token: testToken, APIURL: s.APIURL(), Channel: "C0DEFAULT", Timeout: 10 * time.Second, RootCAs: trusted().Pool(),
		}
	}},
	{"webhook", func(s *devstack.Slack) Config {
		return Config{WebhookURL: s.WebhookURL(), Timeout: 10 * time.Second, RootCAs: trusted().Pool()}
	}},
}

// trusted is the certificate of every fake Slack of these tests.
var trusted = sync.OnceValue(func() *https.Certificate {
	certificate, err := https.SelfSigned("127.0.0.1", "slack.test")
	if err != nil {
		panic(err)
	}
	return certificate
})

// startSlack starts a fake Slack that speaks HTTPS with HTTP/2 and HTTP/1.1, as Slack does.
func startSlack(t *testing.T) *devstack.Slack {
	t.Helper()
	return startSlackTLS(t, &https.Server{Certificate: trusted()})
}

func startSlackTLS(t *testing.T, secure *https.Server) *devstack.Slack {
	t.Helper()
	s, err := devstack.StartSlackTLS("127.0.0.1:0", secure)
	kit.Check(t, err)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func newPoster(t *testing.T, config Config) *Poster {
	t.Helper()
	p, err := New(config)
	kit.Check(t, err)
	t.Cleanup(p.Close)
	return p
}

func hello() event.Event { return event.Event{ID: "e1", Category: "errors", Text: "hello"} }

func TestPostReachesSlack(t *testing.T) {
	ev := event.Event{
		ID: "e1", Category: "errors", Text: "5 > 4 & <!channel>", ThreadTS: "1732077541.000100",
		Blocks:      json.RawMessage(`[{"type":"section","text":{"type":"mrkdwn","text":"<@U1>"}}]`),
		Attachments: json.RawMessage(`[{"color":"danger","text":"<!here>","fields":[{"title":"a","value":"<b>"}]}]`),
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			receipt, err := newPoster(t, way.config(s)).Post(t.Context(), ev)
			kit.Check(t, err)
			messages := s.Messages()
			if len(messages) != 1 {
				t.Fatalf("%d messages, want 1", len(messages))
			}
			m := messages[0]
			if want := "5 &gt; 4 &amp; &lt;!channel&gt;"; m.Text != want {
				t.Errorf("text %q, want %q", m.Text, want)
			}
			kit.WantJSON(t, m.Blocks, `[{"type":"section","text":{"type":"mrkdwn","text":"&lt;@U1&gt;","verbatim":true}}]`)
			kit.WantJSON(t, json.RawMessage(m.Form["attachments"]),
				`[{"color":"danger","text":"&lt;!here&gt;","fields":[{"title":"a","value":"&lt;b&gt;"}]}]`)
			if m.ThreadTS != ev.ThreadTS {
				t.Errorf("thread_ts %q, want %q", m.ThreadTS, ev.ThreadTS)
			}
			if m.Form["unfurl_links"] != "false" || m.Form["unfurl_media"] != "false" {
				t.Errorf("unfurl_links=%q unfurl_media=%q, want both false", m.Form["unfurl_links"], m.Form["unfurl_media"])
			}
			if m.Form["link_names"] != "" || m.Form["parse"] != "" {
				t.Errorf("link_names=%q parse=%q, want neither", m.Form["link_names"], m.Form["parse"])
			}
			want := Receipt{Channel: "C0DEFAULT", TS: m.TS}
			if way.name == "webhook" {
				want = Receipt{}
				if _, sent := m.Form["metadata"]; sent {
					t.Errorf("a webhook was given metadata: %s", m.Form["metadata"])
				}
			} else {
				kit.WantJSON(t, m.Metadata,
					`{"event_type":"notifier_event","event_payload":{"event_id":"e1","category":"errors"}}`)
			}
			if receipt != want {
				t.Errorf("receipt %+v, want %+v", receipt, want)
			}
		})
	}
}

func TestAllowedMarkupGoesOutUnchanged(t *testing.T) {
	ev := event.Event{
		Text: "<!here> <https://example.com|a &amp; b>",
		Blocks: json.RawMessage(`[{"type":"section","made_up":1.50,"text":{"type":"mrkdwn","text":"<@U1>"}},` +
			`{"type":"not_yet_known","deep":{"n":12345678901234567890}}]`),
		Attachments: json.RawMessage(`[{"text":"<!here>\u202e","n":1.50}]`),
		ThreadTS:    "1732077541.000100",
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			config := way.config(s)
			config.AllowMarkup = true
			if _, err := newPoster(t, config).Post(t.Context(), ev); err != nil {
				t.Fatal(err)
			}
			m := s.Messages()[0]
			if m.Text != ev.Text {
				t.Errorf("text %q, want %q", m.Text, ev.Text)
			}
			kit.WantJSON(t, m.Blocks, string(ev.Blocks))
			kit.WantJSON(t, json.RawMessage(m.Form["attachments"]), string(ev.Attachments))
			if m.ThreadTS != ev.ThreadTS {
				t.Errorf("thread_ts %q, want %q", m.ThreadTS, ev.ThreadTS)
			}
			if m.Form["unfurl_links"] != "" {
				t.Errorf("unfurl_links=%q, want Slack's default", m.Form["unfurl_links"])
			}
		})
	}
}

func TestChannel(t *testing.T) {
	p := newPoster(t, Config{
		Token: testToken, Channel: "C0DEFAULT", Timeout: time.Second, Routes: pattern.MustTable(map[string]string{
			"errors": "C0ERRORS", "team-a.>": "C0TEAM", "team-a.*.db": "C0DB",
		}),
	})
	for _, test := range []struct {
		ev   event.Event
		want string
	}{
		{event.Event{Category: "errors", Channel: "C0OWN"}, "C0OWN"},
		{event.Event{Category: "errors"}, "C0ERRORS"},
		{event.Event{Category: "deploys"}, "C0DEFAULT"},
		{event.Event{Category: "team-a.job1.db"}, "C0DB"}, // "*" is more specific than ">"
	} {
		if got := p.Channel(test.ev); got != test.want {
			t.Errorf("Channel(%+v) = %q, want %q", test.ev, got, test.want)
		}
	}
}

// A response with ok is a success even if slack-go cannot decode the echo of the message.
func TestReceiptNamesTheChannelAsSlackDoes(t *testing.T) {
	s := startSlack(t)
	p := newPoster(t, ways[0].config(s))
	s.Respond(devstack.Next(
		devstack.Response{Body: `{"ok":true,"channel":"C9","ts":"1.000001","message":{"text":7,"blocks":"?"}}`},
		devstack.Response{Body: `{"ok":true}`},
	))
	for _, want := range []Receipt{{"C9", "1.000001"}, {"C0DEFAULT", ""}} {
		got, err := p.Post(t.Context(), hello())
		if err != nil || got != want {
			t.Errorf("Post = %+v, %v, want %+v", got, err, want)
		}
	}
}

func TestAPIURLWithoutSlash(t *testing.T) {
	s := startSlack(t)
	config := ways[0].config(s)
	config.APIURL = strings.TrimSuffix(s.APIURL(), "/")
	if _, err := newPoster(t, config).Post(t.Context(), hello()); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	good := Config{Token: testToken, Channel: "C0", Timeout: time.Second}
	for name, change := range map[string]func(*Config){
		"neither":         func(c *Config) { c.Token = "" },
		"both":            func(c *Config) { c.WebhookURL = "https://hooks.slack.com/services/SeCrEt" },
		"no channel":      func(c *Config) { c.Channel = "" },
		"no timeout":      func(c *Config) { c.Timeout = 0 },
		"bad API URL":     func(c *Config) { c.APIURL = "slack.com/SeCrEt" },
		"bad webhook URL": func(c *Config) { c.Token, c.WebhookURL = "", "://SeCrEt" },
	} {
		config := good
		change(&config)
		_, err := New(config)
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if strings.Contains(err.Error(), "SeCrEt") {
			t.Errorf("%s: the error quotes a secret: %v", name, err)
		}
	}
}

func wantError(t *testing.T, err error, want Error) {
	t.Helper()
	var got *Error
	if !errors.As(err, &got) {
		t.Errorf("error %v, want an *Error: %v", err, &want)
		return
	}
	if got.Class != want.Class || got.Code != want.Code || got.RetryAfter != want.RetryAfter || got.ChannelRefused != want.ChannelRefused {
		t.Errorf("error %v (channel: %t), want %v (channel: %t)", got, got.ChannelRefused, &want, want.ChannelRefused)
	}
}
