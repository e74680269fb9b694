package main

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/redistest"
	"notifier/internal/testkit"
)

// statesOnThePage shows one state after the other, and returns what people read of each without opening anything.
const statesOnThePage = `(() => {
	const first = state.data, time = first.time, at = ms => new Date(Date.parse(time) + ms).toISOString();
	const foreign = "<img src=x onerror=alert(1)>\u202e", own = first.replicas[0];
	const scope = more => ({ tiers: [{ limit: "5/1h", used: 1, max: 5, free_in_s: 0 }], next_free: null, sent_last_hour: 0, dropped_last_hour: 0, last_sent: null, minutes: [], ...more });
	const full = scope({ tiers: [{ limit: "5/1h", used: 5, max: 5, free_in_s: 90 }], next_free: at(90000) });
	const redis = (state, kind) => ({ ...first.this, redis: { state, kind, since: time, reason: kind + " " + foreign, text: kind } });
	const stream = more => ({ stream: "NOTIFY", used_ratio: 0.5, bound: "messages", messages: 50, max_messages: 100, bytes: 1, ...more });
	const slack = { for: "slack", channel: foreign, reason: "slack: " + foreign, since: time };
	const states = {
		good: {},
		"global full": { global: full },
		"global full and held": { global: full, held: 3, replicas: [{ ...own, waits: [{ for: "redis", kind: "full", reason: "OOM", since: time }] }] },
		"counts only": { this: redis("counts_only", "full") },
		"read-only and idle": { this: redis("refuses", "read_only") },
		"dead letters": { outcomes_last_hour: [{ outcome: "dead", reason: "malformed", n: 3 }, { outcome: "dead", reason: foreign, n: 1 }, { outcome: "sent", n: 5 }] },
		"streams": { streams: [stream({ used_ratio: 0.87, messages: 87 }), stream({ stream: foreign, used_ratio: 0.81, bound: "bytes", bytes: 8493466, max_bytes: 10485760, discards_old: true }), stream({ stream: "DENIED", unknown: "denied", used_ratio: 0 })] },
		"paused and refused": { held: 2, replicas: [{ ...own, waits: [slack], refused_channels: { [foreign]: foreign } }] },
		"muted": { steering: [{ kind: "mute", target: foreign, until: at(60000), by: foreign, reason: foreign }, { kind: "limit", target: "global", limit: "1/1h", until: at(60000) }] },
		"much is muted": { steering: Array.from({ length: 9 }, (_, i) => ({ kind: "mute", target: "x" + i, until: at(60000) })), more_steering: 4 },
		"silent": { replicas: [own, { ...own, id: foreign, seen: at(-20000) }, { ...own, id: "new", ready: false, started: at(-1000) }, { ...own, id: "stuck", ready: false, started: at(-60000) }] },
		"silent without reports": { this: redis("counts_only", "full"), replicas: [own, { ...own, id: "b", seen: at(-20000) }] },
		"differing": { settings: { warnings: ["Replicas run with different settings: " + foreign], differ: [{ name: "LIMIT_GLOBAL", values: [{ value: foreign, replicas: ["a"] }, { value: "2/1h", replicas: ["b"] }] }] } },
		"many": { replicas: Array.from({ length: 40 }, (_, i) => ({ ...own, id: "r" + i, waits: [{ for: "nats", reason: "reason " + i, since: time }] })) },
		"not ready": { ready_replicas: 0, replicas: [{ ...own, ready: false, started: at(-60000) }] },
	};
	return Object.entries(states).map(([name, changes]) => {
		state.data = { ...first, ...changes };
		show(state.data);
		tick();
		const read = text => text.replaceAll(foreign.replace("\u202e", "\ufffd"), "FOREIGN").replace(/[\u2068\u2069]/g, "").replace(/\d\d:\d\d:\d\d/g, "then");
		return [name, document.getElementById("now").dataset.level + ": " + read(document.getElementById("sentence").textContent),
			...Array.from(document.querySelectorAll("#attention li"), li => li.className + ": " + read(li.textContent))];
	});
})()`

