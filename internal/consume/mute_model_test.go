package consume_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestMutesFollowTheModel publishes at random while mutes begin and end, on one worker earlier than on the
// other. It compares each outcome with a model: an event is sent, or dropped as muted if a mute may have
// applied. Only sent events hold slots.
//
// Events wait in the lanes for the pace and occasionally for a Slack pause, and move to another worker
// when one stops.
func TestMutesFollowTheModel(t *testing.T) {
	seed := time.Now().UnixNano()
	if given, err := strconv.ParseInt(os.Getenv("NOTIFIER_MUTE_SEED"), 10, 64); err == nil {
		seed = given
	}
	runs := 4
	if testing.Short() {
		runs = 1
	}
	for i := range runs {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("to play it again: NOTIFIER_MUTE_SEED=%d", seed)
				}
			})
			m := newMuteHistory(t, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
			for range 60 {
				m.step()
			}
			m.finish()
		})
	}
}

// muteHistory is one random run.
type muteHistory struct {
	*fixture
	chance     *rand.Rand
	replicas   [2]*replica
	mutes      [2]*muteSwitch // of each worker
	categories map[string]*mutedCategory
	events     []*mutedEvent
	pauses     int
	stops      int
}

// mutedCategory is the model of a category.
type mutedCategory struct {
	muted [2]bool // by worker
	// sent counts the messages in Slack at the moment when the last worker muted the category. Afterwards
	// each worker may finish at most one post.
	sent int
}

func (c *mutedCategory) everywhere() bool { return c.muted[0] && c.muted[1] }

func (c *mutedCategory) anywhere() bool { return c.muted[0] || c.muted[1] }

// mutedEvent is an event with its allowed outcomes.
type mutedEvent struct {
	id, category string
	cost         int
	// may allows the outcome "muted": a worker muted the category while the event was possibly unsettled.
	may bool
	// must requires the outcome "muted": all workers muted the category from publication to settlement.
	must bool
}

// scarce is a category at its limit. Other events take the slots that a mute refunds.
const (
	scarce      = "scarce"
	scarceLimit = 6
)

func newMuteHistory(t *testing.T, chance *rand.Rand) *muteHistory {
	m := &muteHistory{fixture: newFixture(t), chance: chance, categories: map[string]*mutedCategory{}}
	for _, category := range []string{"errors", "deploys", scarce} {
		m.categories[category] = &mutedCategory{}
	}
	for i := range m.replicas {
		m.mutes[i] = newMuteSwitch()
		m.replicas[i] = m.another(i)
	}
	return m
}

// another starts a worker that posts one event at a time at a slow pace, so that events queue.
func (m *muteHistory) another(i int) *replica {
	return m.started(with(m.mutes[i]), func(c *setup) {
		c.concurrency, c.pace, c.overrides = 1, "1/15ms", fmt.Sprintf("%s=%d/30m", scarce, scarceLimit)
	})
}

func (m *muteHistory) any() (string, *mutedCategory) {
	category := []string{"errors", "deploys", scarce}[m.chance.IntN(3)]
	return category, m.categories[category]
}

func (m *muteHistory) step() {
	switch n := m.chance.IntN(20); {
	case n < 11:
		for range 1 + m.chance.IntN(4) {
			m.publishOne()
		}
	case n < 15:
		category, of := m.any()
		m.mute(category, of)
	case n < 18:
		category, of := m.any()
		m.unmute(category, of)
	case n == 18 && m.pauses == 0:
		m.pauses++
		m.slack.Respond(devstack.Next(devstack.Response{RetryAfter: "1"}))
	case n == 19 && m.stops == 0:
		m.stops++
		i := m.chance.IntN(len(m.replicas))
		kit.Check(m.T, m.replicas[i].stop())
		m.replicas[i] = m.another(i)
	}
}

func (m *muteHistory) publishOne() {
	category, of := m.any()
	e := &mutedEvent{
		id: fmt.Sprintf("e%d", len(m.events)), category: category,
		cost: 1 + m.chance.IntN(3), may: of.anywhere(), must: of.everywhere(),
	}
	m.publish(category, fmt.Sprintf(`{"text":%q,"cost":%d}`, e.id, e.cost), "Nats-Msg-Id", e.id)
	m.events = append(m.events, e)
}

