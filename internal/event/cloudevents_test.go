package event_test

import (
	"encoding/base64"
	"testing"
	"time"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

const neither = "event has nothing to show, expected text, blocks or attachments"

const structuredType = "application/cloudevents+json"

// structured is a CloudEvent in the JSON format: the required attributes, and more members if they are given.
func structured(more string) event.Message {
	return message(`{"specversion":"1.0","id":"c-1","source":"/db","type":"com.example.disk"` + more + `}`)
}

// binary is a CloudEvent in binary mode; more headers overwrite those it has, and an empty value removes one.
func binary(payload string, more ...string) event.Message {
	m := withHeader(message(payload), "ce-specversion", "1.0", "ce-id", "c-1", "ce-source", "/db", "ce-type", "com.example.disk")
	for i := 0; i < len(more); i += 2 {
		m.Header[more[i]] = []string{more[i+1]}
		if more[i+1] == "" {
			delete(m.Header, more[i])
		}
	}
	return m
}

// fromDB is the id of a CloudEvent of structured or binary, which counts together with the source.
func fromDB(id string) func(*event.Event) { return fromSource(id, "/db") }

func fromSource(id, source string) func(*event.Event) {
	return func(e *event.Event) { e.ID, e.IDSource, e.Source = id, source, source }
}

func TestDecodeStructuredCloudEvent(t *testing.T) {
	base64Of := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	accepted{
		"text":                       {structured(`,"data":"disk full"`), plain("disk full", fromDB("c-1"))},
		"object":                     {structured(`,"data":{"text":"x","cost":2}`), plain("x", fromDB("c-1"), withCost(2))},
		"time":                       {structured(`,"time":"2026-11-20T12:00:00Z","data":"x"`), plain("x", fromDB("c-1"), at(noon))},
		"data's id and time":         {structured(`,"time":"2026-11-20T12:00:00Z","data":{"id":"d-1","time":"2020-01-01T00:00:00Z","text":"x"}`), plain("x", fromDB("c-1"), at(noon))},
		"the attribute text is none": {structured(`,"text":"y","cost":7,"data":{"text":"x"}`), plain("x", fromDB("c-1"))},
		"base64 object":              {structured(`,"data_base64":"` + base64Of(`{"text":"x","cost":2}`) + `","datacontenttype":"application/json"`), plain("x", fromDB("c-1"), withCost(2))},
		"declared":                   {withHeader(structured(`,"data":"x"`), "Content-Type", structuredType), plain("x", fromDB("c-1"))},
		"declared as in the binding": {withHeader(structured(`,"data":"x"`), "content-type", "Application/CloudEvents; charset=UTF-8"), plain("x", fromDB("c-1"))},
		"later minor version":        {message(`{"specversion":"1.12","id":"c-1","source":"/db","type":"t","data":"x"}`), plain("x", fromDB("c-1"))},
	}.run(t)
	const version = "CloudEvent has an unsupported specversion, expected 1.0 or a later 1.x"
	table := rejected{
		"not an object":        {message: withHeader(message("disk full"), "Content-Type", structuredType), detail: "payload is not an object, expected a CloudEvent as a JSON object"},
		"batch":                {message: withHeader(message(`[{"specversion":"1.0"}]`), "Content-Type", "application/cloudevents-batch+json"), detail: "payload is a batch of CloudEvents, expected one CloudEvent in each message"},
		"another format":       {message: withHeader(message(`<event/>`), "Content-Type", "application/cloudevents+xml"), detail: "payload is a CloudEvent in a format other than JSON, expected application/cloudevents+json"},
		"declared, no version": {message: withHeader(message(`{"id":"c-1","source":"/s","type":"t","data":"x"}`), "Content-Type", structuredType), detail: "CloudEvent has no specversion, expected a string that is not empty", id: "c-1"},
		"no id":                {message: message(`{"specversion":"1.0","source":"/s","type":"t","data":{"id":"d-1","text":"x"}}`), detail: "CloudEvent has no id, expected a string that is not empty"},
		"no type":              {message: message(`{"specversion":"1.0","id":"c-1","source":"/s","data":"x"}`), detail: "CloudEvent has no type, expected a string that is not empty", id: "c-1"},
		"no data":              {message: structured(``), detail: neither, id: "c-1"},
		"data: array":          {message: structured(`,"data":["x"]`), detail: "data is an array, expected an object or a string", id: "c-1"},
		"field of data":        {message: structured(`,"data":{"text":5}`), detail: "data.text is a number, expected a string", id: "c-1"},
		"channel of data":      {message: structured(`,"data":{"text":"x","channel":"C9"}`), reason: outcome.Unroutable, detail: `data.channel "C9" is in neither SLACK_CHANNEL nor SLACK_ROUTES`, id: "c-1"},
		"both data":            {message: structured(`,"data":"x","data_base64":"eA=="`), detail: "CloudEvent has both data and data_base64, expected one of them", id: "c-1"},
		"base64: broken":       {message: structured(`,"data_base64":"eA"`), detail: "data_base64 is not valid base64", id: "c-1"},
		"base64: number":       {message: structured(`,"data_base64":5`), detail: "data_base64 is a number, expected a string", id: "c-1"},
		"base64: UTF-8":        {message: structured(`,"data_base64":"` + base64Of("\xff") + `"`), detail: "data_base64 is not valid UTF-8 once decoded", id: "c-1"},
		"base64: broken JSON":  {message: structured(`,"data_base64":"` + base64Of("{x") + `"`), detail: "data_base64 is broken JSON, or nested too deeply, at byte 2", id: "c-1"},
	}
	for _, v := range []string{"0.3", "1", "1.", "1.x"} {
		table["version "+v] = rejected{"": {message: message(`{"specversion":"` + v + `","id":"c-1","source":"/s","type":"t","data":"x"}`), detail: version, id: "c-1"}}[""]
	}
	table.run(t)
}

func TestDecodeBinaryCloudEvent(t *testing.T) {
	noon := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	accepted{
		"text":                       {binary("disk full"), plain("disk full", fromDB("c-1"))},
		"object":                     {binary(`{"text":"x","cost":2}`), plain("x", fromDB("c-1"), withCost(2))},
		"names in any case":          {withHeader(message("x"), "CE-SpecVersion", "1.0", "Ce-Id", "c-1", "cE-sOURCE", "/s", "CE-TYPE", "t", "Ce-Time", "2026-11-20T12:00:00Z"), plain("x", fromSource("c-1", "/s"), at(noon))},
		"time":                       {binary("x", "ce-time", "2026-11-20T13:00:00+01:00"), plain("x", fromDB("c-1"), at(noon))},
		"the binding's declaration":  {binary(`{"text":"x"}`, "ce-datacontenttype", "application/json", "Content-Type", "text/plain"), plain("x", fromDB("c-1"))},
		"percent-encoded id":         {binary("x", "ce-id", "Euro%20%E2%82%AC%20%f0%9F%98%80"), plain("x", fromDB("Euro € 😀"))},
		"percent that encodes none":  {binary("x", "ce-id", "5% of%zz%4"), plain("x", fromDB("5% of%zz%4"))},
		"quoted":                     {binary("x", "ce-id", `"a \"b\" \\ c%20d"`), plain("x", fromDB(`a "b" \ c d`))},
		"space around":               {binary("x", "ce-id", " c-1\t"), plain("x", fromDB("c-1"))},
		"without ce-specversion":     {binary("x", "ce-specversion", ""), plain("x")},
		"as it is replayed":          {binary("x", "Notifier-Event-Id", "c-1", "Nats-Msg-Id", "replay.7"), plain("x", fromDB("c-1"))},
		"JSON string":                {binary(`"disk full"`, "ce-datacontenttype", "application/json"), plain("disk full", fromDB("c-1"))},
		"JSON object, declared":      {binary(` {"text":"x","cost":2} `, "Content-Type", "application/vnd.disk+json"), plain("x", fromDB("c-1"), withCost(2))},
		"JSON string, undeclared":    {binary(`"disk full"`), plain(`"disk full"`, fromDB("c-1"))},
		"two spellings, first bytes": {binary("x", "Ce-Id", "c-2", "cE-Id", "c-3"), plain("x", fromDB("c-2"))},
	}.run(t)
	rejected{
		"blank version":       {message: binary("x", "ce-specversion", " "), detail: "CloudEvent has no specversion, expected a string that is not empty", id: "c-1"},
		"no id":               {message: binary(`{"id":"d-1","text":"x"}`, "ce-id", ""), detail: "CloudEvent has no id, expected a string that is not empty"},
		"overlong encoding":   {message: binary("x", "ce-id", "%C0%A0"), detail: "ce-id is not valid UTF-8 once decoded"},
		"JSON array":          {message: binary(`[1]`, "Content-Type", "application/json"), detail: "payload is an array, expected an object or a string", id: "c-1"},
		"JSON null":           {message: binary(`null`, "Content-Type", "application/json"), detail: neither, id: "c-1"},
		"no JSON":             {message: binary(" \n", "Content-Type", "application/json"), detail: neither, id: "c-1"},
		"broken JSON":         {message: binary(`disk full`, "Content-Type", "application/json"), detail: "payload is broken JSON, or nested too deeply, at byte 1", id: "c-1"},
		"bad type of content": {message: binary("x", "ce-datacontenttype", "%FF"), detail: "ce-datacontenttype is not valid UTF-8 once decoded", id: "c-1"},
	}.run(t)
}
