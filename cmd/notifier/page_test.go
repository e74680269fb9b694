package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// hostile is a category that a publisher can choose. The page shows a replacement for what reorders or hides.
const (
	hostile      = "<img/src=x/onerror=alert(1)>\u202e\u200b\u2028"
	hostileShown = "<img/src=x/onerror=alert(1)>\ufffd\ufffd\ufffd"
)

// shownAs is a category of the log as the page shows it.
func shownAs(category any) string {
	return strings.ReplaceAll(fmt.Sprint(category), hostile, hostileShown)
}

// pageRow is a row of the table of categories, as people read it.
type pageRow struct {
	Name, Used    string
	Sent, Dropped string
	Next          string // when there is room, as the datetime of the page
	NextText      string
}

const readRows = `Array.from(document.querySelectorAll("#categories tbody tr"), tr => {
	const cells = Array.from(tr.children, cell => cell.textContent);
	const heads = Array.from(document.querySelectorAll("#categories thead th"), th => th.textContent);
	const at = head => cells[heads.findIndex(text => text.startsWith(head))];
	const next = tr.children[heads.indexOf("Next free")].querySelector("time") ?? { dateTime: "", textContent: "" };
	return { Name: at("Category"), Used: at("Used"), Sent: at("Sent"), Dropped: at("Dropped"), Next: next.dateTime, NextText: next.textContent };
})`

// settledBy counts the log's lines of settled events by category and outcome.
func settledBy(t *testing.T, out *output) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, line := range out.lines(`"outcome":`) {
		fields := logLine(t, line)
		counts[shownAs(fields["category"])+" "+fmt.Sprint(fields["outcome"])]++
		if reason, there := fields["reason"]; there {
			counts[fmt.Sprint(fields["outcome"], " ", reason)]++
		}
	}
	return counts
}

// publishEach publishes events one after the other, so many of each category, in this order.
func publishEach(t *testing.T, server *devstack.NATS, events ...any) {
	t.Helper()
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	defer connection.Close()
	for i := 0; i < len(events); i += 2 {
		for range events[i+1].(int) {
			kit.Check(t, connection.Publish("notify."+events[i].(string), []byte("x")))
		}
	}
	kit.Check(t, connection.FlushTimeout(kit.Patience))
}

// TestThePageShowsWhatBecameOfEvents compares what a browser shows with the log and with what Slack has
// received.
func TestThePageShowsWhatBecameOfEvents(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, server, slack := worker(t, map[string]string{"LIMIT_GLOBAL": "9/1h+100/24h", "LIMIT_CATEGORY": "3/30m"})
	b.open(t, readyURL(t, &p.out), "category-section", "hour-section")
	b.waitForText(t, "#sentence", "Working. All 9 global slots are free; no limit is full.")

	publishEach(t, server, "errors", 8, "deploys", 1, hostile, 4)
	kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 13 })
	b.waitForText(t, "#sentence", "Working. 7 of 9 global slots are taken; ", "errors is full for ", hostileShown, " for ")
	if got := see[string](t, b, "document.title"); got != "7/9 · notifier" {
		t.Errorf("title %q", got)
	}
	b.waitForText(t, "#fact-sent", "7")
	logged := settledBy(t, &p.out)
	if slack.Accepted() != 7 || b.text(t, "#fact-sent") != "7" || b.text(t, "#fact-dropped") != "6" || b.text(t, "#fact-slots") != "7 of 9" {
		t.Errorf("Slack has %d; the page says %s sent, %s dropped, %s slots", slack.Accepted(), b.text(t, "#fact-sent"), b.text(t, "#fact-dropped"), b.text(t, "#fact-slots"))
	}
	rows := see[[]pageRow](t, b, readRows)
	freeOf := map[string]string{}
	for i, row := range rows {
		freeOf[row.Name] = row.Next
		if row.Next != "" {
			checkNext(t, &p.out, row)
		}
		rows[i].Next, rows[i].NextText = "", ""
		for outcome, shown := range map[string]string{"sent": row.Sent, "dropped": row.Dropped} {
			if want := fmt.Sprint(logged[row.Name+" "+outcome]); shown != want {
				t.Errorf("%s: %s %s, the log has %s", row.Name, shown, outcome, want)
			}
		}
	}
	want := []pageRow{
		{Name: "errors", Used: "3 of 3 in 30m", Sent: "3", Dropped: "5"},
		{Name: hostileShown, Used: "3 of 3 in 30m", Sent: "3", Dropped: "1"},
		{Name: "deploys", Used: "1 of 3 in 30m", Sent: "1", Dropped: "0"},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("the categories (-want +got):\n%s", diff)
	}
	if freeOf["errors"] == "" || freeOf[hostileShown] == "" || freeOf["deploys"] != "" {
		t.Errorf("next free: %v, expected a time of the two that are full", freeOf)
	}
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("the name of a category has become markup")
	}

	publishEach(t, server, "payments", 3, "errors", 1) // two get the last global slots
	kit.Eventually(t, "all settled", func() bool { return len(p.out.lines(`"outcome":`)) == 17 })
	b.waitForText(t, "#sentence", "Full: all 9 global slots are taken. Everything is dropped for ")
	b.waitForText(t, "#fact-dropped", "8")
	logged = settledBy(t, &p.out)
	for _, reason := range []string{"global", "category"} {
		script := fmt.Sprintf(`Array.from(document.querySelectorAll("#outcomes tbody tr")).find(tr => tr.textContent.startsWith("dropped %s")).lastChild.textContent`, reason)
		if got, want := see[string](t, b, script), fmt.Sprint(logged["dropped "+reason]); got != want {
			t.Errorf("%s dropped by the limit %s, the log has %s", got, reason, want)
		}
	}
	checkUse(t, b)
	b.waitForText(t, "#holders", "errors", "3", "payments", "2", "deploys", "1")
	b.expectFailures(true) // a worker that ends answers 503
	p.terminate(t)
	p.ends(t, exitDone)
	b.waitForText(t, "#sentence", "Not connected since ")
}

