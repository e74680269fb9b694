package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
)

// Forecast is what would become of one event, of one slot, that came now. It is the one answer to that
// question: the table, the JSON, the page and the status of one category show it.
type Forecast struct {
	Sends bool `json:"sends"` // all limits have room
	// with which it would be dropped: category, group, global, muted
	Reason string `json:"reason,omitempty"`
	// the tier that refuses; of several the one that has room last
	Limit string `json:"limit,omitempty"`
	// when all limits have room, if nothing else is admitted; null: now, or it is not known
	At *time.Time `json:"at,omitempty"`
	// it is At at the earliest: slots are kept for others, or in buckets
	AtLeast bool `json:"at_least,omitempty"`
	Kept    int  `json:"kept,omitempty"` // slots of that tier that are kept for others
	// of that tier, if it has slots left: these are kept for others
	Left int `json:"left,omitempty"`
}

// muted is the reason of what an operator has muted.
const muted = "muted"

// level is one of the limits that an event has to pass.
type level struct {
	reason string
	usages []ratelimit.Usage
	limits []string // how the tiers are shown, where the usages have others; nil: as they are
	kept   []int    // of each tier; nil: none
	left   []int    // of each tier, for whom they are kept; nil with kept
}

// forecast decides as lua/admit.lua does: of several tiers that refuse, the one that has room last is named;
// of those that have room at the same time, that of the level that is listed first. So the levels are
// category, group, global.
func (r running) forecast(mute *steering.Order, levels ...level) Forecast {
	if mute != nil {
		until := mute.Until
		return Forecast{Reason: muted, At: &until}
	}
	f := Forecast{Sends: true}
	var named, last time.Duration
	atLeast := false // a lower bound of one tier is one of all
	for _, level := range levels {
		for i, usage := range level.usages {
			bounded := r.bounded(usage)
			last = max(last, bounded.FreeIn)
			atLeast = atLeast || bounded.FreeIn > 0 && bounded.AtLeast
			if usage.FreeIn <= named {
				continue
			}
			named = usage.FreeIn
			f = Forecast{Reason: level.reason, Limit: usage.Tier.String()}
			if level.limits != nil {
				f.Limit = level.limits[i]
			}
			if level.kept != nil {
				f.Kept, f.Left = level.kept[i], min(level.kept[i], level.left[i])
			}
		}
	}
	if !f.Sends {
		at := r.hour.Now.Add(last)
		f.At, f.AtLeast = &at, atLeast
	}
	return f
}

// bounded is a usage whose room is no later than the end of the temporary limit that it is of.
func (r running) bounded(u ratelimit.Usage) ratelimit.Usage {
	of := ratelimit.Scope{Group: u.Group, Category: u.Category}
	u.FreeIn, u.AtLeast = r.ends.Bound(of, r.hour.Now, u.FreeIn, u.AtLeast)
	return u
}

// forecaster has what all forecasts of a status need.
type forecaster struct {
	running
	usages   []ratelimit.Usage // in the order in which they were asked for; then by scope
	global   []ratelimit.Usage
	groups   map[string][]ratelimit.Usage
	own      map[string][]ratelimit.Usage // by category
	reserves []ratelimit.Reserve
	// by category; "": one without a reserve. nil: nothing is kept for anybody
	rooms map[string]ratelimit.Room
}

// newForecaster asks how full the limits of categories are, and what is kept for whom. Errors are as for
// Read.
func newForecaster(ctx context.Context, of running, categories ...string) (f forecaster, err error) {
	f = forecaster{running: of, groups: map[string][]ratelimit.Usage{}, own: map[string][]ratelimit.Usage{}}
	if f.usages, err = of.limiter.Peek(ctx, categories...); err != nil {
		return f, err
	}
	if f.reserves, err = of.limiter.Reserves(ctx); err != nil {
		return f, err
	}
	asked := []string{""}
	for _, usage := range f.usages {
		switch {
		case usage.Group != "":
			f.groups[usage.Group] = append(f.groups[usage.Group], usage)
		case usage.Category == "":
			f.global = append(f.global, usage)
		default:
			f.own[usage.Category] = append(f.own[usage.Category], usage)
		}
	}
	if len(f.reserves) == 0 {
		return f, nil
	}
	for _, reserve := range f.reserves {
		if f.own[reserve.Category] != nil {
			asked = append(asked, reserve.Category)
		}
	}
	rooms, err := of.limiter.Rooms(ctx, asked...)
	if err != nil {
		return f, err
	}
	f.rooms = map[string]ratelimit.Room{}
	for i, category := range asked {
		f.rooms[category] = rooms[i]
	}
	return f, nil
}

