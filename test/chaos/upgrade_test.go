package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"notifier/internal/outcome"
	"notifier/test/kit"
)

// releaseVariable names the environment variable with the path of the previous release's binary.
// .ci/release-before builds it.
const releaseVariable = "NOTIFIER_TEST_RELEASE"

// stamped is this code under another version, and stands in for the previous release if releaseVariable
// is unset.
var stamped = &kit.Program{Version: "v0.0.0-before"}

// userBefore is the Redis user that v0.3.1's docs/security.md recommends. An upgrade does not change the
// user, so this code has to work with it.
const userBefore = "notifier on >before resetkeys ~{" + namespace + "}:* resetchannels -@all +evalsha +eval +time +info" +
	" +get +set +del +exists +pexpire +pexpireat" +
	" +hget +hmget +hset +hdel +hgetall +hincrby +hlen +hrandfield" +
	" +zadd +zcard +zcount +zmscore +zscore +zrem +zrange +zrangebyscore +zrevrange +zrevrangebyscore" +
	" +zremrangebyrank +zremrangebyscore"

// TestRollingUpgrade upgrades the workers of the previous release to this code, one at a time under load,
// and rolls back the same way. Meanwhile operators set overrides, Redis is restarted, and Slack's
// responses are lost. Each roll kills one worker instead of terminating it. The audit is the same as in
// TestChaos, so it shows that both releases understand each other's data in Redis and NATS and keep the
// limits together, with the Redis permissions of v0.3.1. The read-only commands of each release must work
// on the other's data too.
func TestRollingUpgrade(t *testing.T) {
	kit.Long(t)
	t.Parallel()
	before, now := releaseBefore(t), plain.Build(t, folder)
	seed, duration := chosen(t, 0) // one round, unless NOTIFIER_CHAOS_TIME is set
	t.Logf("NOTIFIER_CHAOS_SEED=%d, before: %s, now: %s", seed, versionOf(t, before), versionOf(t, now))
	d := newDeployment(t, 5*time.Second, limits{
		// two minutes, because the ledger cannot be read while Redis is unavailable, which is often
		global: "60/5s+5000/2m", category: "12/5s+2/200ms",
		overrides: map[string]string{"billing": "60/2m+10/1s"},
	}, append([]string{"--user"}, strings.Fields(userBefore)...)...)
	d.urls["REDIS_URL"] = "redis://notifier:before@" + d.redis.Addr + "/0"
	for range 3 {
		k := d.addWorker(plain, false)
		k.program = before
		_, err := k.start()
		kit.Check(t, err)
	}

	busy, rest := context.WithCancel(t.Context())
	var lanes sync.WaitGroup
	defer lanes.Wait() // also if the test fails early
	defer rest()
	endLoad := d.load(seed, 35)
	defer endLoad()
	for i, lane := range [][]injector{d.operators(), d.againstSlack(false)} {
		lanes.Go(func() { injectFaults(busy, rand.New(rand.NewPCG(seed, uint64(i))), lane) })
	}
	d.allSettle()
	random := rand.New(rand.NewPCG(seed, 99))
	for round := 0; round == 0 || time.Since(d.faults.begun) < duration; round++ {
		d.roll(random, now, before)
		d.roll(random, before, now)
	}
	rest()
	lanes.Wait()
	endLoad()
	d.treatPosts(nil)
	a := d.reconcile()
	for _, program := range []string{before, now} {
		if counts := a.by(program); counts[outcome.Sent] == 0 || counts[outcome.Dropped] == 0 || counts[outcome.Dead] == 0 {
			t.Errorf("%s has settled %v, expected some of each", versionOf(t, program), counts)
		}
	}
	t.Logf("seed %d, %s\n%s", seed, time.Since(d.faults.begun).Round(time.Second), a.report())
}

// releaseBefore returns the path of the previous release's binary, or of its stand-in.
func releaseBefore(t *testing.T) string {
	t.Helper()
	path := os.Getenv(releaseVariable)
	if path == "" {
		return stamped.Build(t, folder)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s: %v", releaseVariable, err)
	}
	return path
}

// versionOf returns the output of a program's version command on one line.
func versionOf(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "version").Output()
	kit.Check(t, err)
	return strings.Join(strings.Fields(string(out)), " ")
}

// by counts the lines of a program's processes by outcome.
func (a *audit) by(program string) map[string]int {
	counts := map[string]int{}
	for _, l := range a.settled {
		if l.process.program == program {
			counts[l.Outcome]++
		}
	}
	return counts
}

// roll moves all workers to another program, one at a time. It continues when all workers, old and new,
// are ready and settle events. One worker, chosen at random, is killed instead of terminated. After half
// of the replacements Redis is restarted or loses its scripts.
func (d *deployment) roll(random *rand.Rand, to, from string) {
	d.Helper()
	dies := random.IntN(len(d.workers))
	for i, k := range d.workers {
		begun := time.Now()
		if i == dies {
			kit.Check(d.T, k.now().Kill())
			d.faults.note(faultKill, k.name, begun)
		} else {
			kit.Check(d.T, k.now().terminate())
			d.faults.note(faultTerm, k.name, begun)
		}
		k.program = to
		_, err := k.start()
		kit.Check(d.T, err)
		if servers := d.againstServers(); random.IntN(2) == 0 { // a restart or a script flush
			servers[random.IntN(2)].inject(d.Context(), random)
		}
		d.allSettle()
		if i == 0 {
			d.ask(to, from)
		}
	}
}

// allSettle waits until each worker is ready and then settles an event.
func (d *deployment) allSettle() {
	d.Helper()
	for _, k := range d.workers {
		kit.Eventually(d.T, k.name+" is ready", func() bool { return k.now().Ready() == nil })
		had := len(k.now().outcomes())
		kit.Eventually(d.T, k.name+" settles events", func() bool { return len(k.now().outcomes()) > had })
	}
}

// ask runs the commands that read the workers' data, with each of the programs. It retries them, because
// Redis may just have been restarted.
func (d *deployment) ask(programs ...string) {
	d.Helper()
	for _, program := range programs {
		for _, question := range []string{
			"status -json", "status alpha -json", "events -json", "dead list -json", "mute -json",
		} {
			kit.EventuallyNil(d.T, func() error { return d.answers(program, question) })
		}
	}
}

// answers runs a command and expects its output to be JSON: one value, or one per line.
func (d *deployment) answers(program, question string) error {
	command := exec.CommandContext(d.Context(), program, strings.Fields(question)...)
	for name, value := range d.workers[0].settings {
		command.Env = append(command.Env, name+"="+value)
	}
	command.Env = append(command.Env, "SLACK_BOT_TOKEN="+tokenPrefix+"asks")
	var complaints strings.Builder
	command.Stderr = &complaints
	out, err := command.Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, question, err, complaints.String())
	}
	for values := json.NewDecoder(strings.NewReader(string(out))); values.More(); {
		var value any
		if err := values.Decode(&value); err != nil {
			return fmt.Errorf("%s %s: %w: %s", program, question, err, out)
		}
	}
	return nil
}
