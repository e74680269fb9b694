package event

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParseObject compares parsing with encoding/json.
func FuzzParseObject(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"text":"x","id":"1","cost":2,"blocks":[{"type":"divider"}],"time":null}`,
		` { "te\u0078t" : "a\ud83d" , "text":"b","x":[1,{"text":"y"}]} `, `{"text":x}`, `{"text":"x"} y`, `{"text":"x"`,
		`{"text":01}`, `{"text":1e400}`, `{"\ud800":1,"id":2}`, "{\"text\":\"a\nb\"}", `{"text":"\u12"}`, "{\"a\":1}\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) || !beginsObject(data) {
			return
		}
		want := map[string]json.RawMessage{}
		err := json.Unmarshal(data, &want)
		o, rejection := parseObject("", data)
		if (err == nil) != (rejection == nil) {
			t.Fatalf("%v, expected %v", rejection, err)
		}
		if err != nil {
			return
		}
		for i, name := range fieldNames {
			if value, found := want[name]; found != (o.values[i] != nil) || string(value) != string(o.values[i]) {
				t.Errorf("%s is %q, expected %q", name, o.values[i], value)
			}
		}
	})
}

// TestParseObjectNesting: the deepest objects and arrays that encoding/json takes.
func TestParseObjectNesting(t *testing.T) {
	for _, depth := range []int{9_998, 9_999, 10_000, 300_000} {
		for open, end := range map[string]string{"[": "]", `{"a":`: "}"} {
			data := []byte(`{"x":` + strings.Repeat(open, depth) + `"x"` + strings.Repeat(end, depth) + `,"text":"x"}`)
			err := json.Unmarshal(data, &map[string]json.RawMessage{})
			if _, rejection := parseObject("", data); (err == nil) != (rejection == nil) {
				t.Errorf("%d levels of %s: %v, expected %v", depth, open, rejection, err)
			}
		}
	}
}
