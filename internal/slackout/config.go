package slackout

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/slack-go/slack"
)

// Config says where and how to post. It prints without its secrets, whatever the verb.
type Config struct {
	Token      string // a bot token; exactly one of Token and WebhookURL is set
	WebhookURL string // an incoming webhook, http or https

	APIURL  string            // base of the Web API; empty: Slack's own. A missing slash at the end is added
	Channel string            // where an event goes that has no channel and no route; needed with Token
	Routes  map[string]string // channel by category

	// AllowMarkup trusts the events: texts and blocks go out as the publisher wrote them, with their links
	// and mentions. Without it both are neutralised, see the package comment.
	AllowMarkup bool

	Timeout time.Duration // for one request, from connecting to the end of the answer; above 0
}

// String describes the Config without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("slackout.Config{Token:%s WebhookURL:%s Channel:%q Routes:%d AllowMarkup:%t Timeout:%s}",
		redacted(c.Token), redacted(c.WebhookURL), c.Channel, len(c.Routes), c.AllowMarkup, c.Timeout)
}

// GoString is String: %#v would otherwise print every field.
func (c Config) GoString() string { return c.String() }

// Format prints String for every verb: %x or %q on a struct would otherwise reach into its fields.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// MarshalText keeps the secrets out of encoders that fall back to a value's text or fields.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func redacted(secret string) string {
	if secret == "" {
		return "unset"
	}
	return "set"
}

// normalise checks the Config and fills in what is left out. Its errors quote no value, since each of these
// fields can hold a secret: a password can sit in either URL.
func (c Config) normalise() (Config, error) {
	switch {
	case c.Token == "" && c.WebhookURL == "":
		return c, errors.New("slack: a bot token or a webhook URL is needed")
	case c.Token != "" && c.WebhookURL != "":
		return c, errors.New("slack: a bot token and a webhook URL exclude each other")
	case c.Token != "" && c.Channel == "":
		return c, errors.New("slack: a default channel is needed with a bot token")
	case c.WebhookURL != "" && !IsHTTP(c.WebhookURL):
		return c, errors.New("slack: the webhook URL is not an http or https URL")
	case c.Timeout <= 0:
		return c, errors.New("slack: the timeout of a post must be above 0")
	}
	if c.APIURL == "" {
		c.APIURL = slack.APIURL
	}
	if !IsHTTP(c.APIURL) {
		return c, errors.New("slack: the API URL is not an http or https URL")
	}
	if !strings.HasSuffix(c.APIURL, "/") {
		c.APIURL += "/"
	}
	return c, nil
}

// IsHTTP reports whether a text is an http or https URL with a host, as APIURL and WebhookURL have to be.
func IsHTTP(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}
