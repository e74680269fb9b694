package main

import (
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// publishLines runs "notifier publish errors - FLAG..." on an input.
func publishLines(t *testing.T, env map[string]string, in io.Reader, flags ...string) *process {
	t.Helper()
	command := exec.Command("notifier", append([]string{"publish", "errors", "-"}, flags...)...)
	command.Stdin = in
	return startCommand(t, command, env)
}

// TestLinesArePublishedInOrder: many lines end up in the stream in their order, each once.
func TestLinesArePublishedInOrder(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	const lines = 10 * maxInFlight
	var in bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&in, "line %d\n", i+1)
	}
	p := publishLines(t, env, &in)
	p.ends(t, exitDone)
	if p.out.String() != fmt.Sprintf("%d published to notify.errors\n", lines) || messages(t, js, "NOTIFY") != lines {
		t.Errorf("%q and %d events", p.out.String(), messages(t, js, "NOTIFY"))
	}
	consumer, err := js.OrderedConsumer(t.Context(), "NOTIFY", jetstream.OrderedConsumerConfig{})
	kit.Check(t, err)
	batch, err := consumer.Fetch(lines)
	kit.Check(t, err)
	n := 0
	for message := range batch.Messages() {
		n++
		if want := fmt.Sprintf("line %d", n); string(message.Data()) != want {
			t.Fatalf("event %d is %q, expected %q", n, message.Data(), want)
		}
	}
	if n != lines {
		t.Errorf("%d events were read: %v", n, batch.Error())
	}
}

// fakeStream starts a NATS server without a stream. A function receives the events of notify.errors.
func fakeStream(t *testing.T, read func(*nats.Msg)) map[string]string {
	t.Helper()
	server, err := devstack.StartNATS(ephemeralAddr, t.TempDir())
	kit.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	connection, err := nats.Connect(server.URL())
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	_, err = connection.Subscribe("notify.errors", read)
	kit.Check(t, err)
	kit.Check(t, connection.Flush())
	return map[string]string{"NATS_URL": server.URL()}
}

// typeLine starts a publisher and types one line. Its standard input stays open until the test ends.
func typeLine(t *testing.T, env map[string]string, arguments ...string) *process {
	t.Helper()
	command := exec.Command("notifier", append([]string{"publish", "errors"}, arguments...)...)
	keyboard, err := command.StdinPipe()
	kit.Check(t, err)
	t.Cleanup(func() { _ = keyboard.Close() })
	p := startCommand(t, command, env)
	_, err = io.WriteString(keyboard, "disk full\n")
	kit.Check(t, err)
	return p
}

func acknowledge(m *nats.Msg, seq int) {
	_ = m.Respond(fmt.Appendf(nil, `{"stream":"NOTIFY","seq":%d}`, seq))
}

const refusal = `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`

// TestUnacknowledgedEventsAreBounded: events do not wait for each other's acknowledgement, but at most
// maxInFlight of them are without one.
func TestUnacknowledgedEventsAreBounded(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	env := fakeStream(t, func(*nats.Msg) { received.Add(1) }) // without an acknowledgement
	p := publishLines(t, env, strings.NewReader(strings.Repeat("disk full\n", 10*maxInFlight)))
	p.ends(t, exitFailed)
	if got := received.Load(); got != maxInFlight || p.out.String() != "0 published to notify.errors\n" {
		t.Errorf("%d events were published and %q, expected %d", got, p.out.String(), maxInFlight)
	}
	const want = "notifier: line 1: whether the event was stored is unknown: "
	if !strings.HasPrefix(p.errOut.String(), want) {
		t.Errorf("%q, expected %q", p.errOut.String(), want)
	}
}

// TestRefusedLine: a refused line is named, with the number of events that were stored after it.
func TestRefusedLine(t *testing.T) {
	t.Parallel()
	var waiting []*nats.Msg
	env := fakeStream(t, func(m *nats.Msg) {
		if waiting = append(waiting, m); len(waiting) < 4 {
			return
		}
		for i, m := range waiting {
			if i == 2 {
				_ = m.Respond([]byte(refusal))
				continue
			}
			acknowledge(m, i+1)
		}
	})
	in := "one\ntwo\nthree\nfour\n{\n" // the bad line comes after the refusal
	p := publishLines(t, env, strings.NewReader(in))
	p.ends(t, exitFailed)
	want := "notifier: line 3: the stream of notify.errors is full (maximum bytes exceeded); publish again when " +
		"workers have read it, or raise its limits: \"notifier check\" shows them; 1 after it were stored\n"
	if p.errOut.String() != want || p.out.String() != "3 published to notify.errors\n" {
		t.Errorf("%q %q, expected %q", p.out.String(), p.errOut.String(), want)
	}
}

