//go:build !production

package main

import (
	"encoding/json"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"notifier/internal/testkit"
)

// inbox waits until the inbox page of a fake Slack has so many messages, and gives their texts.
func inbox(t *testing.T, url string, count int) []string {
	t.Helper()
	var page struct{ Messages []struct{ Text string } }
	testkit.Eventually(t, "the messages are in the inbox", func() bool {
		status, body := get(t, url+"/inbox.json")
		return status == http.StatusOK && json.Unmarshal([]byte(body), &page) == nil && len(page.Messages) >= count
	})
	var texts []string
	for _, message := range page.Messages {
		texts = append(texts, message.Text)
	}
	return texts
}

// printed waits for a line that begins with a word, and gives what stands behind it.
func printed(t *testing.T, p *process, word string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^ *` + word + ` +(.*)\n`)
	testkit.Eventually(t, word+" is printed", func() bool { return line.MatchString(p.out.String()) })
	return line.FindStringSubmatch(p.out.String())[1]
}

// publishesOnceItCan publishes to the NATS server of "notifier dev" as soon as there is a stream.
func publishesOnceItCan(t *testing.T, dev *process, arguments ...string) {
	t.Helper()
	env := map[string]string{"NATS_URL": strings.Fields(printed(t, dev, "NATS"))[0]}
	testkit.Eventually(t, "publish works", func() bool {
		return start(t, env, append([]string{"publish"}, arguments...)...).code(t) == exitDone
	})
}

// TestDev runs everything beside whatever is on this machine: the usual ports are taken, so it says where it is.
func TestDev(t *testing.T) {
	t.Parallel()
	const adminAddr = "127.0.0.1:8080"
	note := map[string]string{} // by the usual address
	for _, addr := range []string{devNATSAddr, devRedisAddr, devSlackAddr, adminAddr} {
		note[addr] = `   \(` + regexp.QuoteMeta(addr) + ` was taken\)`
		if listener, err := net.Listen("tcp", addr); err == nil {
			defer listener.Close()
		} else { // somebody else has it, which is as good while it lasts
			note[addr] = "(" + note[addr] + ")?"
		}
	}
	// What the environment says about servers, TLS and users does not apply to the embedded ones.
	const cert, key = "/missing/cert", "/missing/key"
	env := map[string]string{
		"NATS_TLS_CA": cert, "NATS_TLS_CERT": cert, "NATS_TLS_KEY": key, "REDIS_URL": "rediss://elsewhere:6380", "REDIS_TLS_CA": cert,
		"SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/real",
	}
	p := start(t, env, "dev")
	urls := map[string]string{}
	for word, pattern := range map[string]string{
		"Inbox":  `^(http://127\.0\.0\.1:[0-9]+)` + note[devSlackAddr] + `$`,
		"Status": `^(http://127\.0\.0\.1:[0-9]+)` + note[adminAddr] + `$`,
		"NATS":   `^(nats://127\.0\.0\.1:[0-9]+)` + note[devNATSAddr] + `$`,
		"Redis":  `^(redis://127\.0\.0\.1:[0-9]+/0)` + note[devRedisAddr] + `$`,
		"Health": `^(http://127\.0\.0\.1:[0-9]+/readyz)` + note[adminAddr] + `$`,
	} {
		found := regexp.MustCompile(pattern).FindStringSubmatch(printed(t, p, word))
		if found == nil {
			t.Fatalf("%s %q, expected %s", word, printed(t, p, word), pattern)
		}
		urls[word] = found[1]
	}
	if got := printed(t, p, "notifier dev:"); got != "limits 100/30m overall, 10/30m per category; stop with Ctrl-C" {
		t.Errorf("%q, expected the limits in their shortest form", got)
	}
	want := `notifier publish errors "disk full"`
	if urls["NATS"] != "nats://"+devNATSAddr {
		want = "NATS_URL=" + urls["NATS"] + " " + want
	}
	if !strings.Contains(p.out.String(), want) {
		t.Errorf("no %s in %s", want, p.out.String())
	}
	testkit.Eventually(t, "ready", func() bool {
		status, _ := get(t, urls["Health"])
		return status == http.StatusOK
	})
	for _, word := range []string{"Inbox", "Status"} {
		if status, page := get(t, urls[word]); status != http.StatusOK || !strings.Contains(page, "<html") {
			t.Errorf("%s: %d %.100q", word, status, page)
		}
	}

	publishes(t, map[string]string{"NATS_URL": urls["NATS"]}, "errors", "disk full") // in the other terminal
	if got := inbox(t, urls["Inbox"], 1); len(got) != 1 || got[0] != "disk full" {
		t.Errorf("in the inbox: %q", got)
	}
	testkit.Eventually(t, "it is in the log, for people", func() bool {
		return len(p.out.lines("\tINFO\tnotification sent\t", `"category": "errors"`)) == 1
	})
	p.terminate(t)
	p.ends(t, exitDone)
	for word, url := range urls {
		if word != "NATS" && word != "Redis" {
			if status, _ := get(t, url); status != 0 {
				t.Errorf("%s is still there", url)
			}
		}
	}
}

