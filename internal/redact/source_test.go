package redact_test

import (
	"strings"
	"testing"

	"notifier/internal/redact"
)

func TestSourcesKeepNoSecrets(t *testing.T) {
	for source, want := range map[string]string{
		// Without a secret.
		"https://ci.example/job1":          "https://ci.example/job1",
		"https://ci.example:8443/a/b#L12":  "https://ci.example:8443/a/b#L12",
		"http://[::1]:8080/x":              "http://[::1]:8080/x",
		"/sensors/tn-1234567/alerts":       "/sensors/tn-1234567/alerts",
		"urn:uuid:6e8bc430-9c3a-11d9-9669": "urn:uuid:6e8bc430-9c3a-11d9-9669",
		"mailto:ops@lists.example.org":     "mailto:ops@lists.example.org",
		"https://medium.example/@user/x":   "https://medium.example/@user/x",
		"team@example.org":                 "team@example.org",
		"What now? It failed":              "What now? It failed",
		"Is it up? a=b":                    "Is it up? a=b",
		"payments-api (eu-1): worker 3":    "payments-api (eu-1): worker 3",
		"a=b":                              "a=b",
		"C:\\jobs\\nightly":                "C:\\jobs\\nightly",
		"urn:example:token:issuer":         "urn:example:token:issuer",
		"repo@sha256:0123":                 "repo@sha256:0123",
		"github.com/o/r":                   "github.com/o/r",
		"Basic monitoring":                 "Basic monitoring",
		// With a secret.
		"https://me:hunter2@ci.example/job1":                            "https://ci.example/job1",
		"https://hunter2@github.com/o/r":                                "https://github.com/o/r",
		"https://me:hun/ter2@ci.example/job1":                           "https://[redacted]",
		"https://me:hunter2":                                            "https://[redacted]",
		"https://me:hun@ter2@ci.example":                                "https://ci.example",
		"https://ci.example/job?hunter2":                                "https://ci.example/job",
		"https://ci.example/job?a=1&token=hunter2#x":                    "https://ci.example/job",
		"https://ci.example/#access_token=hunter2":                      "https://ci.example/",
		"/ci/job?key=hunter2":                                           "/ci/job",
		"job?token=hunter2&a=b (nightly)":                               "job (nightly)",
		"from https://me:hunter2@a/ and https://b/?hunter2":             "from https://a/ and https://b/",
		"nats://a:hunter2@one:4222,nats://b:hunter2@two:4222":           "nats://one:4222,nats://two:4222",
		"https://proxy/https://me:hunter2@ci/x":                         "https://proxy/https://ci/x",
		"postgres://app:hunter2@db/orders":                              "postgres://db/orders",
		"deploy:hunter2@ci.example":                                     "ci.example",
		"https:\\\\me:hunter2@ci.example":                               "ci.example",
		"token=hunter2":                                                 "token=[redacted]",
		"job a, API_KEY = hunter2, b":                                   "job a, API_KEY = [redacted], b",
		`{"password":"hunter2","job":1}`:                                `{"password":"[redacted]","job":1}`,
		"Authorization: Bearer hunter2":                                 "Authorization: Bearer [redacted]",
		"cron;sessionid=hunter2":                                        "cron;sessionid=[redacted]",
		"bot xoxb-hunter2-abc":                                          "bot [redacted]",
		"xoxe.xoxp-1-hunter2":                                           "[redacted]",
		"xapp-1-hunter2":                                                "[redacted]",
		"ghp_hunter2hunter2hunter2":                                     "[redacted]",
		"x/glpat-hunter2hunter2hunter2":                                 "x/[redacted]",
		"AKIAHUNTER2HUNTER222":                                          "[redacted]",
		"eyJhbGciOiJI.eyJodW50ZXIy.hunter2":                             "[redacted]",
		"https://hooks.slack.com/services/T0/B0/hunter2":                "https://hooks.slack.com/[redacted]",
		"hooks.slack.com/services/T0/B0/hunter2":                        "hooks.slack.com/[redacted]",
		"https://HOOKS.Slack.com/workflows/hunter2 x":                   "https://HOOKS.Slack.com/[redacted] x",
		"https://discord.example/api/webhooks/1/hunter2":                "https://discord.example/api/webhooks/[redacted]",
		"/services/T01234567/B01234567/hunter2hunter2hunter2":           "/services/[redacted]",
		"https://" + strings.Repeat("h", 300) + "/x":                    "https://[redacted]",
		"-----BEGIN RSA PRIVATE KEY----- hunter2":                       "[redacted]",
		"https://api.telegram.org/bot123456:" + strings.Repeat("h", 35): "https://api.telegram.org/[redacted]",
	} {
		got := redact.Source(source, true)
		if got != want {
			t.Errorf("%q: %q, expected %q", source, got, want)
		}
		if again := redact.Source(got, true); again != got {
			t.Errorf("%q becomes %q when it is read again", got, again)
		}
		if strings.Contains(strings.ToLower(got), "hunter2") {
			t.Errorf("%q: the secret is in %q", source, got)
		}
	}
}

// The truncated part could have held the @ that marks the rest as a password.
func TestACutSourceKeepsNoBeginningOfASecret(t *testing.T) {
	for source, want := range map[string]string{
		"me:hunter2hunter2":              "me:[redacted]",
		"https://me:hunter2hunter2":      "https://[redacted]",
		"https://ci.example/long/path/x": "https://ci.example/long/path/x",
		"a: plain text of people":        "a: plain text of people",
		strings.Repeat("x", 1024):        strings.Repeat("x", 1024),
	} {
		if got := redact.Source(source, false); got != want {
			t.Errorf("%q: %q, expected %q", source, got, want)
		}
	}
}

func BenchmarkSource(b *testing.B) {
	for name, source := range map[string]string{"url": "https://ci.example/job1", "hostile": strings.Repeat("a:b@=?#://xox", 79)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				redact.Source(source, true)
			}
		})
	}
}