// TestUnansweredEventIsNotPublishedAgain: an event without a stream is not tried again, behind the next ones.
func TestUnansweredEventIsNotPublishedAgain(t *testing.T) {
	t.Parallel()
	var received atomic.Int64
	env := fakeStream(t, func(m *nats.Msg) {
		received.Add(1)
		if string(m.Data) == "two" {
			acknowledge(m, 1)
			return
		}
		_ = m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {"503"}}}) // the server's: no responders
	})
	p := publishLines(t, env, strings.NewReader("one\ntwo\n"))
	p.ends(t, exitFailed)
	if !strings.HasPrefix(p.errOut.String(), "notifier: line 1: no stream stores notify.errors, or the stream has no leader now; ") {
		t.Errorf("%q", p.errOut.String())
	}
	if got := received.Load(); got > 2 {
		t.Errorf("%d events were published, expected at most 2", got)
	}
}

// TestForgedAcknowledgement: any reader of the events can acknowledge one, so nothing in it reaches the terminal.
func TestForgedAcknowledgement(t *testing.T) {
	t.Parallel()
	env := fakeStream(t, func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"stream":"\u001b]0;owned\u0007","seq":1}`))
	})
	p := startCommand(t, exec.Command("notifier", "publish", "errors", "-id", "one", "disk full"), env)
	p.ends(t, 0)
	want := "notify.errors: event 1 of stream ?]0;owned?, id one\n1 published to notify.errors\n"
	if p.out.String() != want {
		t.Errorf("%q, expected %q", p.out.String(), want)
	}
}

// TestRefusedWhileNobodyTypes: a refusal ends a publisher that waits for the next line.
func TestRefusedWhileNobodyTypes(t *testing.T) {
	t.Parallel()
	env := fakeStream(t, func(m *nats.Msg) { _ = m.Respond([]byte(refusal)) })
	p := typeLine(t, env, "-")
	p.ends(t, exitFailed)
	if !strings.Contains(p.errOut.String(), "line 1: the stream of notify.errors is full") {
		t.Errorf("%q", p.errOut.String())
	}
}

// TestPublishInterrupted: a signal ends a publisher, and it says how many events it has published.
func TestPublishInterrupted(t *testing.T) {
	t.Parallel()
	for want, arguments := range map[string][]string{
		"%d published to notify.errors\n": {"-"},
		`"stream_seq":%d}` + "\n":         {"-n", "10000000", "-json"},
	} {
		js, env := startWithStreams(t)
		p := typeLine(t, env, arguments...)
		kit.Eventually(t, "an event is stored", func() bool { return messages(t, js, "NOTIFY") > 0 })
		p.terminate(t)
		p.ends(t, exitFailed)
		if got := p.errOut.String(); got != "notifier: interrupted\n" {
			t.Errorf("%q on stderr, expected that it was interrupted", got)
		}
		if want := fmt.Sprintf(want, messages(t, js, "NOTIFY")); !strings.HasSuffix(p.out.String(), want) {
			t.Errorf("%.200q, expected %q", p.out.String(), want)
		}
	}
}

// TestInterruptedWithoutAcknowledgement: events that may have been stored are counted.
func TestInterruptedWithoutAcknowledgement(t *testing.T) {
	t.Parallel()
	received := make(chan struct{}, 2)
	env := fakeStream(t, func(m *nats.Msg) {
		received <- struct{}{}
		if string(m.Data) == "one" {
			acknowledge(m, 1)
		}
	})
	p := publishLines(t, env, strings.NewReader("one\ntwo\n"))
	<-received
	<-received
	p.terminate(t)
	p.ends(t, exitFailed)
	if p.out.String() != "1 published to notify.errors\n" ||
		p.errOut.String() != "notifier: interrupted; whether 1 more were stored is unknown\n" {
		t.Errorf("%q %q", p.out.String(), p.errOut.String())
	}
}

// TestLineAboveServerLimit: the line that the server rejects is named; the lines before it are published.
func TestLineAboveServerLimit(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	in := strings.NewReader("disk full\n\n" + strings.Repeat("x", 2_000_000) + "\nnever read\n")
	p := publishLines(t, env, in)
	p.ends(t, exitFailed)
	const want = "notifier: line 3: " +
		"payload with headers has more than the 1048576 bytes that the server accepts\n"
	if got := p.errOut.String(); got != want {
		t.Errorf("%q, expected %q", got, want)
	}
	if n := messages(t, js, "NOTIFY"); n != 1 || p.out.String() != "1 published to notify.errors\n" {
		t.Errorf("%d events and %q, expected one", n, p.out.String())
	}
}
