package status

import (
	"context"
	"fmt"
	"time"

	"notifier/internal/published"
	"notifier/internal/ratelimit"
	"notifier/internal/stats"
	"notifier/internal/steering"
	"notifier/internal/term"
)

// Limits are in the environment of each process, so the caller's own may be those of no worker: of another
// shell, or of an .env that was edited since.

// Settings are whose settings a status is about: those that most of the running replicas have, of equals those of the replica that
// started last. Where there are none that can be used, they are those of whoever reads.
type Settings struct {
	Fingerprint string `json:"fingerprint"` // of the replicas' settings; empty: those of whoever reads are used
	Replicas    int    `json:"replicas"`    // that run with them
	// OwnText is why the settings of whoever reads are used, for people; empty: they are not.
	OwnText  string                 `json:"own_text,omitempty"`
	Differ   []published.Difference `json:"differ"`   // what is not the same in all replicas
	Warnings []string               `json:"warnings"` // about that, for people
}

// running is what a status is made with.
type running struct {
	limiter  Limiter
	settings published.Settings // its limits are those in force
	orders   []steering.Order   // mutes and limits for a while, in force
	shown    Settings
}

// running chooses the settings, and makes a limiter that reads with them. Errors are as for Read.
func (s Source) running(ctx context.Context, replicas []stats.Replica) (running, error) {
	variants := published.Variants(Published(replicas))
	documents, err := s.Stats.Settings(ctx, published.Fingerprints(variants)...)
	if err != nil {
		return running{}, err
	}
	published.Fill(variants, documents)
	r := running{limiter: s.Limiter, settings: s.Own}
	r.shown.Differ = published.Compare(variants)
	r.shown.Warnings = published.Warnings(variants, r.shown.Differ)
	r.shown.OwnText = "No replica runs: the limits are those that are set here."
	if len(variants) > 0 {
		r.shown.OwnText = s.use(&r, variants[0])
	}
	return r, s.steer(ctx, &r)
}

// use takes the settings of a variant, or returns why it cannot.
func (s Source) use(r *running, variant *published.Variant) (why string) {
	settings, err := variant.Decode()
	if err == nil && s.LimiterFor != nil {
		var limiter Limiter
		if limiter, err = s.LimiterFor(settings.Limits, settings.Dedupe, ratelimit.Temporary{}); err == nil {
			r.limiter, r.settings = limiter, settings
			r.shown.Fingerprint, r.shown.Replicas = variant.Fingerprint, len(variant.Replicas)
			return ""
		}
	}
	if err == nil {
		return ""
	}
	return term.Printable(fmt.Sprintf("The settings of %s cannot be used (%v): the limits are those that are set here.", variant.Who(), err))
}

// missed is how much older than the newest heartbeat one is whose replica has probably died: ten were missed.
const missed = 10 * time.Second

// Published is what is to be known of replicas in order to compare their settings. Those that have probably died are left out, so
// that they do not outvote those that have replaced them.
func Published(replicas []stats.Replica) []published.Replica {
	var newest time.Time
	for _, replica := range replicas {
		if replica.Seen.After(newest) {
			newest = replica.Seen
		}
	}
	var list []published.Replica
	for _, replica := range replicas {
		if newest.Sub(replica.Seen) < missed {
			list = append(list, published.Replica{ID: replica.ID, Fingerprint: replica.Settings, Started: replica.Started})
		}
	}
	return list
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
	r.settings.Limits = r.settings.Limits.With(instead)
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
