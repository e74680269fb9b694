package main

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"notifier/internal/devstack"
	"notifier/test/kit"
)

// TestDeadIsSentOnce: replayed letters are sent under their old ids, whether a setting or Slack had rejected
// them. A second copy of a letter is dropped as a duplicate. A replay publishes one if it crashes and resumes
// after the stream's duplicate window.
func TestDeadIsSentOnce(t *testing.T) {
	t.Parallel()
	server, slack, env := services(t, nil)
	slack.Respond(devstack.Next(devstack.Response{Code: "invalid_blocks"}))
	first := startReady(t, with(env, map[string]string{"EVENT_MAX_BYTES": "10"}))
	publishes(t, env, "errors", "-id", "large", "the disk is full")
	publishes(t, env, "errors", "-id", "refused", "disk full")
	for id, reason := range map[string]string{"large": "too_large", "refused": "slack_rejected"} {
		kit.Eventually(t, id+" is dead", func() bool {
			return len(first.out.lines(`"reason":"`+reason+`"`, `"event_id":"`+id+`"`)) == 1
		})
	}
	first.terminate(t)
	first.ends(t, exitDone)
	if out, _ := runToEnd(t, env, exitDone, "dead", "replay", "-all"); out != "2 replayed.\n" {
		t.Errorf("%q, expected them to go back", out)
	}

	second := start(t, env)
	for _, id := range []string{"large", "refused"} {
		kit.Eventually(t, id+" is sent", func() bool { return len(second.out.lines(`"outcome":"sent"`, `"event_id":"`+id+`"`)) == 1 })
	}
	copied := nats.NewMsg("notify.errors")
	copied.Header = nats.Header{"Notifier-Event-Id": {"large"}, "Nats-Msg-Id": {"replay.1.2"}}
	copied.Data = []byte("the disk is full")
	_, err := kit.JetStream(t, server.URL()).PublishMsg(t.Context(), copied)
	kit.Check(t, err)
	kit.Eventually(t, "the copy is dropped", func() bool { return len(second.out.lines(`"reason":"duplicate"`, `"event_id":"large"`)) == 1 })
	if slack.Accepted() != 2 {
		t.Errorf("%d messages in Slack, expected two", slack.Accepted())
	}
}

// TestDeadInterruptedWhilePublishing: if the stream has stored the event, the letter is also deleted.
func TestDeadInterruptedWhilePublishing(t *testing.T) {
	t.Parallel()
	js, env := startWithStreams(t)
	kit.Check(t, js.DeleteStream(t.Context(), "NOTIFY"))
	for _, id := range []string{"e-1", "e-2"} {
		_, err := js.PublishMsg(t.Context(), deadLetter("errors", "malformed", id))
		kit.Check(t, err)
	}
	events, err := js.Conn().SubscribeSync("notify.>") // in place of the stream
	kit.Check(t, err)
	kit.Check(t, js.Conn().Flush())
	p := start(t, env, "dead", "replay", "-all")
	event, err := events.NextMsg(kit.Patience)
	kit.Check(t, err)
	p.terminate(t)
	select { // the command should wait for the acknowledgement
	case <-p.ended:
	case <-time.After(500 * time.Millisecond):
	}
	kit.Check(t, event.Respond([]byte(`{"stream":"NOTIFY","seq":1}`)))
	p.ends(t, exitFailed)
	if out, left := p.out.String(), messages(t, js, "NOTIFY_DEAD"); out != "1 replayed, 1 not tried.\n" || left != 1 {
		t.Errorf("%q and %d letters, expected the first to be replayed and deleted", out, left)
	}
}
