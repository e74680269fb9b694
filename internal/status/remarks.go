package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"notifier/internal/outcome"
	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
	"notifier/internal/term/suggest"
)

// Remarks are what an operator may not expect of an order that is in force, a sentence each: wider limits that
// are lower, a limit that is used up, categories that no recent event has. It only reads. Errors are as for
// Read.
func (s Source) Remarks(ctx context.Context, order steering.Order) ([]string, error) {
	of, err := s.look(ctx)
	if err != nil {
		return nil, err
	}
	if order.Kind == steering.Mute {
		return unmatched(ctx, of, order.Target)
	}
	scope, err := steering.ParseScope(order.Target)
	if err != nil {
		return nil, err
	}
	full, err := usedUp(ctx, of, scope)
	if err != nil {
		return nil, err
	}
	limits := slices.Concat(full, lowerLimits(of.settings.Limits, scope), ofGroup(of, scope.Group))
	switch {
	case scope.Category != "":
		unseen, err := unmatched(ctx, of, scope.Category)
		return append(limits, unseen...), err
	case scope.Group == "":
		return append(limits, unreserved(of)...), nil
	}
	return limits, nil
}

// ofGroup is what a limit of a group leaves as it is.
func ofGroup(of running, group string) (remarks []string) {
	if group == "" {
		return nil
	}
	own := fmt.Sprintf("Each of its categories still has its own limit, by default %s.", of.lasting.Category)
	remarks = append(remarks, own)
	if len(of.lasting.GroupLimit(group)) == 0 {
		before := "The settings give it no limit, so what it sent before a temporary limit does not count."
		remarks = append(remarks, before)
	}
	return remarks
}

// unreserved says that a global limit is too low for what LIMIT_RESERVE keeps of it.
func unreserved(of running) []string {
	rules := of.settings.Limits
	if len(rules.Reserve) == 0 || rules.ReservedTier() != (ratelimit.Tier{}) {
		return nil
	}
	reserved := term.CountAre(rules.Reserved(), "slot")
	return []string{fmt.Sprintf("LIMIT_RESERVE does not apply: %s reserved, and the limit has no more than that.", reserved)}
}

// lowerLimits names the wider limits that are lower than a scope's own.
func lowerLimits(rules ratelimit.Rules, scope ratelimit.Scope) []string {
	own, group := rules.GroupLimit(scope.Group), ratelimit.Limit(nil)
	if scope.Category != "" {
		own, group = rules.LimitFor(scope.Category), rules.GroupLimit(ratelimit.GroupOf(scope.Category))
	}
	var remarks []string
	if above(own, rules.Global) {
		remarks = append(remarks, fmt.Sprintf("The lower global limit %s still applies.", rules.Global))
	}
	if above(own, group) {
		name := ratelimit.GroupOf(scope.Category)
		remarks = append(remarks, fmt.Sprintf("The lower limit %s of group %s still applies.", group, name))
	}
	return remarks
}

// above reports whether a limit allows more in one of its windows than a wider one. A level without a limit
// allows everything.
func above(own, wider ratelimit.Limit) bool {
	return slices.ContainsFunc(own, func(tier ratelimit.Tier) bool {
		return min(tier.Count, own.Most(tier.Window)) > wider.Most(tier.Window)
	})
}

// usedUp says until when a limit lets nothing through.
func usedUp(ctx context.Context, of running, scope ratelimit.Scope) ([]string, error) {
	var asked []string
	if name := cmp.Or(scope.Category, scope.Group); name != "" { // a group, too, has a category of its name
		asked = append(asked, name)
	}
	f, err := newForecaster(ctx, of, asked...)
	if err != nil {
		return nil, err
	}
	usages, what := f.global, "Nothing"
	switch {
	case scope.Category != "":
		usages, what = f.own[scope.Category], "Nothing of "+scope.Category
	case scope.Group != "":
		usages, what = f.groups[scope.Group], "Nothing of group "+scope.Group
	}
	var last ratelimit.Usage
	atLeast := false
	for _, usage := range usages {
		usage = of.bounded(usage)
		atLeast = atLeast || usage.FreeIn > 0 && usage.AtLeast
		if usage.FreeIn > last.FreeIn {
			last = usage
		}
	}
	if last.FreeIn == 0 {
		return nil, nil
	}
	until, or := of.hour.Now.Add(last.FreeIn).Format(time.RFC3339), ""
	if atLeast {
		or = " or later"
	}
	return []string{fmt.Sprintf("%s is sent until %s%s (%s): %s used of %d.",
		what, until, or, term.Duration(last.FreeIn), term.Count(last.Used, "slot"), last.Tier.Count)}, nil
}

// unmatched says that no recent event matches a pattern, and names the nearest one that does. Where there are
// more categories than are looked at it is not known.
func unmatched(ctx context.Context, of running, target string) ([]string, error) {
	recent, entries, err := of.limiter.Recent(ctx, mostEntries)
	if err != nil {
		return nil, err
	}
	sums := of.hour.Sum()
	categories := candidates(recent, sums)
	for category := range of.hour.LastSent {
		categories = append(categories, outcome.CategoryOf(category))
	}
	others := func(count stats.Count) bool { return count.Category == stats.OtherCategory }
	matched := func(category string) bool { return matches(target, category) }
	if entries > mostEntries || slices.ContainsFunc(sums, others) || slices.ContainsFunc(categories, matched) {
		return nil, nil
	}
	text := "No recent event matches " + target
	if meant, found := meantBy(target, categories); found {
		text += fmt.Sprintf(" (did you mean %q?)", meant)
	}
	return []string{text + "."}, nil
}

// meantBy is the category that a pattern most likely means, or the pattern of the same form that matches it.
func meantBy(target string, categories []string) (meant string, found bool) {
	var known []string
	for _, category := range categories {
		known = append(known, inForm(target, category))
	}
	return suggest.Nearest(target, append(known, categories...))
}

// inForm is a category with the wildcards of a pattern: errors.> for erors.> and errors.db. It is empty where
// they do not fit.
func inForm(target, category string) string {
	form, tokens := strings.Split(target, "."), strings.Split(category, ".")
	for i, token := range form {
		switch {
		case i == len(tokens):
			return ""
		case token == ">":
			return strings.Join(append(tokens[:i], ">"), ".")
		case token == "*":
			tokens[i] = "*"
		}
	}
	return strings.Join(tokens, ".")
}
