package status

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Explanation is what applies to one category, and what would become of an event of it now, as JSON for
// scripts.
type Explanation struct {
	Time     time.Time `json:"time"` // by the clock of Redis
	Category string    `json:"category"`
	Group    string    `json:"group"`
	// Impossible: no subject that the workers read gives this category.
	Impossible bool     `json:"impossible"`
	Subject    string   `json:"subject"`  // that the workers read; empty: not known
	Forecast   Forecast `json:"forecast"` // as far as limits and mutes go
	// Stopped is why nothing is sent at the moment, whatever its category; empty: something is.
	Stopped string `json:"stopped,omitempty"`
	// Unseen says that no recent event has the category, and which one is meant; empty: one has, or it is not
	// known.
	Unseen string `json:"unseen,omitempty"`

	Limits []AppliedLimit `json:"limits"` // global, group if there is one, category
	// of the global limit, for this category; null: none
	Reserve       *ratelimit.Reserve `json:"reserve"`
	KeptForOthers int                `json:"kept_for_others"` // slots of the longest global tier with reserves
	Mute          *steering.Order    `json:"mute"`

	Channel string `json:"channel"` // of events that name none; empty: the webhook's
	// the name or pattern in SLACK_ROUTES that it is from; empty: it is the default channel
	Route        string `json:"route,omitempty"`
	RouteUnknown bool   `json:"route_unknown,omitempty"` // there are too many routes for a heartbeat
	Pace         string `json:"pace"`                    // 10/10s, or off
	// of the channel and of the workspace, that are in force
	Pauses   []Pause   `json:"pauses"`
	Unposted *Unposted `json:"unposted"` // what waits for the channel; null: nothing
	// Slack's code, if the channel refuses every message
	Refused string  `json:"channel_refuses,omitempty"`
	MaxAgeS float64 `json:"max_age_s"` // older events are dropped as expired; 0: none

	Settings Settings `json:"settings"`
}

// AppliedLimit is one of the limits that a category has to pass.
type AppliedLimit struct {
	Level    string `json:"level"` // global, group or category
	Limit    string `json:"limit"`
	Variable string `json:"variable"` // that sets it
	// the group, category or pattern in it that it is for; empty: it is for all
	Name  string `json:"name,omitempty"`
	Tiers []Tier `json:"tiers"` // kept: in a global one, for other categories
	// ForAWhile is what an operator has asked for in place of the variable; nil: nothing.
	ForAWhile *steering.Order `json:"for_a_while,omitempty"`
}

// Explain asks Redis what applies to a category, which need not have been seen. It only reads. Errors are as
// for Read.
func (s Source) Explain(ctx context.Context, category string) (Explanation, error) {
	of, err := s.look(ctx)
	if err != nil {
		return Explanation{}, err
	}
	f, err := newForecaster(ctx, of, category)
	if err != nil {
		return Explanation{}, err
	}
	e := Explanation{
		Time:       of.hour.Now,
		Category:   category,
		Group:      ratelimit.GroupOf(category),
		Settings:   of.shown,
		Mute:       of.muteOf(category),
		Subject:    of.settings.Subject.String(),
		Impossible: !of.settings.Subject.Gives(category),
		Limits:     appliedLimits(f, category),
		MaxAgeS:    term.Seconds(of.settings.MaxAge),
	}
	e.Forecast = f.ofCategory(category)
	everybody := Status{Time: e.Time, Replicas: of.replicas, Global: scopesOf(f).global}
	_, e.Stopped = view{Status: everybody, redis: redisOf(of.this, s.Stats.Refuses(ctx))}.stopped()
	unseen, err := unmatched(ctx, of, category)
	if err != nil {
		return Explanation{}, err
	}
	e.Unseen = strings.Join(unseen, "")
	e.setReserves(f.reserves, f.globalFor(category).kept)
	e.setChannel(of)
	return e, nil
}

