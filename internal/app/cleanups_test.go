package app

import (
	"slices"
	"testing"

	"go.uber.org/zap"
)

func TestCleanupsRunInReverseAndOnce(t *testing.T) {
	c := cleanups{log: zap.NewNop()}
	var undone []string
	for _, name := range []string{"first", "second", "third"} {
		c.add(name, func() { undone = append(undone, name) })
	}
	c.run()
	c.run()
	if want := []string{"third", "second", "first"}; !slices.Equal(undone, want) {
		t.Errorf("%v, expected %v", undone, want)
	}
}
