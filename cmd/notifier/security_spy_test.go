package main

import (
	"maps"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"notifier/test/kit"
)

// spy subscribes to every subject that the server permits and records the messages.
type spy struct {
	*nats.Conn
	mu    sync.Mutex
	heard []string // subject and payload
}

// tried lists subjects beyond the documented ones: wildcards in several forms, and subjects reserved by NATS.
var tried = []string{
	">", "*", "*.>", "*.*", "*.*.*", "*.*.*.*", "*.*.*.*.*", "notify.>", "notify.errors", "*.errors", "notify-dead.>", "notify-dead.errors",
	"_INBOX.>", "_INBOX.*.*", "_INBOX.notifier.>", "_NOTIFIER.>", "_NOTIFIER.*.>", "_NOTIFIER.*.*.>", "_NOTIFIER.*.worker.>",
	"_NOTIFIER.*.*.*.*", "_NOTIFIER.*.operator.>", "_INBOX_publisher.*", "_INBOX_publisher.*.*",
	"$JS.>", "$JS.API.>", "$JS.ACK.>", "$JS.FC.>", "$JS.EVENT.>", "$JSC.>", "$SYS.>", "$KV.>", "$O.>", "$NRG.>", "_R_.>", "_GR_.>",
}

// startSpy subscribes to all tried and documented subjects, both alone and in queue groups of other clients.
func startSpy(t *testing.T, url, block string) *spy {
	t.Helper()
	s := &spy{}
	// refusals are expected
	connection, err := nats.Connect(url, nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	kit.Check(t, err)
	t.Cleanup(connection.Close)
	s.Conn = connection
	subjects := append([]string{}, tried...)
	for _, allowed := range regexp.MustCompile(`"([^" ]+)( notifier)?"`).FindAllStringSubmatch(block, -1) {
		subjects = append(subjects, allowed[1])
	}
	for _, subject := range subjects {
		for _, group := range []string{"", "notifier", "spies"} {
			if _, err := connection.QueueSubscribe(subject, group, s.hear); err != nil {
				t.Fatalf("%s %s: %v", subject, group, err)
			}
		}
	}
	kit.Check(t, connection.Flush())
	return s
}

func (s *spy) hear(message *nats.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, message.Subject+" "+string(message.Data))
}

func (s *spy) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string{}, s.heard...)
}

// TestSecurityNATSSpies: a publisher and an operator subscribe to every permitted subject while a worker and
// another operator are active. Each spy receives only the replies to its own requests.
func TestSecurityNATSSpies(t *testing.T) {
	t.Parallel()
	block := securityBlock(t, "nats")
	as := startSecured(t, block)
	js := kit.JetStream(t, as("all"))
	worker := securedWorker(t, as)
	spies := map[string]*spy{"_INBOX_publisher.": startSpy(t, as("publisher"), block), "_NOTIFIER.NOTIFY.operator.": startSpy(t, as("operator"), block)}
	w := startReady(t, worker)
	publishThree(t, js)
	kit.Eventually(t, "all settled and acknowledged", func() bool { return len(w.out.lines(`"outcome":`)) == 3 && acknowledged(t, js) })
	operator := maps.Clone(worker)
	operator["NATS_URL"] = as("operator")
	for _, command := range [][]string{{"dead", "list"}, {"dead", "replay", "-all"}} {
		if p := start(t, operator, command...); p.code(t) != exitDone {
			t.Errorf("%s: %s", command, p.errOut.String())
		}
	}
	for inbox, s := range spies {
		kit.Check(t, s.PublishRequest("notify.errors", inbox+"own", []byte("mine")))
		kit.Eventually(t, "the spy below "+inbox+" hears its own acknowledgement", func() bool { return heardAt(s.all(), inbox+"own") > 0 })
	}
	kit.Eventually(t, "all settled and acknowledged", func() bool { return len(w.out.lines(`"outcome":`)) == 6 && acknowledged(t, js) })
	for inbox, s := range spies {
		kit.Check(t, s.Flush())
		heard := s.all()
		own := heardAt(heard, inbox)
		if inbox == "_NOTIFIER.NOTIFY.operator." {
			own += heardAt(heard, "notify-dead.") // a letter that an operator reads keeps its subject
		}
		if own != len(heard) {
			t.Errorf("the spy below %s has heard what is not there:\n%s", inbox, strings.Join(heard, "\n"))
		}
	}
}

// heardAt counts messages by subject prefix.
func heardAt(heard []string, prefix string) int {
	count := 0
	for _, message := range heard {
		if strings.HasPrefix(message, prefix) {
			count++
		}
	}
	return count
}
