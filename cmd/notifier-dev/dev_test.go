package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	cmdline "notifier/internal/cli"
	"notifier/test/kit"
)

// Tests that run a worker must not be parallel: a worker reads the environment, and go-redis has one logger
// for each process.

// get returns status 0 and the error text if the request fails.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: kit.Patience}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	kit.Check(t, err)
	return response.StatusCode, string(content)
}

// inbox waits until the inbox page of a fake Slack has count messages, and returns their texts.
func inbox(t *testing.T, url string, count int) []string {
	t.Helper()
	var page struct{ Messages []struct{ Text string } }
	kit.Eventually(t, "the messages are in the inbox", func() bool {
		status, body := get(t, url+"/inbox.json")
		return status == http.StatusOK && json.Unmarshal([]byte(body), &page) == nil && len(page.Messages) >= count
	})
	var texts []string
	for _, message := range page.Messages {
		texts = append(texts, message.Text)
	}
	return texts
}

// printed waits for a line that begins with word, and returns the rest of that line.
func printed(t *testing.T, c *command, word string) string {
	t.Helper()
	line := regexp.MustCompile(`(?m)^ *` + word + ` +(.*)\n`)
	kit.Eventually(t, word+" is printed", func() bool { return line.MatchString(c.out.String()) })
	return line.FindStringSubmatch(c.out.String())[1]
}

// publish publishes to the NATS server of "notifier-dev dev" as soon as there is a stream.
func publish(t *testing.T, dev *command, subject string, texts ...string) {
	t.Helper()
	js := kit.JetStream(t, strings.Fields(printed(t, dev, "NATS"))[0])
	kit.Eventually(t, "there is a stream", func() bool {
		_, err := js.Stream(t.Context(), "NOTIFY")
		return err == nil
	})
	for _, text := range texts {
		_, err := js.Publish(t.Context(), subject, []byte(text))
		kit.Check(t, err)
	}
}

// TestDev takes the usual ports first, so dev must choose others and print them. It passes as well where
// other programs hold those ports.
func TestDev(t *testing.T) {
	const adminAddr = "127.0.0.1:8080"
	note := map[string]string{} // by the usual address
	for _, addr := range []string{devNATSAddr, devRedisAddr, devSlackAddr, adminAddr} {
		note[addr] = `   \(` + regexp.QuoteMeta(addr) + ` was taken\)`
		if listener, err := net.Listen("tcp", addr); err == nil {
			defer listener.Close()
		} else { // taken by another process, which may still free it
			note[addr] = "(" + note[addr] + ")?"
		}
	}
	// The embedded servers ignore all settings for servers, TLS and users.
	const cert, key = "/missing/cert", "/missing/key"
	for name, value := range map[string]string{
		"NATS_TLS_CA": cert, "NATS_TLS_CERT": cert, "NATS_TLS_KEY": key, "REDIS_URL": "rediss://elsewhere:6380", "REDIS_TLS_CA": cert,
		"SLACK_WEBHOOK_URL": "https://hooks.slack.com/services/real",
	} {
		t.Setenv(name, value)
	}
	p := start(t, "dev")
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
	if got := printed(t, p, "notifier-dev dev:"); got != "limits 100/30m overall, 10/30m per category; stop with Ctrl-C" {
		t.Errorf("%q, expected the limits in their shortest form", got)
	}
	want := []string{`notifier publish errors "disk full"`}
	if urls["NATS"] != "nats://"+devNATSAddr {
		want = append(want, " NATS_URL="+urls["NATS"])
	}
	if !strings.HasPrefix(urls["Redis"], "redis://"+devRedisAddr) {
		want = append(want, " REDIS_URL="+urls["Redis"])
	}
	for _, text := range want {
		if !strings.Contains(p.out.String(), text) {
			t.Errorf("no %s in %s", text, p.out.String())
		}
	}
	kit.Eventually(t, "ready", func() bool {
		status, _ := get(t, urls["Health"])
		return status == http.StatusOK
	})
	for _, word := range []string{"Inbox", "Status"} {
		if status, page := get(t, urls[word]); status != http.StatusOK || !strings.Contains(page, "<html") {
			t.Errorf("%s: %d %.100q", word, status, page)
		}
	}

	publish(t, p, "notify.errors", "disk full")
	if got := inbox(t, urls["Inbox"], 1); len(got) != 1 || got[0] != "disk full" {
		t.Errorf("in the inbox: %q", got)
	}
	kit.Eventually(t, "it is in the log, for people", func() bool {
		return len(p.out.Lines("\tINFO\tnotification sent\t", `"category": "errors"`)) == 1
	})
	p.interrupt(t)
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
	t.Setenv("LIMIT_CATEGORY", "1/1m0s")
	t.Setenv("LOG_FORMAT", "json")
	t.Setenv("ADMIN_ADDR", "")
	p := start(t, "dev")
	for _, word := range []string{"Health", "Status"} {
		if got := printed(t, p, word); got != "none, ADMIN_ADDR is empty" {
			t.Errorf("%s %q, expected none", word, got)
		}
	}
	if got := printed(t, p, "notifier-dev dev:"); !strings.Contains(got, "1/1m per category") {
		t.Errorf("%q, expected the limit of the environment", got)
	}
	publish(t, p, "notify.errors", "disk full", "disk full")
	kit.Eventually(t, "the second one is dropped", func() bool { return len(p.out.Lines(`"outcome":"dropped"`)) > 0 })
	if line := p.out.Lines(`"outcome":"dropped"`)[0]; !strings.Contains(line, `"limit":"1/1m"`) {
		t.Errorf("%s, expected the limit 1/1m", line)
	}
	p.interrupt(t)
}

func TestDevRefusesBadSettings(t *testing.T) {
	t.Setenv("LIMIT_CATEGORY", "nonsense")
	t.Setenv("ADMIN_ADDR", "8080")
	p := start(t, "dev")
	p.ends(t, cmdline.ExitUsage)
	if got := p.errOut.Lines("  "); len(got) != 2 { // each problem is an indented line
		t.Errorf("%q, expected two problems", got)
	}
}

// dev -slack-only runs only the fake Slack, as the container of deploy/demo.yml does.
func TestFakeSlackAlone(t *testing.T) {
	t.Parallel()
	p := start(t, "dev", "-slack-only", "127.0.0.1:0")
	const pattern = `^inbox (http://127\.0\.0\.1:[0-9]+), SLACK_API_URL=(http://\S+/api/), SLACK_WEBHOOK_URL=(http://\S+)$`
	found := regexp.MustCompile(pattern).FindStringSubmatch(printed(t, p, "fake Slack:"))
	if found == nil {
		t.Fatalf("%q, expected %s", p.out.String(), pattern)
	}
	response, err := http.Post(found[3], "application/json", strings.NewReader(`{"text":"hi"}`))
	kit.Check(t, err)
	_ = response.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if got := inbox(t, found[1], 1); len(got) != 1 || got[0] != "hi" {
		t.Errorf("in the inbox: %q", got)
	}
	p.interrupt(t)

	for _, addr := range []string{"nonsense", ""} {
		p := start(t, "dev", "-slack-only", addr)
		p.ends(t, cmdline.ExitUsage)
		if got := p.errOut.Lines("notifier-dev: -slack-only ", "expected host:port such as 0.0.0.0:8090"); len(got) != 1 {
			t.Errorf("%q: %q, expected what an address is", addr, p.errOut.String())
		}
	}
}
