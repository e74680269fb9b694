package main

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/internal/settings"
	"notifier/test/kit"
)

// secret is in every setting that can hold one. It is spelled so that no other text has it.
const secret = "hunter2marker"

// failure is a way in which the services that a worker needs fail.
type failure struct {
	name     string
	settings map[string]string // INBOX is the fake Slack's webhook, STORE the address of Redis
	slack    devstack.Behaviour
	wait     string // what the worker says that it waits for once it has gone wrong

	worker, publisher, check *process
	requests                 func() int // posts that came to the fake Slack
}

func failures() []*failure {
	const nobody = "127.0.0.1:1"
	webhook := func(url string) map[string]string {
		return map[string]string{"SLACK_BOT_TOKEN": "", "SLACK_WEBHOOK_URL": url}
	}
	return []*failure{
		{name: "nobody is there", wait: "redis", settings: map[string]string{
			"NATS_URL":  "nats://me:" + secret + "@" + nobody + "," + secret + "@" + nobody,
			"REDIS_URL": "redis://me:" + secret + "@" + nobody + "/0",
		}},
		{name: "Redis knows no such user", wait: "redis", settings: map[string]string{"REDIS_URL": "redis://me:" + secret + "@STORE/0"}},
		{name: "Slack refuses the token", wait: "credentials", slack: devstack.Behaviour{Code: "invalid_auth"}},
		{name: "Slack cuts the connection", wait: "slack", slack: devstack.Behaviour{ResetBefore: true}},
		{name: "Slack sends us elsewhere", slack: devstack.Behaviour{Status: http.StatusFound, Location: "http://" + secret + ".invalid/"}},
		{name: "Slack is elsewhere", wait: "slack", settings: map[string]string{"SLACK_API_URL": "http://me:" + secret + "@" + nobody + "/" + secret + "/"}},
		{name: "the webhook is gone", wait: "credentials", settings: webhook("INBOX"), slack: devstack.Behaviour{Code: "no_service"}},
		{name: "the webhook hangs", wait: "slack", settings: webhook("INBOX"), slack: devstack.Behaviour{Hang: true}},
		{name: "the webhook is no one's", wait: "slack", settings: webhook("http://" + nobody + "/services/" + secret)},
		{name: "the webhook has no address", wait: "slack", settings: webhook("http://" + secret + ".invalid/services/" + secret)},
	}
}

// start starts the worker with services of its own.
func (f *failure) start(t *testing.T) {
	t.Helper()
	server, slack, settings := startServices(t)
	slack.Always(f.slack)
	f.requests = slack.Requests
	inbox := strings.Replace(slack.WebhookURL(), "http://", "http://me:"+secret+"@", 1)
	store := strings.TrimSuffix(strings.TrimPrefix(settings["REDIS_URL"], "redis://"), "/0")
	maps.Copy(settings, map[string]string{
		"LOG_LEVEL": "debug", "SLACK_TIMEOUT": "100ms", "SHUTDOWN_TIMEOUT": "1s",
		"SLACK_BOT_TOKEN": "xoxb-" + secret, "SLACK_CHANNEL": "#alerts", "ADMIN_TOKEN": "of-the-admin-" + secret,
		"NATS_URL": strings.Replace(server.URL(), "nats://", "nats://me:"+secret+"@", 1), // it asks for no password
	})
	for name, value := range f.settings {
		settings[name] = strings.NewReplacer("INBOX", inbox, "STORE", store).Replace(value)
	}
	f.settings = settings
	f.worker = start(t, settings, "serve")
}

// trigger publishes an event and waits until the worker has run into the failure.
func (f *failure) trigger(t *testing.T) {
	t.Helper()
	kit.Eventually(t, f.name+": the event is published, or cannot be", func() bool { // not before the worker has made the stream
		f.publisher = start(t, f.settings, "publish", "errors", "disk full")
		return f.publisher.code(t) == exitDone || f.wait == "redis"
	})
	kit.Eventually(t, f.name+": it goes wrong", func() bool {
		return len(f.worker.out.lines(`"msg":"waiting"`, `"for":"`+f.wait+`"`)) > 0 || f.wait == "" && f.requests() > 0
	})
}

// TestNoSecretIsShown runs workers, publishers and checks with services that fail, in each of several ways, at
// LOG_LEVEL=debug: what they write never has a secret in it. All fail at the same time, because each waits a while.
func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	all := failures()
	for _, f := range all {
		f.start(t)
	}
	reasons := map[string]string{}
	for _, f := range all {
		f.trigger(t)
		f.check = start(t, f.settings, "check", "-all")
		_, reasons[f.name] = get(t, adminURL(t, &f.worker.out)+"/readyz")
	}
	for _, f := range all {
		f.check.code(t) // some find nothing wrong: Slack misbehaves only when something is posted
		f.worker.terminate(t)
	}
	asked := time.Now()
	for _, f := range all {
		if code := f.worker.code(t); code != exitDone {
			t.Errorf("%s: exit code %d, expected 0", f.name, code)
		}
		written := f.worker.out.String() + f.worker.errOut.String() + f.publisher.out.String() + f.publisher.errOut.String() +
			f.check.out.String() + f.check.errOut.String() + reasons[f.name]
		if strings.Contains(written, secret) {
			t.Errorf("%s: a secret is shown: %s", f.name, written)
		}
	}
	if took := time.Since(asked); took > settings.NATSTimeout {
		t.Errorf("it took %s to end, expected about SHUTDOWN_TIMEOUT", took)
	}
}
