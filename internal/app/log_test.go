package app

import (
	"encoding/json"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/test/kit"
)

// hostile has terminal commands, characters that reorder or begin a line, and invalid UTF-8.
const hostile = "a\x1b[2J\x07\x7f\u009b31m\u202egpj\u2066x\u200f\u2028{\"level\":\"info\"}\n\u2029\ufeff\u200b\xff\U000e0001é"

// logged returns the log.
func logged(t testing.TB, console bool, do func(*zap.Logger)) string {
	t.Helper()
	var out strings.Builder
	log, stop := NewLog(&out, io.Discard, zapcore.InfoLevel, console)
	do(log)
	kit.Check(t, log.Sync())
	kit.Check(t, stop())
	return out.String()
}

// TestLogLinesAreSafe: whatever comes from outside, in any field, a line is one line of printable characters,
// and as JSON the same data.
func TestLogLinesAreSafe(t *testing.T) {
	for _, console := range []bool{false, true} {
		line := logged(t, console, func(log *zap.Logger) {
			log.With(zap.String("with", hostile)).Error("settled", zap.String("event_id", hostile), zap.Error(errors.New(hostile)),
				zap.Strings("list", []string{hostile}), zap.Any("any", map[string]string{hostile: hostile}), zap.ByteString("bytes", []byte(hostile)))
		})
		checkLine(t, line)
		fields := line
		if console {
			_, fields, _ = strings.Cut(line, "settled\t")
		}
		var got map[string]any
		kit.Check(t, json.Unmarshal([]byte(fields), &got))
		for _, name := range []string{"with", "event_id", "error", "bytes"} {
			if want := strings.ToValidUTF8(hostile, "\ufffd"); got[name] != want {
				t.Errorf("%s is %q, expected %q", name, got[name], want)
			}
		}
	}
	line := logged(t, true, func(log *zap.Logger) { log.Info("a\x1b[2J\u202eb\u009b") })
	if !strings.Contains(line, `a\u001b[2J\u202eb\u009b`) {
		t.Errorf("console message %q", line)
	}
}

// checkLine wants one line of printable characters.
func checkLine(t *testing.T, line string) {
	t.Helper()
	body, ended := strings.CutSuffix(line, "\n")
	if !ended || !utf8.ValidString(line) || strings.ContainsFunc(body, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) {
		t.Errorf("%q, expected one line of printable characters", line)
	}
}

func TestLogStringsAreBounded(t *testing.T) {
	long := "x" + strings.Repeat("é", 50_000)
	line := logged(t, false, func(log *zap.Logger) {
		log.With(zap.String("with", long)).Info("x", zap.String("detail", long), zap.Error(errors.New(long)), zap.String("short", "y"))
	})
	var got map[string]string
	kit.Check(t, json.Unmarshal([]byte(line), &got))
	for _, name := range []string{"with", "detail", "error"} {
		if n := len(got[name]); n > longestString || n < longestString-5 || !strings.HasSuffix(got[name], "é…") {
			t.Errorf("%s has %d bytes and ends in %q", name, n, got[name][n-5:])
		}
	}
	if got["short"] != "y" {
		t.Errorf("short is %q", got["short"])
	}
	if line := logged(t, false, func(log *zap.Logger) { log.Debug("x") }); line != "" {
		t.Errorf("%q, expected no line below the level", line)
	}
}

// FuzzLogLine: any text in any place of a line.
func FuzzLogLine(f *testing.F) {
	f.Add(hostile, hostile)
	f.Add("\\\u2028", strings.Repeat("\xf0\x9f", 3000))
	f.Fuzz(func(t *testing.T, key, value string) {
		line := logged(t, false, func(log *zap.Logger) {
			log.Info("settled", zap.String("k"+key, value), zap.NamedError("e"+key, errors.New(value)))
		})
		checkLine(t, line)
		var got map[string]any
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if want := string([]rune(value)); len(value) <= longestString && got["k"+string([]rune(key))] != want {
			t.Errorf("%q, expected %q", got["k"+string([]rune(key))], want)
		}
		checkLine(t, logged(t, true, func(log *zap.Logger) { log.Info("settled", zap.String("k"+key, value)) }))
	})
}

// TestLibrariesWriteToTheLog: a report of net/http is a line of the log, without the bytes that it quotes.
func TestLibrariesWriteToTheLog(t *testing.T) {
	const secret = "an event's text"
	out, complaints := &kit.Output{}, &kit.Output{}
	log, stop := NewLog(out, complaints, zapcore.InfoLevel, false)

	unasked := make(chan struct{})
	server := kit.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		<-unasked
		_, _ = io.WriteString(connection, "HTTP/1.1 200 OK\r\n\r\n"+secret)
		_ = connection.Close()
	}))
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Get("http://" + server)
	kit.Check(t, err)
	kit.Check(t, response.Body.Close())
	close(unasked)
	_ = (&http.Server{}).Serve(&exhausted{})

	texts := map[string]bool{}
	kit.Eventually(t, "both are lines", func() bool {
		kit.Check(t, log.Sync())
		for _, text := range out.Lines() {
			var line struct{ Level, Msg, Text string }
			kit.Check(t, json.Unmarshal([]byte(text), &line))
			if line.Level != "warn" || line.Msg != "a library reports" {
				t.Errorf("%s, expected a warning that a library reports", text)
			}
			texts[line.Text] = true
		}
		return len(texts) >= 2
	})
	for _, want := range []string{
		"Unsolicited response received on idle HTTP channel starting with …",
		"http: Accept error: too many open files; retrying in 5ms",
	} {
		if !texts[want] {
			t.Errorf("%v, expected %q", texts, want)
		}
	}
	kit.Check(t, stop())
	if strings.Contains(out.String(), secret) || complaints.String() != "" {
		t.Errorf("%s, and on standard error %q; expected no foreign text, and nothing", out, complaints)
	}
}

// exhausted is a listener of a process that has no more files, once.
type exhausted struct {
	net.Listener
	failed bool
}

func (*exhausted) Close() error { return nil }

func (l *exhausted) Accept() (net.Conn, error) {
	if l.failed {
		return nil, net.ErrClosed
	}
	l.failed = true
	return nil, syscall.EMFILE
}

// TestLibrariesAreLoggedNowAndThen: a failure that repeats does not fill the log.
func TestLibrariesAreLoggedNowAndThen(t *testing.T) {
	text := logged(t, false, func(*zap.Logger) {
		for range 10 * firstLogged {
			stdlog.Print("http: Accept error: too many open files; retrying in 1s")
		}
	})
	if n := strings.Count(text, "\n"); n != firstLogged {
		t.Errorf("%d lines, expected the first %d", n, firstLogged)
	}
}
