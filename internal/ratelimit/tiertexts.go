package ratelimit

// TierTexts makes the text of each tier once: in a storm it is asked for with each event. The zero value is
// ready. It is not safe for concurrent use.
type TierTexts struct{ texts map[Tier]string }

// mostTierTexts bounds what is kept: temporary limits come and go.
const mostTierTexts = 256

// Of is what Tier.String returns.
func (t *TierTexts) Of(tier Tier) string {
	if text, known := t.texts[tier]; known {
		return text
	}
	if t.texts == nil || len(t.texts) >= mostTierTexts {
		t.texts = map[Tier]string{}
	}
	text := tier.String()
	t.texts[tier] = text
	return text
}
