package redact_test

import (
	"strings"
	"testing"

	"notifier/internal/redact"
)

func TestServersAreListedWithoutSecrets(t *testing.T) {
	for list, want := range map[string]string{
		"nats://me:secret@one:4222, token@two, [::1]:4222": "nats://one:4222, nats://two, nats://[::1]:4222",
		"nats://me:p%40ss@one:4222":                        "nats://one:4222",
		"tls://one":                                        "tls://one",
		"%zz":                                              "?",
		"":                                                 "?",
	} {
		if got := redact.Servers(strings.Split(list, ",")); got != want {
			t.Errorf("%q: %q, expected %q", list, got, want)
		}
	}
}

func TestTheAPIHasItsPathWithoutSecrets(t *testing.T) {
	for raw, want := range map[string]string{
		"https://slack.com/api/":                 "https://slack.com/api/",
		"https://me:secret@proxy.example/slack":  "https://proxy.example/slack",
		"https://proxy.example/T0123/api/?a=b#c": "https://proxy.example/.../api/",
		"https://proxy.example/aaaabbbbccccd/":   "https://proxy.example/.../",
		"https://proxy.example/%61pi/":           "https://proxy.example/.../",
		"https://proxy.example":                  "https://proxy.example",
		"me:secret@proxy.example":                "?",
		"%zz":                                    "?",
	} {
		if got := redact.API(raw); got != want {
			t.Errorf("%q: %q, expected %q", raw, got, want)
		}
	}
}

func TestRedisHasServersAndDatabase(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://:secret@one:6379/0":                                  "redis://one:6379/0",
		"unix://me:secret@/run/redis.sock?db=1":                       "unix:///run/redis.sock",
		"rediss://me:secret@one?addr=x:secret@two:1&password=secret":  "rediss://one?addr=two:1",
		"redis://s:26379?master_name=main&sentinel_password=secret#x": "redis://s:26379?master_name=main",
		"me:secret": "?",
	} {
		if got := redact.Redis(raw); got != want {
			t.Errorf("%q: %q, expected %q", raw, got, want)
		}
	}
}
