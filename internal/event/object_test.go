package event_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

func withBlocks(blocks string) func(*event.Event) {
	return func(e *event.Event) { e.Blocks = json.RawMessage(blocks) }
}

func withCost(cost int) func(*event.Event) { return func(e *event.Event) { e.Cost = cost } }

func repeatBlocks(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`{"type":"divider"},`, n), ",") + "]"
}

func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestDecodeJSONObject(t *testing.T) {
	accepted{
		"escapes":                  {message(`{"text":"a\n\"b\" \u00fc \ud83d\ude00"}`), plain("a\n\"b\" ü 😀")},
		"half a surrogate pair":    {message(`{"text":"a\ud83d"}`), plain("a\uFFFD")},
		"unknown fields":           {message(`{"text":"x","foo":[1,{"text":"y"}],"":null}`), plain("x")},
		"names by exact case":      {message(`{"Text":"y","text":"x","TEXT":5,"Cost":"no"}`), plain("x")},
		"null is the last of two":  {message(`{"text":"x","cost":3,"cost":null}`), plain("x")},
		"nulls":                    {message(`{"text":"x","blocks":null,"id":null,"channel":null,"thread_ts":null,"cost":null,"time":null,"specversion":null}`), plain("x")},
		"empty strings":            {message(`{"text":"x","id":"","channel":"","thread_ts":"","time":"","blocks":[]}`), plain("x")},
		"specversion not a string": {message(`{"text":"x","specversion":2}`), plain("x")},
		"channel":                  {message(`{"text":"x","channel":"#deploys"}`), plain("x", func(e *event.Event) { e.Channel = "#deploys" })},
		"thread":                   {message(`{"text":"x","thread_ts":"1234567890.123456"}`), plain("x", func(e *event.Event) { e.ThreadTS = "1234567890.123456" })},
		"attachments only":         {message(`{"attachments":[ {"text":"x"} ]}`), plain("", func(e *event.Event) { e.Attachments = json.RawMessage(`[ {"text":"x"} ]`) })},
		"deepest blocks":           {message(`{"blocks":[{"a":` + nested(29) + `}]}`), plain("", withBlocks(`[{"a":`+nested(29)+`}]`))},
		"more than 50 attachments": {message(`{"attachments":` + repeatBlocks(120) + `}`), plain("", func(e *event.Event) { e.Attachments = json.RawMessage(repeatBlocks(120)) })},
		"blocks only":              {message(`{"blocks":[ {"type":"divider"} ]}`), plain("", withBlocks(`[ {"type":"divider"} ]`))},
		"most blocks":              {message(`{"blocks":` + repeatBlocks(50) + `}`), plain("", withBlocks(repeatBlocks(50)))},
		"time":                     {message(`{"text":"x","time":"2026-11-20T05:39:01.5+01:00"}`), plain("x", at(time.Date(2026, 11, 20, 4, 39, 1, 5e8, time.UTC)))},
	}.run(t)
}