// ofCategory is the forecast of a category.
func (f forecaster) ofCategory(category string) Forecast {
	group := level{reason: outcome.Group, usages: f.groups[ratelimit.GroupOf(category)]}
	own := level{reason: outcome.Category, usages: f.own[category]}
	return f.forecast(f.muteOf(category), own, group, f.globalFor(category))
}

// ofGroup is the forecast of a category of this group that has room itself.
func (f forecaster) ofGroup(group string) Forecast {
	return f.forecast(nil, level{reason: outcome.Group, usages: f.groups[group]}, f.globalFor(""))
}

// globalFor is the global limit as it is for a category.
func (f forecaster) globalFor(category string) level {
	l := level{reason: outcome.Global, usages: f.global}
	room, found := f.rooms[category]
	if !found {
		room, found = f.rooms[""]
	}
	if found && len(room.Usages) == len(f.global) { // else its rules have changed in between
		l.usages, l.kept = room.Usages, room.Kept
		for i, usage := range f.global {
			l.limits = append(l.limits, usage.Tier.String())
			l.left = append(l.left, max(0, usage.Tier.Count-room.Usages[i].Used))
		}
	}
	return l
}

// matches reports whether a pattern matches a category.
func matches(text, category string) bool {
	table, err := pattern.NewTable(map[string]bool{text: true})
	if err != nil {
		return false
	}
	_, _, found := table.Find(category)
	return found
}

// levelNames are the levels for people, in the rows of the table.
var levelNames = map[string]string{
	outcome.Group:  "group limit",
	outcome.Global: "global limit",
	muted:          "muted",
}

// Cell is the forecast for people in a row of the scope that has the level own: "now", "in 4m12s (14:32:07)",
// or with the level that refuses where it is another one: "global limit, in 4m12s (14:32:07)". Times of day
// are in this machine's time zone.
func (f Forecast) Cell(now time.Time, own string) string {
	if f.Sends {
		return "now"
	}
	text := f.room(now, own)
	if f.At != nil {
		text += " (" + f.At.Local().Format(time.TimeOnly) + ")"
	}
	return text
}

// room is Cell without the time of day, for a forecast that sends nothing.
func (f Forecast) room(now time.Time, own string) string {
	text := "?"
	if f.At != nil {
		text = "in " + spanText(f.At.Sub(now), f.AtLeast)
	}
	switch {
	case f.Left > 0:
		return "kept, " + text
	case f.Reason != own:
		return levelNames[f.Reason] + ", " + text
	}
	return text
}

// reasonTexts say for people why an event would not be sent.
var reasonTexts = map[string]string{
	outcome.Category: "the limit %s of the category is full",
	outcome.Group:    "the limit %s of its group is full",
	outcome.Global:   "the global limit %s is full",
	muted:            "it is muted",
}

// Text is the forecast for people: "An event would be dropped now: the global limit 100/30m is full. There is
// room in 4m12s (14:32:07)."
func (f Forecast) Text(now time.Time) string {
	if f.Sends {
		return "An event would be sent now."
	}
	why := reasonTexts[f.Reason]
	if strings.Contains(why, "%s") {
		why = fmt.Sprintf(why, f.Limit)
	}
	if f.Left > 0 {
		why = fmt.Sprintf(
			"of the global limit %s only slots are left that are kept for others (%d)",
			f.Limit,
			f.Left,
		)
	}
	text := fmt.Sprintf("An event would be dropped now (%s): %s.", f.Reason, why)
	if f.At == nil {
		return text
	}
	begin := "There is room in"
	if f.Reason == muted {
		begin = "The mute ends in"
	}
	return fmt.Sprintf("%s %s %s.", text, begin, f.when(now))
}

// when is "4m12s (14:32:07)", or "at least 4m12s (14:32:07)".
func (f Forecast) when(now time.Time) string {
	return fmt.Sprintf("%s (%s)", spanText(f.At.Sub(now), f.AtLeast), f.At.Local().Format(time.TimeOnly))
}
