package ratelimit

import (
	"testing"
	"time"
)

func TestTierTextsAreFew(t *testing.T) {
	var texts TierTexts
	for range 2 {
		for n := range 3 * mostTierTexts {
			tier := Tier{Count: n + 1, Window: time.Minute, Fixed: n%2 == 0}
			if got, want := texts.Of(tier), tier.String(); got != want {
				t.Fatalf("the text of %+v is %q, expected %q", tier, got, want)
			}
			if len(texts.texts) > mostTierTexts {
				t.Fatalf("%d texts are kept, expected at most %d", len(texts.texts), mostTierTexts)
			}
		}
	}
	tier := Tier{Count: 1, Window: time.Minute}
	_ = texts.Of(tier)
	if allocations := testing.AllocsPerRun(10, func() { _ = texts.Of(tier) }); allocations != 0 {
		t.Errorf("%.0f allocations for a text that was made, expected none", allocations)
	}
}
