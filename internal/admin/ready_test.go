package admin_test

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/admin"
)

const askReady = "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

// Where a worker is routed to depends on it, so it is never what was true a moment ago.
func TestReadinessIsAskedForEachTime(t *testing.T) {
	asked := 0
	probes := fine()
	probes.Ready = func(context.Context) []string { asked++; return nil }
	server, client := start(t, probes)
	for range 5 {
		ask(t, client, http.MethodGet, "http://"+server.Addr()+"/readyz")
	}
	if asked != 5 {
		t.Errorf("asked %d times for 5 requests", asked)
	}
}

// Anybody may ask, and each answer costs Redis a command: those who wait share the next one. A client that
// leaves ends none.
func TestWaitingClientsShareReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		probes := fine()
		probes.Ready = func(ctx context.Context) []string {
			if asked++; asked == 1 {
				time.Sleep(time.Second) // of synctest's clock
			}
			if ctx.Err() != nil {
				return []string{"it was ended: " + ctx.Err().Error()}
			}
			return nil
		}
		m := inMemory(t, probes)
		first, _ := m.open(askReady)
		synctest.Wait()
		clients := make([]net.Conn, 100)
		for i := range clients {
			clients[i], _ = m.open(askReady)
		}
		synctest.Wait()
		_ = first.Close()
		for _, client := range clients {
			if response, err := http.ReadResponse(bufio.NewReader(client), nil); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, expected 200", err)
			}
		}
		if asked != 2 {
			t.Errorf("the worker was asked %d times, expected once for the first client and once for the other 100", asked)
		}
	})
}

// Who asks as often as they can costs Redis no more than a hundred commands a second.
func TestReadinessIsAskedForAHundredTimesASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		probes := fine()
		probes.Ready = func(context.Context) []string { asked++; return nil }
		client, _ := inMemory(t, probes).open("")
		answers := bufio.NewReader(client)
		for begun := time.Now(); time.Since(begun) < time.Second; {
			_, _ = client.Write([]byte(askReady))
			if response, err := http.ReadResponse(answers, nil); err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%v, expected 200", err)
			}
			if _, err := answers.Discard(len("ok\n")); err != nil {
				t.Fatal(err)
			}
		}
		if asked < 100 || asked > 101 {
			t.Errorf("asked %d times in a second, expected 100", asked)
		}
	})
}

// The end of the server ends what it asks the worker, and so does a time limit.
func TestAskingForReadinessIsBounded(t *testing.T) {
	for name, want := range map[string]time.Duration{"the server ends": time.Second, "nothing answers": 2 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				probes := fine()
				probes.Ready = func(ctx context.Context) []string { <-ctx.Done(); return []string{ctx.Err().Error()} }
				look, begun := admin.ReadyLook(ctx, probes), time.Now()
				if name == "the server ends" {
					time.AfterFunc(want, stop)
				}
				if response := look(); response.Code != http.StatusServiceUnavailable || time.Since(begun) != want {
					t.Errorf("%d after %s, expected 503 after %s", response.Code, time.Since(begun), want)
				}
			})
		})
	}
}