func TestThePageSaysWhatIsWrongFirst(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	p, _, _ := worker(t, map[string]string{"LIMIT_GLOBAL": "5/1h"})
	b.open(t, readyURL(t, &p.out))
	b.waitForText(t, "#sentence", "Working.")
	see[bool](t, b, `visibility = poll = () => {}, clearTimeout(timer), request = null, true`) // what follows stays
	const working = "Working. All 5 global slots are free; no limit is full."
	want := [][]string{
		{"good", "ok: " + working},
		{"global full", "note: Full: all 5 global slots are taken. Everything is dropped until then, for 1 min 30 s."},
		{"global full and held", "bad: Held: Redis is full since then; 3 events are held.", "bad: Waiting for redis since then (REPLICA): OOM", "note: The global limit is full until then: everything is dropped"},
		{"counts only", "note: Working, but counts have not been stored since then, because Redis is full. No decision was refused; figures are incomplete, and other replicas may be missing.", "note: Counts are not stored: full FOREIGN"},
		{"read-only and idle", "bad: Redis is read-only, it is a replica since then: nothing can be sent."},
		{"dead letters", "note: " + working + " 4 dead events in the last hour.", "bad: 4 dead events in the last hour: 3 malformed, 1 FOREIGN. See them with “notifier dead list”."},
		{
			"streams", "note: " + working + " NOTIFY is 87 % full, FOREIGN is 81 % full.",
			"bad: Stream NOTIFY is 87 % full (87 of 100 messages); a full one refuses new messages", "bad: Stream FOREIGN is 81 % full (8.1 MiB of 10.0 MiB); a full one deletes its oldest messages",
		},
		{"paused and refused", "bad: Held for FOREIGN: Slack has not accepted messages since then; 2 events are held.", "bad: FOREIGN: FOREIGN (since then, REPLICA)", "bad: FOREIGN refuses every message (FOREIGN); its events become dead letters"},
		{"muted", "ok: " + working, "note: In force: mute of FOREIGN until then, by FOREIGN: FOREIGN", "note: In force: limit 1/1h of global until then"},
		{"much is muted", "ok: " + working, "note: 13 mutes and limits for a while are in force"},
		{"silent", "ok: " + working, "note: Replica FOREIGN has not reported for 20 s", "note: Replica stuck is not ready"},
		{"silent without reports", "note: Working, but counts have not been stored since then, because Redis is full. No decision was refused; figures are incomplete, and other replicas may be missing.", "note: Counts are not stored: full FOREIGN"},
		{"differing", "ok: " + working, "bad: Replicas run with different settings: FOREIGN"},
		{"many", "", ""},
		{"not ready", "bad: No replica is ready: nothing is sent.", "note: Replica REPLICA is not ready"},
	}
	replica := see[string](t, b, "state.data.this.replica")
	got := see[[][]string](t, b, statesOnThePage)
	for i, lines := range got {
		for j := range lines {
			lines[j] = aboutNinety.ReplaceAllString(strings.ReplaceAll(lines[j], replica, "REPLICA"), "1 min 30 s")
		}
		if lines[0] == "many" {
			if len(lines) != 2+21 || lines[22] != "note: and 20 more" {
				t.Errorf("of 40 lines %d are shown, the last is %q", len(lines)-2, lines[len(lines)-1])
			}
			got[i], want[i] = nil, nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a name has become markup")
	}
}

// aboutNinety is the time that was left when the states were made, and some seconds less.
var aboutNinety = regexp.MustCompile(`1 min 2[0-9] s`)

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
	testkit.Eventually(t, "the address says what is open", func() bool { return see[string](t, b, "location.search") == "?open=category-section" })
	see[bool](t, b, `location.reload(), true`)
	testkit.Eventually(t, "it is open again", func() bool {
		return see[int](t, b, `document.querySelectorAll("#category-section[open] tbody tr").length`) == 8
	})
}

