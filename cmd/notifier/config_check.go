package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	"notifier/internal/event"
	"notifier/internal/ratelimit"
)

// faults collects what is wrong with the settings, so that a user mends them in one go. It is an error when it has
// any.
type faults struct {
	lines     []string
	variables map[string]bool // those that have a line
}

// add notes one fault, on one line: the variable, what is wrong and what was expected. Values of secrets do not belong
// in it.
func (f *faults) add(variable, format string, arguments ...any) {
	line := variable + ": " + fmt.Sprintf(format, arguments...)
	f.lines = append(f.lines, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?' // a path can have a line end in it
		}
		return r
	}, line))
	if f.variables == nil {
		f.variables = map[string]bool{}
	}
	f.variables[variable] = true
}

// unread reports whether the variable is set to a file that could not be read: then nobody knows its value, and a
// fault of the value would be one too many.
func (f *faults) unread(variable string) bool { return f.variables[variable+"_FILE"] }

// about gives the faults of these variables, and of the files that they come from, alone.
func (f *faults) about(variables []string) *faults {
	chosen := &faults{}
	for _, line := range f.lines {
		name, rest, _ := strings.Cut(line, ": ")
		if oneOf(strings.TrimSuffix(name, "_FILE"), variables...) {
			chosen.add(name, "%s", rest)
		}
	}
	return chosen
}

// line is the line of a variable, if it has one.
func (f *faults) line(variable string) (line string, found bool) {
	for _, line := range f.lines {
		if strings.HasPrefix(line, variable+": ") {
			return line, true
		}
	}
	return "", false
}

// err is nil when nothing is wrong.
func (f *faults) err() error {
	if len(f.lines) == 0 {
		return nil
	}
	return f
}

// Error lists all faults, a line each.
func (f *faults) Error() string { return strings.Join(f.lines, "\n") }

func parseDuration(f *faults, variable, text string, least, most time.Duration) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		f.add(variable, "%q, expected a duration from %s to %s such as %s", text, ratelimit.ShortDuration(least), ratelimit.ShortDuration(most), example(least, most))
	}
	return d
}

// example is a duration in range, as a user writes one.
func example(least, most time.Duration) string {
	var fitting []string
	for _, d := range []time.Duration{30 * time.Second, 10 * time.Minute, 24 * time.Hour} {
		if d >= least && d <= most {
			fitting = append(fitting, ratelimit.ShortDuration(d))
		}
	}
	last := len(fitting) - 1
	if last < 1 {
		return strings.Join(fitting, "")
	}
	return strings.Join(fitting[:last], ", ") + " or " + fitting[last]
}

func parseNumber(f *faults, variable, text string, least, most int) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		f.add(variable, "%q, expected a whole number from %d to %d", text, least, most)
	}
	return n
}

// checkServers checks the list of NATS servers. It shows nothing of them, because a password can be in each.
func checkServers(f *faults, list string) {
	servers := strings.Split(list, ",")
	webSockets := 0
	for i, server := range servers {
		parsed, err := parseServer(server)
		port := ""
		if err == nil {
			port = parsed.Port()
		}
		if err != nil || parsed.Host == "" || !oneOf(parsed.Scheme, "nats", "tls", "ws", "wss") || port != "" && (!isPort(port) || port == "0") {
			f.add("NATS_URL", "its server %d of %d is no URL of one, expected nats://[user:password@]host:port or tls://host:port, several with commas between", i+1, len(servers))
			return
		}
		if oneOf(parsed.Scheme, "ws", "wss") {
			webSockets++
		}
	}
	if webSockets != 0 && webSockets != len(servers) {
		f.add("NATS_URL", "has servers with and without ws:// or wss://, expected one kind")
	}
}

// parseServer reads one server of NATS_URL; without a scheme it is nats://.
func parseServer(server string) (*url.URL, error) {
	server = strings.TrimSpace(server)
	if !strings.Contains(server, "://") {
		server = "nats://" + server
	}
	return url.Parse(server)
}

// checkName checks a name of a stream or consumer as the NATS server does.
func checkName(f *faults, variable, name string) {
	if name == "" || len(name) > longestSubjectPart || strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`.*>/\`, r)
	}) {
		f.add(variable, `%q, expected a name without white space and . * > / \, of at most %d bytes`, name, longestSubjectPart)
	}
}

func isPlainSubject(subject string) bool {
	if subject == "" || len(subject) > longestSubjectPart || subject[0] == '$' {
		return false
	}
	for _, token := range strings.Split(subject, ".") {
		if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == '>' }) {
			return false
		}
	}
	return true
}

// overlap reports whether there is a subject that two subscriptions both match.
func overlap(a, b string) bool {
	first, second := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(first), len(second)) {
		switch {
		case first[i] == ">" || second[i] == ">":
			return true
		case first[i] != second[i] && first[i] != "*" && second[i] != "*":
			return false
		}
	}
	return len(first) == len(second)
}

// checkAddr checks the address of the admin server.
func checkAddr(f *faults, variable, addr string) {
	if _, port, err := net.SplitHostPort(addr); err != nil || !isPort(port) {
		f.add(variable, "%q, expected host:port such as 127.0.0.1:8080, or nothing for none", addr)
	}
}

func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return err == nil
}

func oneOf(text string, allowed ...string) bool {
	for _, one := range allowed {
		if text == one {
			return true
		}
	}
	return false
}

// largestSettingFile bounds what is read from a file: a secret, a list or certificates, not a disk image.
const largestSettingFile = 1 << 20

// readFile reads a file that a setting names. Its errors name the path, never the content.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > largestSettingFile {
		return nil, fmt.Errorf("%s is no regular file of at most %d bytes", path, largestSettingFile)
	}
	return os.ReadFile(path)
}

// checkOutput checks a subject under which the worker publishes: what it reads must not come back to it.
func checkOutput(f *faults, variable, subject, example string, read event.Pattern) {
	if !isPlainSubject(subject) {
		f.add(variable, "%q, expected a subject without wildcards and white space, of at most %d bytes, such as %s", subject, longestSubjectPart, example)
	} else if overlap(subject+".>", read.String()) {
		f.add(variable, "%q would be read again through NATS_SUBJECT %q; expected a subject outside it", subject, read)
	}
}