// setReserves sets what is kept for the category, and in each of the global tiers, as kept says, for others.
func (e *Explanation) setReserves(reserves []ratelimit.Reserve, kept []int) {
	for i := range e.Limits[0].Tiers[:min(len(kept), len(e.Limits[0].Tiers))] {
		e.Limits[0].Tiers[i].Kept = kept[i]
	}
	for _, reserve := range reserves {
		if reserve.Category == e.Category {
			e.Reserve = &reserve
			continue
		}
		e.KeptForOthers += reserve.Kept
	}
}

// channelKeeps reports whether the channel is paused, or something else keeps admitted events from being
// posted there.
func (e Explanation) channelKeeps() bool {
	return len(e.Pauses) > 0 || e.Unposted != nil && e.Unposted.Why != ""
}

// setChannel sets where events go, and what happens there.
func (e *Explanation) setChannel(of running) {
	e.Channel, e.Route = of.settings.ChannelOf(e.Category)
	e.RouteUnknown, e.Pace = of.settings.RoutesUnknown, of.settings.Pace()
	lane := of.settings.laneOf(e.Category)
	e.Pauses = []Pause{}
	for _, pause := range of.pausesFor(lane) {
		e.Pauses = append(e.Pauses, newPause(pause))
	}
	for _, unposted := range UnpostedOf(of.replicas, e.Time) {
		if unposted.Channel == lane {
			e.Unposted = &unposted
		}
	}
	e.Refused = refusedChannels(of.replicas)[lane]
}

// appliedLimits are the limits of a category, with what is used of them.
func appliedLimits(f forecaster, category string) []AppliedLimit {
	limits, orders := f.settings.Limits, f.orders
	group := ratelimit.GroupOf(category)
	applied := []AppliedLimit{
		{Level: outcome.Global, Limit: limits.Global.String(), Variable: "LIMIT_GLOBAL", Tiers: f.tiersOf(f.global)},
	}
	if limit := limits.GroupLimit(group); len(limit) > 0 {
		shared := AppliedLimit{
			Level:    outcome.Group,
			Limit:    limit.String(),
			Variable: "LIMIT_GROUP",
			Tiers:    f.tiersOf(f.groups[group]),
		}
		if _, found := limits.GroupOverrides[group]; found {
			shared.Variable, shared.Name = "LIMIT_GROUP_OVERRIDES", group
		}
		applied = append(applied, shared)
	}
	own := AppliedLimit{
		Level:    outcome.Category,
		Limit:    limits.LimitFor(category).String(),
		Variable: "LIMIT_CATEGORY",
		Tiers:    f.tiersOf(f.own[category]),
	}
	if _, name, found := limits.Overrides.Find(category); found {
		own.Variable, own.Name = "LIMIT_OVERRIDES", name
	}
	applied = append(applied, own)
	scopes := map[string]string{
		outcome.Global:   "global",
		outcome.Group:    "group/" + group,
		outcome.Category: "category/" + category,
	}
	for i := range applied {
		ofScope := func(o steering.Order) bool {
			return o.Kind == steering.Limit && o.Target == scopes[applied[i].Level]
		}
		if at := slices.IndexFunc(orders, ofScope); at >= 0 {
			applied[i].ForAWhile, applied[i].Variable, applied[i].Name = &orders[at], "notifier limit set", ""
		}
	}
	return applied
}

func (r running) tiersOf(usages []ratelimit.Usage) []Tier {
	tiers := make([]Tier, len(usages))
	for i, usage := range usages {
		tiers[i] = newTier(r.bounded(usage))
	}
	return tiers
}

// CheckCategory returns what is wrong with a name of a category, or nil. The error follows the name:
// "errors.> is a pattern ...".
func CheckCategory(category string) error {
	if err := pattern.Check(category); err != nil {
		return err
	}
	if pattern.HasWildcard(category) {
		return errors.New("is a pattern, expected the name of one category, such as errors")
	}
	return nil
}
