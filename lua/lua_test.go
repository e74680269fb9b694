package lua_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"notifier/lua"
	"notifier/test/kit"
	"notifier/test/redistest"
)

// byHand returns the command in the head of admit.lua that starts with beginning, and joins lines that end
// with a backslash. It runs from a shell in the repository's root.
func byHand(t *testing.T, beginning string) string {
	t.Helper()
	head, _, _ := strings.Cut(lua.Admit, "\nlocal ")
	joined := strings.ReplaceAll(head, "\\\n--", "")
	found := regexp.MustCompile(`(?m)^--\s+(`+regexp.QuoteMeta(beginning)+` .*)$`).FindAllStringSubmatch(joined, -1)
	if len(found) != 1 {
		t.Fatalf("%d commands in the head of admit.lua begin with %q, expected one", len(found), beginning)
	}
	return found[0][1]
}

// words splits a command line as a shell does, provided that no quoted word contains a blank.
func words(line string) []string {
	found := strings.Fields(line)
	for i, word := range found {
		found[i] = strings.Trim(word, "'")
	}
	return found
}

// hasRedisCLI reports whether the command can run unchanged, with redis-cli against a real Redis.
func hasRedisCLI(server *redistest.Server) bool {
	_, err := exec.LookPath("redis-cli")
	return err == nil && !server.Embedded
}

// The documented command admits its event. A second run returns the same admission and charges nothing.
func TestTheLineInTheHeadOfAdmitRuns(t *testing.T) {
	server := redistest.Start(t)
	client := server.ClientFor(t, "{notifier}")
	line := byHand(t, "redis-cli --eval")
	run := runArguments
	if hasRedisCLI(server) {
		run = runOnce
	} else {
		t.Log("without redis-cli and a redis-server process; the line's keys and arguments go to the embedded store")
	}
	admitted := ""
	for _, time := range []string{"first", "second"} {
		now, rest := run(t, client, line)
		want := []string{"0", "1"} // no lag, admitted, no refusal
		if time == "first" {
			admitted = now
		} else {
			want = append(want, "1", admitted) // readmitted: the first event, with its admission time
		}
		if difference := cmp.Diff(want, rest); difference != "" {
			t.Errorf("%s time (-want +got):\n%s", time, difference)
		}
		if n, err := strconv.ParseInt(now, 10, 64); err != nil || n < 1_700_000_000_000_000 {
			t.Errorf("%s time: now is %q, expected microseconds", time, now)
		}
	}
	ctx := t.Context()
	for key, want := range map[string]string{
		"{notifier}:global": "errors:e1 " + admitted, "{notifier}:category:errors": "errors:e1 " + admitted,
	} {
		if members := client.ZRange(ctx, key, 0, -1).Val(); !cmp.Equal(members, []string{want}) {
			t.Errorf("%s holds %q, expected %s", key, members, want)
		}
	}
	if record := client.HGet(ctx, "{notifier}:inflight", "errors:e1").Val(); !strings.HasSuffix(record, " delivery-1") {
		t.Errorf("in flight: %q", record)
	}
}

// runShell runs a line against the client's server and returns its output.
func runShell(t *testing.T, client *redis.Client, line string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(client.Options().Addr)
	kit.Check(t, err)
	command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "redis-cli", "redis-cli -h "+host+" -p "+port))
	command.Dir = ".." // the line names lua/admit.lua
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, output)
	}
	return string(output)
}

func runOnce(t *testing.T, client *redis.Client, line string) (now string, rest []string) {
	t.Helper()
	fields := strings.Fields(runShell(t, client, line))
	if len(fields) == 0 {
		t.Fatalf("%s: no output", line)
	}
	return decided(t, fields)
}

// decided checks that a reply is a decision, and returns its time and the remaining fields.
func decided(t *testing.T, fields []string) (now string, rest []string) {
	t.Helper()
	if len(fields) < 2 || fields[0] != "decided" {
		t.Fatalf("the reply is %q, expected a decision", fields)
	}
	return fields[1], fields[2:]
}

func runArguments(t *testing.T, client *redis.Client, line string) (now string, rest []string) {
	t.Helper()
	var keys []string
	var arguments []any
	comma := false
	for _, word := range words(line)[3:] { // after redis-cli --eval lua/admit.lua
		switch {
		case word == ",":
			comma = true
		case comma:
			arguments = append(arguments, word)
		default:
			keys = append(keys, word)
		}
	}
	reply, err := redis.NewScript(lua.Admit).Run(t.Context(), client, keys, arguments...).Slice()
	if err != nil || len(reply) != 7 {
		t.Fatalf("%s: %v, %v", line, reply, err)
	}
	var fields []string
	for _, field := range reply {
		if list, isList := field.([]any); isList {
			for _, number := range list {
				fields = append(fields, fmt.Sprint(number))
			}
		} else {
			fields = append(fields, fmt.Sprint(field))
		}
	}
	return decided(t, fields)
}

// eachScript calls test for each script. It skips record.lua, which only holds functions for the scripts.
func eachScript(t *testing.T, test func(name, script string)) {
	t.Helper()
	files, err := filepath.Glob("*.lua")
	kit.Check(t, err)
	for _, file := range files {
		if file != "record.lua" {
			script, err := os.ReadFile(file)
			kit.Check(t, err)
			test(strings.TrimSuffix(file, ".lua"), string(script))
		}
	}
}

// The head of a script documents its keys, arguments and reply, so a caller need not read the code.
func TestEveryScriptStatesItsContractInItsHead(t *testing.T) {
	eachScript(t, func(name, script string) {
		var head strings.Builder
		for line := range strings.Lines(script) {
			if !strings.HasPrefix(line, "--") {
				break
			}
			head.WriteString(line)
		}
		for _, part := range []string{name + ".lua ", "KEYS[1", "ARGV", "Reply: "} {
			if !strings.Contains(head.String(), part) {
				t.Errorf("the head of %s.lua does not say %q", name, part)
			}
		}
	})
}

// Redis Cluster routes a script by its declared keys, so the script may touch no others. TIME is its only
// clock.
func TestScriptsUseOnlyTheKeysAndTheClockThatTheyAreGiven(t *testing.T) {
	calls := regexp.MustCompile(`\bp?call\('([A-Z]+)'(?:, ([^,)]+))?`)
	keys := regexp.MustCompile(`^(KEYS\[[^\]]+\]|s\.log|s\.buckets|log|buckets|(tier\.)?log\.key|key|meta|unpack\(bucket_keys)$`)
	check := func(name, script string) {
		found := calls.FindAllStringSubmatch(script, -1)
		if len(found) == 0 {
			t.Errorf("%s.lua: no call was found", name)
		}
		for _, call := range found {
			if call[1] != "TIME" && !keys.MatchString(call[2]) {
				t.Errorf("%s.lua: %s touches %s, which is not one of KEYS", name, call[1], call[2])
			}
		}
		if strings.Contains(script, "os.clock") || strings.Contains(script, "os.time") {
			t.Errorf("%s.lua looks at another clock than the server's", name)
		}
	}
	eachScript(t, check)
	check("record", lua.Record)
}