// checkNext holds when a full category has room against the log's latest retry_after_s, and its text against
// the time zone.
func checkNext(t *testing.T, out *output, row pageRow) {
	t.Helper()
	next, err := time.Parse(time.RFC3339, row.Next)
	if err != nil {
		t.Errorf("%s: %v", row.Name, err)
		return
	}
	for _, line := range out.lines(`"outcome":"dropped"`) {
		fields := logLine(t, line)
		if shownAs(fields["category"]) != row.Name {
			continue
		}
		logged, err := time.Parse(time.RFC3339, fields["ts"].(string))
		kit.Check(t, err)
		free := logged.Add(time.Duration(fields["retry_after_s"].(float64) * float64(time.Second)))
		if next.Sub(free).Abs() > time.Second {
			t.Errorf("%s has room at %s, the log says %s", row.Name, next, free)
		}
	}
	if want := next.In(time.FixedZone("Asia/Kolkata", 5*3600+1800)).Format(time.TimeOnly); !strings.HasSuffix(row.NextText, want) {
		t.Errorf("%s: %q, expected the viewer's %s", row.Name, row.NextText, want)
	}
}

// checkUse looks at what people need who use a phone, a keyboard or a screen reader.
func checkUse(t *testing.T, b *browser) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(360, 740))
	if wide := see[int](t, b, "document.documentElement.scrollWidth"); wide > 360 {
		t.Errorf("the page is %d px wide on a screen of 360", wide)
	}
	b.prefer(t, "prefers-reduced-motion", "reduce")
	if got := see[string](t, b, `getComputedStyle(document.querySelector(".bar rect")).transitionDuration`); got != "0s" {
		t.Errorf("bars move for %s although motion is to be reduced", got)
	}
	for what, script := range map[string]string{
		"headings of tables without a scope":   `document.querySelectorAll("th:not([scope])").length`,
		"tables without a caption":             `Array.from(document.querySelectorAll("table")).filter(table => !table.caption).length`,
		"charts without a text":                `Array.from(document.querySelectorAll("svg:not(.bar)")).filter(svg => svg.getAttribute("role") !== "img" || !(svg.ariaLabel || document.getElementById(svg.getAttribute("aria-labelledby")).textContent)).length`,
		"bars that no screen reader can read":  `Array.from(document.querySelectorAll(".bar")).filter(bar => bar.role !== "meter" || !bar.ariaLabel || !bar.ariaValueNow || !bar.ariaValueText).length`,
		"live regions beside the one sentence": `document.querySelectorAll("[aria-live], [role=status]:not(#announce), [role=alert]").length`,
	} {
		if n := see[int](t, b, script); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
	// What is read out stays while the sentence counts down.
	see[bool](t, b, `window.readOut = 0, new MutationObserver(() => window.readOut++).observe(document.getElementById("announce"), { childList: true, characterData: true, subtree: true }), true`)
	first := b.text(t, "#sentence")
	kit.Eventually(t, "the sentence counts down", func() bool { return b.text(t, "#sentence") != first })
	if n := see[int](t, b, "window.readOut"); n != 0 {
		t.Errorf("the sentence is read out %d times although it has not changed in kind", n)
	}
	b.do(t, chromedp.KeyEvent("\t"), chromedp.KeyEvent("\r"))
	kit.Eventually(t, "the slots can be opened with the keyboard", func() bool {
		return see[int](t, b, `document.querySelectorAll("#slots[open] tbody tr").length`) == 9
	})
}

