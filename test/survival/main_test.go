package survival

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"notifier/test/kit"
)

// rounds is the number of rounds of each scenario. Stalls are judged only in such a run, which expects an
// otherwise idle machine. If rounds is zero, TestFaultsAdmitNothingTwice plays two scenarios instead.
var rounds int

// heals makes workers restore their admissions. Without it, results are printed but not judged.
var heals = os.Getenv("NOTIFIER_SURVIVE_HEALING") != "off"

func TestMain(m *testing.M) {
	kit.Overlap(3) // tests mostly wait for servers
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
