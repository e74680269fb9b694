package redact_test

import (
	"strings"
	"testing"
	"time"

	"notifier/internal/redact"
)

func TestTextHasNoUsersAndPasswords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		// Without a user.
		"What now? It failed":               "What now? It failed",
		"https://ci.example:8443/a/b?c=1#d": "https://ci.example:8443/a/b?c=1#d",
		"urn:uuid:6e8bc430-9c3a-11d9-9669":  "urn:uuid:6e8bc430-9c3a-11d9-9669",
		"https://medium.example/@user/x":    "https://medium.example/@user/x",
		"/sensors/tn-1234567/alerts":        "/sensors/tn-1234567/alerts",
		// With one.
		"https://me:hunter2@ci.example/job1":                "https://ci.example/job1",
		"//me:hunter2@ci.example/job1":                      "//ci.example/job1",
		"https://me:hun@hunter2@ci.example":                 "https://ci.example",
		"https://me:%68unter2@ci.example?x@y":               "https://ci.example?x@y",
		"from https://me:hunter2@a/ and https://hunter2@b/": "from https://a/ and https://b/",
		"<https://me:hunter2@ci.example>, next":             "<https://ci.example>, next",
		"https://proxy/https://me:hunter2@ci/x":             "https://proxy/https://ci/x",
		// In another encoding.
		"https%3A%2F%2Fme:hunter2%40ci.example%2F1":     "https%3A%2F%2F[redacted]%40ci.example%2F1",
		"to=https:%252f%252Fme%253Ahunter2%2540ci next": "to=https:%252f%252F[redacted]%2540ci next",
		`{"url":"https:\/\/me:hunter2@ci"}`:             `{"url":"https:\/\/[redacted]@ci"}`,
		"https%3A%2F%2Fci.example%2F1":                  "https%3A%2F%2Fci.example%2F1",
		// With an invalid host.
		"https://me:hunter2":                                  "https://[redacted]",
		"https://me:hun/ter2@ci.example/job1 x":               "https://[redacted] x",
		"nats://a:hunter2@one:4222,nats://b:hunter2@two:4222": "nats://[redacted]",
		"https://me:hunt\x00er2@ci.example":                   "https://[redacted]",
		"https://%zz@ci.example\u2028next":                    "https://[redacted]\u2028next",
	} {
		got := redact.Text(text)
		if got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
		if strings.Contains(got, "hunter2") {
			t.Errorf("%q: the password is in %q", text, got)
		}
	}
}

// TestTextTakesLinearTime: a megabyte of anything takes milliseconds.
func TestTextTakesLinearTime(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"//", "://a:b@", "//a:b", "x", " //%"} {
		began := time.Now()
		redact.Text(strings.Repeat(unit, 1<<20/len(unit)))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%q repeated: %s", unit, took)
		}
	}
}

// FuzzText: no text around a URL shows its password.
func FuzzText(f *testing.F) {
	f.Add("see https://me:", "@ci.example/x?y=1#z=2")
	f.Add("//", "//a@b")
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, url := range []string{"https://u:S3CRET0@h/", "//S3CRET0@h", "x://u:S3/CRET0@h"} {
			got := redact.Text(before + " " + url + " " + after)
			clean := !strings.Contains(before+after, "CRET0")
			if clean && strings.Contains(got, "CRET0") {
				t.Errorf("%q and %q around %q: %q", before, after, url, got)
			}
		}
	})
}

// The password of a truncated text has lost its @.
func TestBeginningHasNoEncodedPassword(t *testing.T) {
	for _, text := range []string{
		"https%3A%2F%2Fme%3Ahunter2", `{"url":"https:\/\/me:hunter2`, "to=https:%252f%252Fme%253Ahunter2", "https%3A//me%3Ahunter2",
	} {
		if shown := redact.Beginning(text); strings.Contains(shown, "hunter2") {
			t.Errorf("%s: %s", text, shown)
		}
	}
}