// TestTheBrowserWaitsForAnElement: a page that loads itself again has no elements for a moment.
func TestTheBrowserWaitsForAnElement(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	b.do(t, chromedp.Navigate("about:blank"))
	see[bool](t, b, `setTimeout(() => { document.body.innerHTML = "<p id=late>here</p>" }, 300), true`)
	b.waitForText(t, "#late", "here")
}

// TestThePageWithAToken: a browser that was given the token once gives it to each request of the page.
func TestThePageWithAToken(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	b := openBrowser(t)
	p, _, _ := worker(t, map[string]string{"ADMIN_TOKEN": token})
	admin := readyURL(t, &p.out)
	if status, _ := get(t, admin+"/"); status != http.StatusUnauthorized {
		t.Errorf("without the token: %d, expected 401", status)
	}
	b.open(t, strings.Replace(admin, "http://", "http://anybody:"+token+"@", 1))
	b.waitForText(t, "#sentence", "Working.")
	b.waitForText(t, "#contact", "live, ")
	if code := start(t, map[string]string{"ADMIN_ADDR": strings.TrimPrefix(admin, "http://")}, "healthcheck").code(t); code != exitDone {
		t.Errorf("healthcheck: exit code %d, expected %d: it needs no token", code, exitDone)
	}
}

// TestTheReasonsNeedTheToken: with a token /readyz gives them to those who have it, and a health check has
// it.
func TestTheReasonsNeedTheToken(t *testing.T) {
	t.Parallel()
	const token = "correct-horse-battery"
	const nowhere = "127.0.0.1:1"
	env := map[string]string{
		"NATS_URL": "nats://" + nowhere, "REDIS_URL": "redis://" + nowhere, "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_CHANNEL": "#alerts",
		"ADMIN_ADDR": "127.0.0.1:0", "ADMIN_TOKEN": token,
	}
	url := adminURL(t, &start(t, env, "serve").out)
	addr := strings.TrimPrefix(url, "http://")
	kit.Eventually(t, "it waits for Redis", func() bool {
		check := start(t, map[string]string{"ADMIN_ADDR": addr, "ADMIN_TOKEN": token}, "healthcheck")
		return check.code(t) == exitFailed && strings.Contains(check.errOut.String(), "redis: ")
	})
	if status, body := get(t, url+"/readyz"); status != http.StatusServiceUnavailable || body != "not ready\n" {
		t.Errorf("without the token: %d %q, expected 503 and no reasons", status, body)
	}
	check := start(t, map[string]string{"ADMIN_ADDR": addr}, "healthcheck")
	if code := check.code(t); code != exitFailed || strings.Contains(check.errOut.String(), nowhere) {
		t.Errorf("healthcheck without the token: exit code %d, %s; expected %d without reasons", code, check.errOut.String(), exitFailed)
	}
	env["ADMIN_TOKEN"], env["ADMIN_TOKEN_FILE"] = "", filepath.Join(t.TempDir(), "empty")
	kit.Check(t, os.WriteFile(env["ADMIN_TOKEN_FILE"], []byte("\n"), 0o600))
	worker := start(t, env, "serve")
	if code := worker.code(t); code != exitUsage || !strings.Contains(worker.errOut.String(), "ADMIN_TOKEN_FILE: "+env["ADMIN_TOKEN_FILE"]+" is empty; expected ") {
		t.Errorf("with an empty file: exit code %d, %s; expected %d", code, worker.errOut.String(), exitUsage)
	}
}

