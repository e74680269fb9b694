package ratelimit

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// replyOf converts JSON to a reply as a client returns it: whole numbers, texts, lists and nil, but also
// types that no reply has.
func replyOf(value any) any {
	switch v := value.(type) {
	case json.Number:
		if whole, err := v.Int64(); err == nil {
			return whole
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = replyOf(v[i])
		}
	}
	return value
}

// FuzzReplies decodes arbitrary replies. Each must yield an error or values within the script's contract, and
// only the verdict 1 admits an event.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{
		`["decided",1795149541123457,0,[1,0],[],[],[]]`, `["decided",1,0,[-1,-2],[[1,3,1,999999,0,0],[2,1,50,1,5,1]],[],[2,3,17,"p"]]`,
		`["decided",1,0,[1,1],[],[1,7],[2,1,5,""]]`, `["decided",1,-5,[1],[],[],[]]`, `["decided",1,0,["1",1.5],[],[],[]]`, `null`, `"OK"`, `[]`,
		`["decided",1,0,[-9223372036854775808,2],[[1,1,9223372036854775807,1,0,0]],[],[]]`, `["closed",1,5]`, `["unknown store",1]`,
		`[1,[5,6,1,0,0,0]]`, `[2,[5,9223372036854775807,1,1,0,0]]`,
		`["C1",5,"*",7]`, `["C1",9223372036854775807]`, `[1,5]`, `["C1"]`,
		`["post",1,""]`, `["wait pace",5,""]`, `["wait event",-1,""]`, `["unknown",2,"p1"]`, `["not in flight",0,""]`, `["channel",5]`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		var tree any
		if decoder.Decode(&tree) != nil {
			t.Skip("no value")
		}
		reply := replyOf(tree)
		checkDecisions(t, reply)
		usages := []Usage{{Tier: Tier{Count: 1}}, {Category: "errors", Tier: Tier{Count: 1}}}
		if _, err := decodeUsages(reply, usages); err == nil {
			for _, usage := range usages {
				if usage.Used < 0 || usage.FreeIn < 0 {
					t.Errorf("usage %+v", usage)
				}
			}
		} else {
			checkReason(t, err)
		}
		if permit, err := decodePermit(reply); err != nil {
			checkReason(t, err)
		} else if permit.Wait < 0 || permit.Posts < 0 || permit.Status == 0 {
			t.Errorf("permit %+v", permit)
		}
		if pause, err := decodeAnswered(reply); err != nil {
			checkReason(t, err)
		} else if pause.left < 0 {
			t.Errorf("%s are left of a pause", pause.left)
		}
		pauses, err := decodePauses(reply)
		if err != nil {
			checkReason(t, err)
		}
		for _, pause := range pauses {
			if pause.Left <= 0 {
				t.Errorf("pause %+v", pause)
			}
		}
	})
}

func checkDecisions(t *testing.T, reply any) {
	t.Helper()
	limiter, batch := decodingLimiter(t)
	answer, err := limiter.newAdmitCall(batch, anyStore).decode(reply)
	decisions := answer.decisions
	if errors.Is(err, errHealing) {
		return
	}
	if err != nil {
		checkReason(t, err)
		return
	}
	if len(decisions) != len(batch) {
		t.Fatalf("%d decisions of %d events", len(decisions), len(batch))
	}
	verdicts := reply.([]any)[3].([]any)
	for i, decision := range decisions {
		if admitted := decision.Verdict == Admitted; admitted != (verdicts[i] == int64(1)) {
			t.Errorf("verdict %v became %+v", verdicts[i], decision)
		}
		if decision.RetryAfter < 0 || decision.Used < 0 {
			t.Errorf("%+v", decision)
		}
	}
}

func checkReason(t *testing.T, err error) {
	t.Helper()
	if text := err.Error(); !strings.Contains(text, "expected") && !errors.Is(err, errHealing) {
		t.Errorf("%q does not name what was expected", text)
	}
}

// FuzzOverrides prints valid overrides and parses them again. An error must name the expected form.
func FuzzOverrides(f *testing.F) {
	for _, seed := range []string{"", "errors=20/30m+2/10s,deploys=5/1h", " a = 1/1s , b=2/2s", "a=1/1s,a=2/1s", "=1/1s", "a", "a=", "a\u202e=1/1s", "a=1/1s,", "a.*=1/1s", "a.>=5/1h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		overrides, err := ParseOverrides(text)
		if err != nil {
			checkReason(t, err)
			return
		}
		var parts []string
		for category, limit := range overrides.All() {
			parts = append(parts, category+"="+limit.String())
		}
		again, err := ParseOverrides(strings.Join(parts, ","))
		if err != nil || again.Len() != overrides.Len() {
			t.Errorf("%q is read as %v, and that as %v, %v", text, overrides, again, err)
		}
	})
}