// TestDevTakesSettings: limits, the log and the admin server are the environment's.
func TestDevTakesSettings(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"LIMIT_CATEGORY": "1/1m0s", "LOG_FORMAT": "json", "ADMIN_ADDR": ""}, "dev")
	for _, word := range []string{"Health", "Status"} {
		if got := printed(t, p, word); got != "none, ADMIN_ADDR is empty" {
			t.Errorf("%s %q, expected none", word, got)
		}
	}
	if got := printed(t, p, "notifier dev:"); !strings.Contains(got, "1/1m per category") {
		t.Errorf("%q, expected the limit of the environment", got)
	}
	publishesOnceItCan(t, p, "errors", "-n", "2")
	testkit.Eventually(t, "the second one is dropped", func() bool { return len(p.out.lines(`"outcome":"dropped"`)) > 0 })
	if line := logLine(t, p.out.lines(`"outcome":"dropped"`)[0]); line["limit"] != "1/1m" {
		t.Errorf("limit %v, expected 1/1m", line["limit"])
	}
	p.terminate(t)
	p.ends(t, exitDone)
}

func TestDevRefusesBadSettings(t *testing.T) {
	t.Parallel()
	p := start(t, map[string]string{"LIMIT_CATEGORY": "nonsense", "ADMIN_ADDR": "8080"}, "dev")
	p.ends(t, exitUsage)
	if got := p.errOut.lines("  "); len(got) != 2 {
		t.Errorf("%q, expected two problems", got)
	}
}

// TestFakeSlackAlone stands in for Slack in a container.
func TestFakeSlackAlone(t *testing.T) {
	t.Parallel()
	p := start(t, nil, "dev", "-slack-only", "127.0.0.1:0")
	const pattern = `^inbox (http://127\.0\.0\.1:[0-9]+), SLACK_API_URL=(http://\S+/api/), SLACK_WEBHOOK_URL=(http://\S+)$`
	found := regexp.MustCompile(pattern).FindStringSubmatch(printed(t, p, "fake Slack:"))
	if found == nil {
		t.Fatalf("%q, expected %s", p.out.String(), pattern)
	}
	response, err := http.Post(found[3], "application/json", strings.NewReader(`{"text":"hi"}`))
	testkit.Check(t, err)
	_ = response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if got := inbox(t, found[1], 1); len(got) != 1 || got[0] != "hi" {
		t.Errorf("in the inbox: %q", got)
	}
	p.terminate(t)
	p.ends(t, exitDone)

	for _, addr := range []string{"nonsense", ""} {
		p := start(t, nil, "dev", "-slack-only", addr)
		p.ends(t, exitUsage)
		if got := p.errOut.lines("notifier: -slack-only ", "expected host:port such as 0.0.0.0:8090"); len(got) != 1 {
			t.Errorf("%q: %q, expected what an address is", addr, p.errOut.String())
		}
	}
}