// mute applies a mute to some of the workers.
func (m *muteHistory) mute(category string, of *mutedCategory) {
	before, settled := of.everywhere(), m.outcomes()
	for i := range m.mutes {
		if m.chance.IntN(3) > 0 && !of.muted[i] {
			m.mutes[i].mute(category)
			of.muted[i] = true
		}
	}
	for _, e := range m.events {
		e.may = e.may || e.category == category && of.anywhere() && settled[e.id] == ""
	}
	if of.everywhere() && !before {
		of.sent = m.sentOf(category)
	}
}

// unmute ends a mute on some of the workers. Half of the time it first waits for events that must be
// dropped.
func (m *muteHistory) unmute(category string, of *mutedCategory) {
	if of.everywhere() {
		m.expectQuiet(category, of)
	}
	wait := m.chance.IntN(2) == 0
	for _, e := range m.events {
		if e.category == category && e.must && wait {
			m.expectMuted(e)
		}
	}
	settled := m.outcomes()
	for i := range m.mutes {
		if m.chance.IntN(3) > 0 && of.muted[i] {
			m.mutes[i].unmute(category)
			of.muted[i] = false
		}
	}
	for _, e := range m.events {
		if e.category == category && !of.everywhere() && settled[e.id] == "" {
			e.must = false
		}
	}
}

// expectQuiet checks that only posts already under way completed after the last worker muted the category.
func (m *muteHistory) expectQuiet(category string, of *mutedCategory) {
	m.Helper()
	if sent := m.sentOf(category) - of.sent; sent > len(m.replicas) {
		m.Errorf("%d events of %s were sent after all workers had muted it, expected at most %d",
			sent, category, len(m.replicas))
	}
}

func (m *muteHistory) expectMuted(e *mutedEvent) {
	m.Helper()
	if l := m.lineOf(e.id); l["reason"] != "muted" || l["mute"] != e.category {
		m.Errorf("%+v ends as %v %v by %v, expected dropped as muted", *e, l["outcome"], l["reason"], l["mute"])
	}
}

// sentOf counts the messages of a category in Slack.
func (m *muteHistory) sentOf(category string) int {
	posted, sent := m.posted(), 0
	for _, e := range m.events {
		if e.category == category {
			sent += posted[e.id]
		}
	}
	return sent
}

// outcomes returns the outcome or reason of each settled event, by ID.
func (m *muteHistory) outcomes() map[string]string {
	outcomes := map[string]string{}
	for _, l := range m.log.settled() {
		outcome, _ := l["outcome"].(string)
		if reason, dropped := l["reason"].(string); dropped {
			outcome = reason
		}
		outcomes[l["event_id"].(string)] = outcome
	}
	return outcomes
}

// finish waits until all events are settled and compares each with the model.
func (m *muteHistory) finish() {
	lines := m.settled(len(m.events))
	for category, of := range m.categories {
		if of.everywhere() {
			m.expectQuiet(category, of)
		}
	}
	outcomes, posted, charged := m.outcomes(), m.posted(), map[string]int{}
	for _, e := range m.events {
		switch outcome := outcomes[e.id]; {
		case e.must:
			m.expectMuted(e)
		case outcome == "muted" && !e.may:
			m.Errorf("%+v is dropped as muted, and no worker had muted it", *e)
		case outcome == "sent":
			charged[e.category] += e.cost
		case outcome != "muted" && (outcome != "category" || e.category != scarce):
			m.Errorf("%+v ends as %q, expected sent or muted", *e, outcome)
		}
		if want := outcomes[e.id] == "sent"; posted[e.id] > 1 || (posted[e.id] == 1) != want {
			m.Errorf("%+v ends as %s, and is in Slack %d times", *e, outcomes[e.id], posted[e.id])
		}
	}
	if charged[scarce] > scarceLimit {
		m.Errorf("%d slots of %d/30m are taken", charged[scarce], scarceLimit)
	}
	for category := range m.categories {
		m.eventually(fmt.Sprintf("%d slots of %s are taken", charged[category], category), func() bool {
			return m.store.ZCard(m.Context(), "{"+namespace+"}:category:"+category).Val() == int64(charged[category])
		})
	}
	m.eventually("so they are over all", func() bool {
		return m.charged() == charged["errors"]+charged["deploys"]+charged[scarce]
	})
	m.expectNothingLeft()
	m.Logf("%v", tally(lines))
}
