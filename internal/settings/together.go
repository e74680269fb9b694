package settings

import (
	"crypto/tls"
	"crypto/x509"
	"maps"
	"os"
	"slices"
	"strings"

	"notifier/internal/event"
	"notifier/internal/outcome/recent"
	"notifier/internal/ratelimit"
)

// checkTogether checks settings that depend on each other, and derives values. Each check runs only if all of
// its settings are needed and have no problem of their own.
func (l *loader) checkTogether() {
	s := l.settings
	l.checkSlack()
	l.checkPair("NATS", s.NATS.Cert, s.NATS.Key)
	l.checkPair("REDIS", s.Store.Cert, s.Store.Key)
	if l.given["NATS_CREDS_FILE"] && l.given["NATS_NKEY_FILE"] {
		l.problem("NATS_NKEY_FILE", "is set, and so is NATS_CREDS_FILE; expected only one of them")
	}
	if l.valid("LIMIT_RESERVE", "LIMIT_GLOBAL") {
		l.invalid("LIMIT_RESERVE", s.Store.Limits.CheckReserve())
	}
	for name := range s.Store.Limits.Overrides.All() {
		l.checkCategory("LIMIT_OVERRIDES", name)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Store.Limits.Reserve)) {
		l.checkCategory("LIMIT_RESERVE", name)
	}
	for name := range s.Slack.Routes.All() {
		l.checkCategory("SLACK_ROUTES", name)
	}
	l.checkOutputs()
	l.openRedis()
	if s.DigestChannel == "" {
		s.DigestChannel = s.Slack.Channel
	}
	listed := map[string]bool{s.Slack.Channel: s.Slack.Channel != ""}
	for _, channel := range s.Slack.Routes.All() {
		listed[channel] = true
	}
	s.Events = event.Rules{
		Pattern:        s.NATS.Pattern,
		MaxBytes:       s.MaxBytes,
		ChannelAllowed: func(channel string) bool { return listed[channel] },
		CheckCost:      s.Store.Limits.CheckCost,
	}
}

// checkSlack looks at which settings are set, so it also runs beside those that cannot be read.
func (l *loader) checkSlack() {
	token, webhook := l.given["SLACK_BOT_TOKEN"], l.given["SLACK_WEBHOOK_URL"]
	if l.need["SLACK_BOT_TOKEN"] && l.need["SLACK_WEBHOOK_URL"] {
		switch {
		case token && webhook:
			l.problem("SLACK_WEBHOOK_URL", "is set, and so is SLACK_BOT_TOKEN; expected only one of them")
		case !token && !webhook:
			l.problem("SLACK_BOT_TOKEN", "is not set, nor is SLACK_WEBHOOK_URL; expected one of them: "+
				"a bot token (xoxb-...) or an incoming webhook")
		}
	}
	if token && !webhook && l.need["SLACK_CHANNEL"] && !l.given["SLACK_CHANNEL"] {
		l.problem("SLACK_CHANNEL", "is not set; expected the default channel, which a bot token needs")
	}
	for _, name := range []string{"SLACK_ROUTES", "DIGEST_CHANNEL"} {
		if webhook && l.given[name] && !l.bad[name] {
			l.problem(name, "is set together with SLACK_WEBHOOK_URL; expected a bot token: "+
				"a webhook posts to one fixed channel")
		}
	}
}

// checkPair checks a certificate and its key.
func (l *loader) checkPair(server, cert, key string) {
	certName, keyName := server+"_TLS_CERT", server+"_TLS_KEY"
	switch {
	case !l.valid(certName, keyName) || cert == "" && key == "":
	case cert == "":
		l.problem(certName, "is not set, but %s is; expected both or neither", keyName)
	case key == "":
		l.problem(keyName, "is not set, but %s is; expected both or neither", certName)
	default:
		if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
			l.problem(certName, "%v; expected a PEM certificate and its key in %s", err, keyName)
		}
	}
}

// checkCategory checks a name or pattern of categories in a setting: a category of NATS_SUBJECT has to match.
func (l *loader) checkCategory(setting, name string) {
	if !l.valid("NATS_SUBJECT") || !l.need[setting] {
		return
	}
	subject := l.settings.NATS.Pattern
	if meant, found := subject.Repeated(name); found {
		l.problem(setting, "%s repeats the prefix of NATS_SUBJECT %q; expected %s", name, subject, meant)
	} else if !subject.Gives(name) {
		l.problem(setting, "%s never matches, because the categories of NATS_SUBJECT %q are one token; "+
			"expected a name or pattern without dots", name, subject)
	}
}

// checkOutputs checks the subjects that a worker publishes to. A worker must not receive its own messages as
// events, and each stream needs its own subjects.
func (l *loader) checkOutputs() {
	s := l.settings
	if s.DeadLetter == "" && !l.bad["NATS_STREAM"] {
		// On one server no two streams may have the same subject, so each stream has another default.
		s.DeadLetter = strings.ToLower(s.NATS.Stream) + "-dead"
		if l.valid("DEAD_LETTER_SUBJECT", "NATS_STREAM") {
			l.invalid("DEAD_LETTER_SUBJECT", checkSubject(s.DeadLetter))
		}
	}
	for _, output := range []struct{ setting, subject string }{
		{"DEAD_LETTER_SUBJECT", s.DeadLetter}, {"DROPPED_SUBJECT", s.Dropped},
	} {
		if output.subject != "" && l.valid(output.setting, "NATS_SUBJECT") &&
			event.Overlap(output.subject+".>", s.NATS.Pattern.String()) {
			l.problem(output.setting, "%s would be read again through NATS_SUBJECT %s; expected a subject outside it",
				quoted(output.subject), quoted(s.NATS.Pattern.String()))
		}
		outcomes := recent.SubjectPrefix(s.NATS.Stream)
		if output.subject != "" && l.valid(output.setting, "NATS_STREAM") &&
			event.Overlap(output.subject+".>", outcomes+".>") {
			l.problem(output.setting, "%s would put events among the outcomes of NATS_STREAM %s; "+
				"expected a subject outside %s",
				quoted(output.subject), quoted(s.NATS.Stream), quoted(outcomes))
		}
	}
	if s.Dropped != "" && l.valid("DROPPED_SUBJECT", "DEAD_LETTER_SUBJECT") &&
		event.Overlap(s.Dropped+".>", s.DeadLetter+".>") {
		l.problem("DROPPED_SUBJECT", "%s would put dropped events among the dead letters; "+
			"expected a subject outside DEAD_LETTER_SUBJECT %s", quoted(s.Dropped), quoted(s.DeadLetter))
	}
}

// openRedis opens a worker's client if the worker's settings are needed, else a command's.
func (l *loader) openRedis() {
	s := &l.settings.Store
	if !l.valid("REDIS_URL", "REDIS_TLS_CA", "REDIS_TLS_CERT", "REDIS_TLS_KEY") {
		return
	}
	config, err := redisTLS(*s)
	switch {
	case err != nil:
	case l.need["SEND_CONCURRENCY"]:
		s.Redis, s.Guard, err = ratelimit.OpenGuarded(s.URL, config, max(l.settings.Concurrency, 1))
	default:
		s.Redis, err = ratelimit.Open(s.URL, config)
	}
	l.invalid("REDIS_URL", err)
}

// redisTLS returns nil if no file is named.
func redisTLS(s Store) (*tls.Config, error) {
	if s.CA == "" && s.Cert == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.CA != "" {
		content, err := os.ReadFile(s.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(content) // checkCA has seen that it has some
	}
	if s.Cert != "" {
		pair, err := tls.LoadX509KeyPair(s.Cert, s.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