func TestDecodeJSONObjectRejects(t *testing.T) {
	const (
		cost  = "cost has a fraction or an exponent, expected an integer written in digits"
		above = ", expected 1 to 20, as the limits allow"
		below = "cost is below 1, expected 1 or more"
		ts    = "thread_ts is not a message's timestamp, expected one such as 1234567890.123456"
		rfc   = "time is not a time, expected RFC 3339 such as 2026-11-20T04:39:01Z"
		years = "time is not within the years 1970 to 9999 UTC"
	)
	table := rejected{
		"blank text": {message: message(`{"text":" \n\u00a0"}`), detail: neither},
		"nulls":      {message: message(`{"text":null,"blocks":null}`), detail: neither},

		"cut off":         {message: message(`{"text":"x"`), detail: "payload is broken JSON: it ends at byte 11 before its value does"},
		"broken":          {message: message(`{"text":x}`), detail: "payload is broken JSON, or nested too deeply, at byte 9"},
		"something after": {message: message(`{"text":"x"} y`), detail: "payload continues after its JSON value, which ends at byte 12"},

		"text: number":        {message: message(`{"text":5}`), detail: "text is a number, expected a string"},
		"blocks: object":      {message: message(`{"text":"x","blocks":{"type":"divider"}}`), detail: "blocks is an object, expected an array"},
		"blocks: too many":    {message: message(`{"blocks":` + repeatBlocks(51) + `}`), detail: "blocks has 51 elements, expected at most 50"},
		"block: string":       {message: message(`{"blocks":["divider"]}`), detail: "blocks[0] is a string, expected an object"},
		"blocks: too deep":    {message: message(`{"blocks":[{"a":` + nested(32) + `}]}`), detail: "blocks is nested in more than 32 levels"},
		"attachments: object": {message: message(`{"text":"x","attachments":{}}`), detail: "attachments is an object, expected an array"},
		"colours alone":       {message: message(`{"text":"\u001b[1;31m \u001b[0m"}`), detail: neither},
		"control characters":  {message: message(`{"text":"\u0007\u202e\u200b \u2066"}`), detail: neither},
		"channel: long":       {message: message(`{"text":"x","channel":"c` + strings.Repeat("ä", 2000) + `"}`), reason: outcome.Unroutable, detail: `channel "c` + strings.Repeat("ä", 38) + `…" is in neither SLACK_CHANNEL nor SLACK_ROUTES`},
		"channel: unlisted":   {message: message(`{"text":"x","channel":"c0123"}`), reason: outcome.Unroutable, detail: `channel "c0123" is in neither SLACK_CHANNEL nor SLACK_ROUTES`},
	}
	for _, value := range []string{"123456789.1234567", "123456789a.123456", "1234567890.12345 "} {
		table["thread: "+value] = rejected{"": {message: message(`{"text":"x","thread_ts":"` + value + `"}`), detail: ts}}[""]
	}
	for value, detail := range map[string]string{
		"0":  below,
		"21": "cost 21" + above, "99999999999999999999": "cost 99999999999999999999" + above,
		strings.Repeat("9", 81): "cost " + strings.Repeat("9", 77) + "…" + above,
		"1e1":                   cost,
		`"2"`:                   "cost is a string, expected an integer",
	} {
		table["cost: "+value] = rejected{"": {message: message(`{"text":"x","cost":` + value + `}`), detail: detail}}[""]
	}
	for value, detail := range map[string]string{
		"yesterday": rfc, "2026-11-20T4:39:01Z": rfc,
		"2026-11-20T04:39:01,5Z":    rfc,
		"1970-01-01T00:30:00+01:00": years, "9999-12-31T23:30:00-01:00": years,
	} {
		table["time: "+value] = rejected{"": {message: message(`{"text":"x","time":"` + value + `"}`), detail: detail}}[""]
	}
	table.run(t)
}

// A category may bound the cost further. Without rules any cost is taken, and no channel may be named.
func TestRulesOfCostsAndChannels(t *testing.T) {
	bounded, open := rules(t), event.Rules{Pattern: mustPattern(t, "notify.>"), MaxBytes: maxBytes}
	deploys := message(`{"text":"x","cost":6}`)
	deploys.Subject = "notify.deploys"
	for _, tc := range []struct {
		name    string
		message event.Message
		rules   event.Rules
		want    string // the rejection, if any
	}{
		{"cost within the category's bound", message(`{"text":"x","cost":6}`), bounded, ""},
		{"cost above the category's bound", deploys, bounded, "malformed: cost 6, expected 1 to 5, as the limits allow"},
		{"cost without a rule", deploys, open, ""},
		{"channel without a rule", message(`{"text":"x","channel":"C0123"}`), open, `unroutable: channel "C0123" is in neither SLACK_CHANNEL nor SLACK_ROUTES`},
	} {
		got := ""
		if _, rejection := event.Decode(tc.message, tc.rules); rejection != nil {
			got = rejection.Error()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