// TestThePageKeepsNoRowsOfDuplicates: who may write to Redis may have written the same name twice.
func TestThePageKeepsNoRowsOfDuplicates(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	got := see[[]int](t, b, `(() => {
		const own = state.data.replicas[0], rows = () => document.querySelectorAll("#replicas tbody tr").length;
		const twice = { ...state.data, replicas: [own, { ...own, version: "second" }, { ...own, id: "other" }] };
		const counts = [];
		for (let i = 0; i < 20; i++) show(twice);
		counts.push(rows());
		show({ ...state.data, replicas: [own] });
		counts.push(rows());
		show({ ...state.data, replicas: [] });
		return [...counts, rows()];
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
	see[bool](t, b, `window.fetch = async () => new Response("null", { headers: { "Notifier-Page": "x" } }), true`)
	b.waitForText(t, "#contact", "not connected since ")
	see[bool](t, b, `window.fetch = window.realFetch, true`)
	b.waitForText(t, "#sentence", "Working.")
	// What the browser cuts off because the page is left has not failed.
	see[bool](t, b, `window.fetch = () => new Promise((_, reject) => window.cutOff = reject), true`)
	testkit.Eventually(t, "a request is under way", func() bool { return see[bool](t, b, `Boolean(window.cutOff)`) })
	see[bool](t, b, `window.dispatchEvent(new PageTransitionEvent("pagehide")), window.cutOff(new Error("cut off")), true`)
	see[bool](t, b, `window.waited = false, setTimeout(() => window.waited = true, 50), true`)
	testkit.Eventually(t, "the page has seen its end", func() bool { return see[bool](t, b, `window.waited`) })
	if shown := b.text(t, "#sentence"); !strings.HasPrefix(shown, "Working.") {
		t.Errorf("%q", shown)
	}
	see[bool](t, b, `window.fetch = window.realFetch, window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })), window.polled = state.answered, true`)
	testkit.Eventually(t, "it goes on when the page is shown again", func() bool { return see[bool](t, b, `state.answered > window.polled`) })
}

// TestAFullRedisHidesNothing: reports are not stored, so all replicas seem to be gone, and what is held seems to be nothing.
func TestAFullRedisHidesNothing(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	redis := redistest.StartProcess(t)
	p, server, slack := worker(t, map[string]string{"REDIS_URL": redis.URL()})
	url := readyURL(t, &p.out)
	b.open(t, url)
	b.waitForText(t, "#sentence", "Working.")
	admin := redis.Client(t)
	testkit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
	b.waitForText(t, "#sentence", "Working, but counts have not been stored since ", ", because Redis is full. ")
	publishEach(t, server, "errors", 3)
	b.waitForText(t, "#sentence", "Held: Redis is full since ", "; 3 events are held.")
	testkit.Check(t, admin.Del(t.Context(), "{notifier}:replicas").Err()) // as after a minute
	b.waitForText(t, "#attention", "Waiting for redis since ", "OOM")
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
	testkit.Check(t, json.Unmarshal([]byte(body), &shown))
	if status != http.StatusOK || shown.Held != 3 || len(shown.Replicas) != 1 || shown.This.Held != 3 || shown.This.Redis.State != "refuses" || shown.This.Redis.Kind != "full" {
		t.Errorf("%d %+v", status, shown)
	}
	testkit.Check(t, admin.ConfigSet(t.Context(), "maxmemory", "0").Err())
	b.waitForText(t, "#sentence", "Working. 3 of 100 global slots are taken")
	testkit.Eventually(t, "what was held is sent", func() bool { return slack.Accepted() == 3 })
	b.waitForText(t, "#this", "Redisstores everything", "Held events0")

	testkit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "3").Err())
	b.waitForText(t, "#sentence", "Redis takes no writes, because too few of its replicas are connected since ", ": nothing can be sent.")
	testkit.Check(t, admin.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	b.waitForText(t, "#sentence", "Working.")
}

// TestThePageShowsWhoCausedEvents: the first sources of each category, whatever they are called.
func TestThePageShowsWhoCausedEvents(t *testing.T) {
	t.Parallel()
	b := openWorkingPage(t)
	got := see[[]string](t, b, `(() => {
		const foreign = "<img src=x onerror=alert(1)>\u202e", own = state.data.global;
		const scope = category => ({ ...own, category, minutes: [] }), from = (source, total, refused) => ({ source, total, refused, sent: total - refused });
		const sources = { errors: [from(foreign, 12, 9), from("b", 3, 0), from("_other", 2, 1), from("", 1, 0), from("d", 1, 0)], x: [from("", 7, 0)] };
		const look = changes => {
			show({ ...state.data, categories: ["errors", "x", "constructor", "__proto__", "none"].map(scope), ...changes });
			return Array.from(document.querySelectorAll("#categories tbody .name"), node => node.textContent.replace(/[\u2068\u2069]/g, ""));
		};
		return [...look({ sources }), ...look({ sources: undefined })];
	})()`)
	want := []string{
		"errorsfrom <img src=x onerror=alert(1)>\ufffd 12 (9 refused), b 3, other sources 2 (1 refused), and 2 more", "xfrom not named 7", "constructor", "__proto__", "none",
		"errors", "x", "constructor", "__proto__", "none",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := see[int](t, b, `document.querySelectorAll("img").length`); n != 0 {
		t.Error("a name has become markup")
	}
}
