package status

import (
	"context"
	"fmt"
	"slices"

	"notifier/internal/ratelimit"
	"notifier/internal/status/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Settings are whose settings a status is about: those that most of the running replicas show, ties go to the
// most recently started replica. Without any that can be used, they are those of whoever reads.
type Settings struct {
	Fingerprint string `json:"fingerprint"` // of these settings; empty: those of whoever reads are used
	Replicas    int    `json:"replicas"`    // that run with them
	// OwnText is why the settings of whoever reads are used, for people; empty: they are not.
	OwnText  string       `json:"own_text,omitempty"`
	Differ   []Difference `json:"differ"`   // what is not the same in all replicas that show their settings
	Warnings []string     `json:"warnings"` // about that, for people
}

// running is what a status is made with.
type running struct {
	hour     stats.Hour
	replicas []stats.Replica
	this     *This // nil: no worker reads
	limiter  Limiter
	settings Config           // its limits are those in force
	lasting  ratelimit.Rules  // those without the temporary ones
	orders   []steering.Order // mutes and temporary limits in force
	ends     ratelimit.Ends   // of these limits
	shown    Settings
	pauses   []ratelimit.Pause
}

// pausesFor are the pauses that concern a channel: its own, and that of the workspace.
func (r running) pausesFor(lane string) []ratelimit.Pause {
	other := func(p ratelimit.Pause) bool { return p.Channel != "" && p.Channel != lane }
	return slices.DeleteFunc(slices.Clone(r.pauses), other)
}

const ownLimits = "the limits are those that are set here."

// look reads what replicas report, chooses the settings, and makes a limiter that reads with them. Errors are
// as for Read.
func (s Source) look(ctx context.Context) (running, error) {
	hour, err := s.Stats.Hour(ctx)
	if err != nil {
		return running{}, err
	}
	replicas, err := s.Stats.Replicas(ctx)
	if err != nil {
		return running{}, err
	}
	of := running{hour: hour, limiter: s.Limiter, settings: s.Own}
	if s.This != nil {
		of.this = s.This()
	}
	of.replicas = withThis(replicas, of.this, hour.Now)
	variants := variantsOf(lastKnown(of.replicas))
	of.shown.Differ = compare(variants)
	of.shown.Warnings = warningsOf(of.shown.Differ)
	switch {
	case len(variants) > 0:
		of.shown.OwnText = s.use(&of, variants[0])
		if last := len(of.shown.Warnings) - 1; last >= 0 && of.shown.OwnText == "" {
			used := variants[0].replicas
			of.shown.Warnings[last] += " The limits shown are those of " + who(used, len(used)) + "."
		}
	case len(of.replicas) > 0:
		of.shown.OwnText = "The replicas run a release that does not show its limits: " + ownLimits
	default:
		of.shown.OwnText = "No replica runs: " + ownLimits
	}
	of.lasting = of.settings.Limits
	if err := s.steer(ctx, &of); err != nil {
		return running{}, err
	}
	of.pauses, err = of.limiter.Pauses(ctx)
	return of, err
}

// use takes the settings of a variant, or returns why it cannot.
func (s Source) use(of *running, v *variant) (why string) {
	config, err := s.Own.with(v.settings)
	if err == nil && s.LimiterFor != nil {
		var limiter Limiter
		if limiter, err = s.LimiterFor(config.Limits, config.Dedupe, ratelimit.Temporary{}); err == nil {
			of.limiter, of.settings = limiter, config
			of.shown.Fingerprint, of.shown.Replicas = fingerprint(v.settings), len(v.replicas)
			return ""
		}
	}
	if err == nil {
		return ""
	}
	whose := who(v.replicas, len(v.replicas))
	return term.Printable(fmt.Sprintf("The settings of %s cannot be used (%v): %s", whose, err, ownLimits))
}

// Compare returns what differs between the running replicas and the settings of whoever reads, under a name
// that no replica has, and how many of these show their settings. Errors are as for Read.
func (s Source) Compare(ctx context.Context, own string) (differ []Difference, replicas int, err error) {
	all, err := s.Stats.Replicas(ctx)
	if err != nil {
		return nil, 0, err
	}
	variants := variantsOf(stats.Running(all))
	for _, v := range variants {
		replicas += len(v.replicas)
	}
	mine := &variant{settings: s.Own.Shown(), replicas: []string{own}}
	return compare(slices.Insert(variants, 0, mine)), replicas, nil
}

// Different is how many different settings the running replicas have. Errors are as for Read.
func (s Source) Different(ctx context.Context) (int, error) {
	replicas, err := s.Stats.Replicas(ctx)
	return different(variantsOf(lastKnown(replicas))), err
}

// Steering reports what operators have asked for; see package steering.
type Steering interface {
	Read(ctx context.Context) (steering.State, error)
}

// steer puts what operators have asked for in the place of what the settings say.
func (s Source) steer(ctx context.Context, r *running) error {
	if s.Steering == nil || s.LimiterFor == nil {
		return nil
	}
	state, err := s.Steering.Read(ctx)
	if err != nil {
		return err
	}
	r.orders = state.InForce(state.Now, steering.Mute, steering.Limit)
	instead := steering.Temporary(r.orders)
	if r.limiter, err = s.LimiterFor(r.settings.Limits, r.settings.Dedupe, instead); err != nil {
		return err
	}
	r.settings.Limits, r.ends = r.settings.Limits.With(instead), instead.Ends
	return nil
}

// muteOf is the mute in force that matches a category, of several the one that lasts longest; nil: none.
func (r running) muteOf(category string) *steering.Order {
	var found *steering.Order
	for i, o := range r.orders {
		if o.Kind == steering.Mute && matches(o.Target, category) && (found == nil || o.Until.After(found.Until)) {
			found = &r.orders[i]
		}
	}
	return found
}
