package kit

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// WantJSON compares two JSON texts by value.
func WantJSON(t testing.TB, got json.RawMessage, want string) {
	t.Helper()
	if diff := cmp.Diff(DecodeJSON(t, want), DecodeJSON(t, string(got))); diff != "" {
		t.Errorf("JSON (-want +got):\n%s", diff)
	}
}

// DecodeJSON decodes a JSON text, and keeps numbers to the digit.
func DecodeJSON(t testing.TB, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	return v
}
