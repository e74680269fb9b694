package survival

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"notifier/test/kit"
)

// rounds is how often each scenario is played, by the clock of a machine that does nothing else. 0: the one
// for everyday use is played.
var rounds int

// heals is whether replicas put back what they remember. Without that nothing is judged: it shows what there
// is to be healed.
var heals = os.Getenv("NOTIFIER_SURVIVE_HEALING") != "off"

func TestMain(m *testing.M) {
	kit.Overlap(3) // they wait for servers more than they work
	kit.QuietRedis()
	if text := os.Getenv("NOTIFIER_SURVIVE_ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			fmt.Fprintf(os.Stderr, "NOTIFIER_SURVIVE_ROUNDS=%s, expected a number of rounds, 1 or more\n", text)
			os.Exit(2)
		}
		rounds = n
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		results.print(os.Stdout)
		os.Exit(code)
	}))
}
