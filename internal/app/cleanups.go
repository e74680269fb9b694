package app

import (
	"slices"

	"go.uber.org/zap"
)

// cleanups takes down parts in reverse order of their start.
type cleanups struct {
	log   *zap.Logger
	steps []cleanup
}

type cleanup struct {
	name string // in the log
	undo func()
}

func (c *cleanups) add(name string, undo func()) { c.steps = append(c.steps, cleanup{name, undo}) }

// run undoes everything, once.
func (c *cleanups) run() {
	for _, step := range slices.Backward(c.steps) {
		c.log.Debug("closing", zap.String("part", step.name))
		step.undo()
	}
	c.steps = nil
}
