package slackout

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"notifier/internal/pattern"
	"notifier/internal/redact"
	"notifier/internal/term"
)

// Config defines where and how to post. It prints without its secrets, with any verb.
type Config struct {
	Token      string // a bot token; exactly one of Token and WebhookURL is set
	WebhookURL string // an incoming webhook, http or https

	// base URL of the Web API; empty: Slack's own. A missing slash at the end is added
	APIURL  string
	Channel string                // for events without a channel and a route; required with Token
	Routes  pattern.Table[string] // channel by category or pattern; the most specific one counts

	// AllowMarkup trusts the events: messages keep their links and mentions. Otherwise they are sanitized; see
	// the package comment.
	AllowMarkup bool

	Timeout time.Duration // for one request, from connecting to the end of the response; above 0

	// RootCAs replaces the system's roots if it is not nil. No setting sets it; dev, demo and tests do.
	RootCAs *x509.CertPool
}

// String describes the Config without its secrets.
func (c Config) String() string {
	return fmt.Sprintf("slackout.Config{Token:%s WebhookURL:%s Channel:%q Routes:%d AllowMarkup:%t Timeout:%s}",
		redacted(c.Token), redacted(c.WebhookURL), c.Channel, c.Routes.Len(), c.AllowMarkup, c.Timeout)
}

// Format prints String for every verb: %x or %q on a struct would otherwise reach into its fields.
func (c Config) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(c.String())) }

// MarshalText keeps the secrets out of encoders, which would otherwise use the fields.
func (c Config) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func redacted(secret string) string {
	if secret == "" {
		return "unset"
	}
	return "set"
}

// normalise validates the Config and sets the defaults. Its errors quote no value, because each of these
// fields can hold a secret: either URL can contain a password.
func (c Config) normalise() (Config, error) {
	switch {
	case c.Token == "" && c.WebhookURL == "":
		return c, errors.New("slack: a bot token or a webhook URL is required")
	case c.Token != "" && c.WebhookURL != "":
		return c, errors.New("slack: a bot token and a webhook URL exclude each other")
	case c.Token != "" && c.Channel == "":
		return c, errors.New("slack: a default channel is required with a bot token")
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

// IsHTTP reports whether raw is an http or https URL with a host, as APIURL and WebhookURL have to be.
func IsHTTP(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// ForeignHost returns the host of the webhook if it is not Slack's, as with another chat server, else "".
func (c Config) ForeignHost() string {
	u, err := url.Parse(c.WebhookURL)
	if err != nil {
		return ""
	}
	switch host := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); host {
	case "hooks.slack.com", "hooks.slack-gov.com":
		return ""
	default:
		return host
	}
}

// Channels are those that the Config names, each once, in alphabetical order.
func (c Config) Channels() []string {
	var channels []string
	if c.Channel != "" {
		channels = append(channels, c.Channel)
	}
	for _, channel := range c.Routes.All() {
		channels = append(channels, channel)
	}
	slices.Sort(channels)
	return slices.Compact(channels)
}

const (
	maxExplanation = 300     // bytes of Error.Explanation
	readOfReply    = 2 << 10 // bytes of Slack's text that are looked at
)

// explain turns the text in a response of Slack, or of a proxy that poses as Slack, into an
// Error.Explanation.
func (c Config) explain(text string) string {
	redacted := redact.Text
	if len(text) > readOfReply {
		text, redacted = text[:readOfReply], redact.Beginning
	}
	text = strings.ToValidUTF8(text, "")
	for _, secret := range c.secrets() {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	text = redacted(term.Printable(strings.Join(strings.Fields(text), " ")))
	return term.Cut(text, maxExplanation) // cut last: half of a secret would not be recognized
}

// secrets returns the credentials of the Config in the forms in which a response may quote them.
func (c Config) secrets() []string {
	secrets := []string{c.Token, c.WebhookURL}
	for _, raw := range []string{c.WebhookURL, c.APIURL} {
		u, err := url.Parse(raw)
		if err != nil {
			continue
		}
		if password, set := u.User.Password(); set {
			secrets = append(secrets, password)
		}
		if raw == c.WebhookURL {
			path := strings.Trim(u.Path, "/")
			secrets = append(secrets, path, path[strings.LastIndexByte(path, '/')+1:])
		}
	}
	return slices.DeleteFunc(secrets, func(s string) bool { return len(s) < 4 })
}