// TestThePageGoesOn: the server ends, and starts again on the same address.
func TestThePageGoesOn(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	_, _, env := startServices(t)
	env["SLACK_BOT_TOKEN"], env["SLACK_CHANNEL"], env["ADMIN_ADDR"] = "xoxb-1", "#alerts", kit.FreeAddr(t)
	p := start(t, env, "serve")
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")
	see[int](t, b, "window.sameDocument = 1")

	b.expectFailures(true)
	p.terminate(t)
	p.ends(t, exitDone)
	b.waitForText(t, "#sentence", "Not connected since ", ": trying again. The rest below is as it was at ")
	b.waitForText(t, "#contact", "not connected since ")
	if got := see[string](t, b, "document.title"); got != "not connected · notifier" {
		t.Errorf("title %q", got)
	}
	start(t, env, "serve")
	b.waitForText(t, "#sentence", "Working.")
	b.expectFailures(false)
	b.waitForText(t, "#contact", "live, ")
	if see[int](t, b, "window.sameDocument ?? 0") != 1 {
		t.Error("it went on in another document")
	}

	// A server of another version has a page of its own.
	see[bool](t, b, `performance.now = () => 3600000, document.querySelector("meta[name=version]").content = "older", true`)
	kit.Eventually(t, "it has loaded itself again", func() bool {
		return see[int](t, b, "window.sameDocument ?? 0") == 0 && strings.Contains(b.text(t, "#sentence"), "Working.")
	})
}

// TestThePageShowsWhatIsWaitedFor: Slack fails, Slack asks for a pause, Redis is unavailable.
func TestThePageShowsWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	proxy := redistest.StartProxy(t, redistest.Start(t).Addr)
	p, server, slack := worker(t, map[string]string{"REDIS_URL": "redis://" + proxy.Addr})
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")

	slack.Always(devstack.Behaviour{Status: 503})
	publishEach(t, server, "errors", 4)
	b.waitForText(t, "#sentence", "Nothing is posted to #alerts: Slack has not accepted messages (for ", "). 4 events are held.")
	b.waitForText(t, "#attention", "#alerts: unavailable: http_503 (for ")
	b.waitForText(t, "#fact-held", "4")
	slack.Always(devstack.Behaviour{})
	b.waitForText(t, "#sentence", "Working. 4 of 100 global slots are taken; no limit is full.")
	kit.Eventually(t, "nothing is waited for", func() bool { return b.text(t, "#attention") == "" })

	sent := 4 + b.seesPause(t, server, slack, &p.out, "deploys", [][]string{
		{"#sentence", "Nothing is posted to #alerts for ", ", because Slack asked to wait."},
	})
	b.waitForText(t, "#sentence", fmt.Sprintf("Working. %d of 100 global slots are taken; no limit is full.", sent))

	proxy.Cut()
	b.waitForText(t, "#sentence", "Nothing is sent: Redis is unavailable (for ", "). The rest below is as it was at ")
	b.waitForText(t, "#attention", "redis")
	publishEach(t, server, "deploys", 2)
	b.waitForText(t, "#sentence", "Nothing is sent: ", " 2 events are held.")
	b.waitForText(t, "#attention", "Waiting for redis (for ")
	b.waitForText(t, "#this", "Held events2 (redis 2)", "RedisRedis is unavailable: nothing is sent: ", "Last sent", "Events in flight2, 0 being posted")
	proxy.Heal()
	b.waitForText(t, "#sentence", "Working.")
	kit.Eventually(t, "what was held is sent", func() bool { return slack.Accepted() == sent+2 })
	b.waitForText(t, "#attention-title", "Needs attention")
	kit.Eventually(t, "nothing needs attention", func() bool { return b.text(t, "#attention") == "" })
	b.waitForText(t, "#contact", "live, ")
}
