package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/test/kit"
	"notifier/test/redistest"
)

// TestThePageIsShortWhereNothingIsWrong: everything else folds away, and a link opens it.
func TestThePageIsShortWhereNothingIsWrong(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, server, _ := worker(t, map[string]string{"LIMIT_GLOBAL": "50/1h", "LIMIT_RESERVE": "payments=3"})
	url := readyURL(t, &p.out)
	b.open(t, url)
	b.waitForText(t, "#sentence", "Working.")
	publishEach(t, server, "a", 1, "b", 1, "c", 1, "d", 1, "e", 1, "f", 1, "g", 1, "h", 1)
	b.waitForText(t, "#fact-sent", "8")
	if n := see[int](t, b, `document.querySelectorAll("details[open], #attention li").length`); n != 0 {
		t.Errorf("%d sections are open, or lines say that something is wrong", n)
	}
	if height := see[int](t, b, `document.documentElement.scrollHeight`); height > 1000 {
		t.Errorf("the page is %d px high, expected at most 1000", height)
	}
	b.waitForText(t, "#category-section summary", "Categories 8")
	b.waitForText(t, "#reserve-section summary", "Reserves 3 slots kept")
	b.waitForText(t, "#replica-section summary", "Workers 1 ready")
	see[bool](t, b, `document.querySelector("#category-section summary").click(), true`)
	kit.Eventually(t, "the address says what is open", func() bool { return see[string](t, b, "location.search") == "?open=category-section" })
	see[bool](t, b, `location.reload(), true`)
	kit.Eventually(t, "it is open again", func() bool {
		return see[int](t, b, `document.querySelectorAll("#category-section[open] tbody tr").length`) == 8
	})
}

// TestThePageKeepsNoRowsOfDuplicates: who may write to Redis may have written the same name twice.
func TestThePageKeepsNoRowsOfDuplicates(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	got := see[[]int](t, b, `(() => {
		const list = document.getElementById("attention"), line = key => "<li data-key=" + key + ">" + key + "</li>";
		const look = (...keys) => {
			const fresh = new DOMParser().parseFromString("<ul id=attention>" + keys.map(line).join("") + "</ul>", "text/html");
			update(list, fresh.getElementById("attention"));
			return list.children.length;
		};
		for (let i = 0; i < 20; i++) look("own", "own", "other");
		return [look("own", "own", "other"), look("own"), look()];
	})()`)
	if diff := cmp.Diff([]int{3, 1, 0}, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestThePageTakesNoAnswerOfAProxy: only a worker's answer says what the worker knows.
func TestThePageTakesNoAnswerOfAProxy(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	see[bool](t, b, `window.realFetch = window.fetch, window.fetch = async () => new Response('{"error":"no backend"}', { status: 503, headers: { "Content-Type": "application/json" } }), true`)
	b.waitForText(t, "#sentence", "Not connected since ")
	see[bool](t, b, `window.fetch = async () => new Response("<title>login</title>"), true`)
	b.waitForText(t, "#contact", "not connected since ")
	see[bool](t, b, `window.fetch = window.realFetch, true`)
	b.waitForText(t, "#sentence", "Working.")
	// What the browser cuts off because the page is left has not failed.
	see[bool](t, b, `window.fetch = () => new Promise((_, reject) => window.cutOff = reject), true`)
	kit.Eventually(t, "a request is under way", func() bool { return see[bool](t, b, `Boolean(window.cutOff)`) })
	see[bool](t, b, `window.dispatchEvent(new PageTransitionEvent("pagehide")), window.cutOff(new Error("cut off")), true`)
	see[bool](t, b, `window.waited = false, setTimeout(() => window.waited = true, 50), true`)
	kit.Eventually(t, "the page has seen its end", func() bool { return see[bool](t, b, `window.waited`) })
	if shown := b.text(t, "#sentence"); !strings.HasPrefix(shown, "Working.") {
		t.Errorf("%q", shown)
	}
	see[bool](t, b, `window.fetch = (...asked) => (window.asked = true, window.realFetch(...asked)), window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })), true`)
	kit.Eventually(t, "it goes on when the page is shown again", func() bool { return see[bool](t, b, `Boolean(window.asked)`) })
}

// TestAFullRedisHidesNothing: reports are not stored, so all replicas seem to be gone, and what is held seems
// to be nothing.
func TestAFullRedisHidesNothing(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	redis := redistest.StartProcess(t)
	p, server, slack := worker(t, map[string]string{"REDIS_URL": redis.URL()})
	url := readyURL(t, &p.out)
	b.open(t, url)
	b.waitForText(t, "#sentence", "Working.")
	admin := redis.Client(t)
	kit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b.waitForText(t, "#sentence", "Nothing is sent: Redis is full (maxmemory)")
	publishEach(t, server, "errors", 3)
	b.waitForText(t, "#sentence", "Nothing is sent: Redis is full (maxmemory) (for ", "). 3 events are held.")
	kit.Check(t, admin.Del(t.Context(), "{notifier}:replicas").Err()) // as after a minute
	b.waitForText(t, "#attention", "Waiting for redis (for ", "OOM")
	b.waitForText(t, "#fact-held", "3")
	b.waitForText(t, "#fact-replicas", "1")

	status, body := get(t, url+"/api/status")
	var shown struct {
		Held     int
		Replicas []struct{ Held int }
		This     struct {
			Held  int
			Redis struct{ State, Kind string }
		}
	}
	kit.Check(t, json.Unmarshal([]byte(body), &shown))
	if status != http.StatusOK || shown.Held != 3 || len(shown.Replicas) != 1 || shown.This.Held != 3 || shown.This.Redis.State != "refuses" || shown.This.Redis.Kind != "full" {
		t.Errorf("%d %+v", status, shown)
	}
	kit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	b.waitForText(t, "#sentence", "Working. 3 of 100 global slots are taken")
	kit.Eventually(t, "what was held is sent", func() bool { return slack.Accepted() == 3 })
	b.waitForText(t, "#this", "Redisstores everything", "Held events0")

	kit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err())
	b.waitForText(t, "#sentence", "Nothing is sent: Redis takes no writes, because too few of its replicas are connected")
	kit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	b.waitForText(t, "#sentence", "Working.")
}
