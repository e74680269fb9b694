package preflight

import (
	"context"
	"strings"

	"notifier/internal/published"
	"notifier/internal/settings"
	"notifier/internal/stats"
	"notifier/internal/status"
	"notifier/internal/term"
)

// here is what these settings are called among those of replicas.
const here = "this configuration"

// replicas compares these settings with those that the running replicas have published. Without a replica there is no finding.
func (c *redisCheck) replicas(ctx context.Context, s settings.Settings) {
	var running []stats.Replica
	var variants []*published.Variant
	err := withTimeout(ctx, func(ctx context.Context) error {
		reader, err := stats.NewReader(s.Store.Redis, s.Store.Namespace)
		if err != nil {
			return err
		}
		if running, err = reader.Replicas(ctx); err != nil {
			return err
		}
		variants = published.Variants(status.Published(running))
		documents, err := reader.Settings(ctx, published.Fingerprints(variants)...)
		published.Fill(variants, documents)
		return err
	})
	switch {
	case err != nil:
		c.report.warn(redisAdvice(err), "the settings of the running workers are unknown: %v", err)
	case len(running) > 0:
		c.compare(variants, s.Published())
	}
}

// compare reports what differs: between replicas, and between them and these settings.
func (c *redisCheck) compare(variants []*published.Variant, own published.Settings) {
	mine := published.Own(here, own)
	differs := 0
	all := append(variants, mine)
	for _, difference := range published.WorthSaying(all, published.Compare(all)) {
		differs++
		if difference.Deployment() {
			c.report.warn("give each deployment a REDIS_NAMESPACE of its own, or correct the setting",
				"another deployment uses the namespace %s, and so the same limits: %s", c.namespace, difference.Text())
			continue
		}
		c.report.warn("restart the workers that have another value, or correct this configuration",
			"the running workers and this configuration differ: %s", difference.Text())
	}
	for _, unknown := range published.Unknown(variants) {
		c.report.warn("", "%s", strings.TrimSuffix(strings.ToLower(unknown[:1])+unknown[1:], "."))
	}
	known := 0
	for _, variant := range variants {
		if variant.Known() {
			known += len(variant.Replicas)
		}
	}
	if differs == 0 && known > 0 {
		c.report.ok("%s, with the settings of this configuration", term.Count(known, "running replica"))
	}
}
