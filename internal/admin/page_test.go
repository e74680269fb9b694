package admin_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"notifier/internal/admin"
	"notifier/internal/ratelimit"
	"notifier/internal/status"
	"notifier/internal/status/stats"
)

// foreign is what a publisher can have written, in each way in which the page could take it for its own.
const (
	foreign      = "<img src=x onerror=alert(1)>\"'`{{.}}<slot name=\"slots\"></slot>\u2069\u2068\u202e\u0007\u2028x"
	foreignShown = "&lt;img src=x onerror=alert(1)&gt;&#34;&#39;`{{.}}&lt;slot name=&#34;slots&#34;&gt;&lt;/slot&gt;\ufffd\ufffd\ufffd\ufffd\ufffdx"
)

// foreignStatus has foreign text wherever there can be some.
func foreignStatus() status.Status {
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	scope := status.Scope{Category: foreign, Tiers: []status.Tier{{Limit: "10/30m", Used: 1, Max: 10}}, Minutes: []status.Minute{}, LastSent: &at}
	group := status.Scope{Group: foreign, Tiers: scope.Tiers, Minutes: []status.Minute{}}
	line := status.Attention{Kind: foreign, Level: foreign, Text: foreign}
	return status.Status{
		Time: at, Global: status.Scope{Tiers: scope.Tiers, Minutes: []status.Minute{}}, Categories: []status.Scope{scope}, Groups: []status.Scope{group},
		Summary:  status.Summary{Kind: foreign, Level: foreign, Title: foreign, Text: foreign, Attention: []status.Attention{line}},
		Slots:    []ratelimit.Slot{{ID: foreign, Category: foreign, At: at, Frees: at}},
		Holders:  []status.Holder{{Category: foreign, Slots: 1}},
		Outcomes: []status.Outcome{{Outcome: foreign, Reason: foreign, N: 1}},
		Unposted: []status.Unposted{{Channel: foreign, Text: foreign}},
		Replicas: []stats.Replica{{ID: foreign, Seen: at, Heartbeat: stats.Heartbeat{Version: foreign, Waits: []stats.Wait{{For: foreign}}}}},
		Settings: status.Settings{OwnText: foreign, Warnings: []string{foreign}},
		This:     &status.This{Replica: foreign, Host: foreign, Version: foreign, Time: at},
	}
}

// pageOf is a worker whose page shows an answer.
func pageOf(answer any, err error) admin.Probes {
	probes := probesOf(func(context.Context) (any, error) { return answer, err })
	probes.Page = func(answer any) (any, map[string]any) {
		page := status.NewPage(answer, nil)
		return page, page.ByID()
	}
	return probes
}

const everything = "?open=slots,group-section,category-section,hour-section&open=channel-section,replica-section,settings-section"

// TestThePageShowsForeignText as text, and without what changes how the rest is shown.
func TestThePageShowsForeignText(t *testing.T) {
	server, client := start(t, pageOf(foreignStatus(), nil))
	_, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/"+everything)
	for _, unwanted := range []string{"<img", "ZgotmplZ", "\u202e", "\u2028"} {
		if strings.Contains(body, unwanted) {
			t.Errorf("%q is in the page", unwanted)
		}
	}
	if n := strings.Count(body, foreignShown); n < 30 {
		t.Errorf("the foreign text is %d times in the page, expected more: the sections are not shown", n)
	}
}

// TestThePageDrawsWhatIsOpen, and nothing else: there can be many rows.
func TestThePageDrawsWhatIsOpen(t *testing.T) {
	var asked []admin.EventsQuery
	var drawn atomic.Int32
	probes := pageOf(foreignStatus(), nil)
	page := probes.Page
	probes.Page = func(answer any) (any, map[string]any) { drawn.Add(1); return page(answer) }
	probes.Events = func(_, _ context.Context, query admin.EventsQuery) (any, error) {
		asked = append(asked, query)
		return nil, errors.New("stream <gone>")
	}
	server, client := start(t, probes)
	open := func(query string) (sections []string) {
		_, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/"+query)
		for _, id := range []string{"timeline", "categories", "replicas", "events-note"} {
			if strings.Contains(body, ` id="`+id+`"`) {
				sections = append(sections, id)
			}
		}
		if strings.Contains(body, "<gone>") {
			t.Errorf("%s: a text has become markup", query)
		}
		return sections
	}
	for query, want := range map[string][]string{
		"": nil, "?open=": nil, "?open=none,<b>": nil, "?open=slots": {"timeline"}, "?open=slots,replica-section": {"timeline", "replicas"},
		"?open=category-section&open=slots": {"timeline", "categories"},
	} {
		if got := open(query); !slices.Equal(got, want) {
			t.Errorf("%q opens %q, expected %q", query, got, want)
		}
	}
	if len(asked) > 0 {
		t.Error("the events are asked for before anybody has opened them")
	}
	open("?open=event-section&category=%20errors%20&outcome=dead")
	if got := open("?open=event-section&outcome=no"); !slices.Equal(got, []string{"events-note"}) {
		t.Errorf("it opens %q", got)
	}
	if want := []admin.EventsQuery{{Category: "errors", Outcome: "dead", N: 100}, {N: 100}}; !slices.Equal(asked, want) {
		t.Errorf("asked for %+v, expected %+v", asked, want)
	}
	if n := drawn.Load(); n > 2 {
		t.Errorf("the page was made %d times, expected once in two seconds", n)
	}
}

// TestThePageSaysThatNothingIsKnown, and is no failed request: a browser would object.
func TestThePageSaysThatNothingIsKnown(t *testing.T) {
	err := errors.New("redis: unavailable")
	unknown := status.Unknown{Time: time.Now(), Summary: status.Summary{Level: status.LevelBad, Text: "Nothing is sent."}, This: &status.This{Replica: "own"}}
	server, client := start(t, pageOf(unknown, err))
	response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/")
	if response.StatusCode != http.StatusOK || !strings.Contains(body, "Nothing is sent.") || !strings.Contains(body, `<details id="this-section" open>`) {
		t.Errorf("%d %s", response.StatusCode, body)
	}
	if strings.Contains(body, `id="all"`) {
		t.Error("it shows figures that nobody knows")
	}
	server, client = start(t, pageOf(nil, err))
	if response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/"); response.StatusCode != http.StatusServiceUnavailable || body != "redis: unavailable\n" {
		t.Errorf("%d %s", response.StatusCode, body)
	}
}
