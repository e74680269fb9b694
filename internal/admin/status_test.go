package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"notifier/internal/admin"
	"notifier/internal/status"
	"notifier/test/kit"
)

// probesOf is a worker to which nothing is wrong, with a status.
func probesOf(read func(ctx context.Context) (any, error)) admin.Probes {
	probes := fine()
	probes.Status = read
	probes.Page = func(any) (any, map[string]any) { return status.Page{}, nil }
	return probes
}

func one(context.Context) (any, error) { return map[string]int{"held": 1}, nil }

func TestThePageAndTheStatus(t *testing.T) {
	server, client := start(t, probesOf(one))
	for path, want := range map[string]string{"/": "text/html; charset=utf-8", "/api/status": "application/json"} {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			response, body := ask(t, client, method, "http://"+server.Addr()+path)
			if response.StatusCode != http.StatusOK || (body == "") != (method == http.MethodHead) {
				t.Errorf("%s %s: %d with %d bytes", method, path, response.StatusCode, len(body))
			}
			for name, value := range map[string]string{"Content-Type": want, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
				if got := response.Header.Get(name); got != value {
					t.Errorf("%s %s: %s %q, expected %q", method, path, name, got, value)
				}
			}
		}
		if response, _ := ask(t, client, http.MethodPost, "http://"+server.Addr()+path); response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d, expected 405", path, response.StatusCode)
		}
	}
	if _, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/api/status"); body != `{"held":1}`+"\n" {
		t.Errorf("/api/status: %q", body)
	}
	for _, path := range []string{"/index.html", "/page.js", "/page.css", "/page.html", "/favicon.ico", "/api", "/api/", "/api/status/", "/api/other", "/%2e%2e/"} {
		if response, _ := ask(t, client, http.MethodGet, "http://"+server.Addr()+path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, expected 404", path, response.StatusCode)
		}
	}
}

func TestThePageLetsNothingElseRun(t *testing.T) {
	server, client := start(t, probesOf(one))
	response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/")
	if got := response.Header.Get("Referrer-Policy"); got != "no-referrer" {
		t.Errorf("Referrer-Policy %q", got)
	}
	policy := map[string]string{}
	for _, directive := range strings.Split(response.Header.Get("Content-Security-Policy"), ";") {
		name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
		policy[name] = sources
	}
	for name, want := range map[string]string{
		"default-src": "'none'", "connect-src": "'self'", "img-src": "'self' data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'",
	} {
		if policy[name] != want {
			t.Errorf("%s %q, expected %q", name, policy[name], want)
		}
	}
	// that they are the right ones is for a browser to say
	for _, name := range []string{"script-src", "style-src"} {
		if sources := strings.Fields(policy[name]); len(sources) != 1 || !strings.HasPrefix(sources[0], "'sha256-") {
			t.Errorf("%s %q, expected one hash", name, policy[name])
		}
	}
	for _, unwanted := range []string{"http://", "https://", "//cdn", "{{", " style=", " onclick=", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		text := strings.ReplaceAll(body, "http://www.w3.org/2000/svg", "") // names SVG, and is asked for by nobody
		if strings.Contains(text, unwanted) {
			t.Errorf("%q is in the page", unwanted)
		}
	}
}

func TestWithoutAStatusThereIsNoPage(t *testing.T) {
	server, client := start(t, fine())
	for _, path := range []string{"/", "/api/status"} {
		if response, _ := ask(t, client, http.MethodGet, "http://"+server.Addr()+path); response.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d, expected 404", path, response.StatusCode)
		}
	}
}

func TestTheStatusSaysWhyThereIsNone(t *testing.T) {
	for name, status := range map[string]func(context.Context) (any, error){
		"an error":  func(context.Context) (any, error) { return nil, errors.New(`redis: "unavailable"`) },
		"no JSON":   func(context.Context) (any, error) { return make(chan int), nil },
		"forgotten": func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				response := admin.Look(t.Context(), status)
				body := response.Body.String()
				if response.Code != http.StatusServiceUnavailable || !strings.HasPrefix(body, `{"error":"`) || name == "an error" && body != `{"error":"redis: \"unavailable\""}`+"\n" {
					t.Errorf("%d %q", response.Code, body)
				}
				if response.Header().Get("Cache-Control") != "no-store" || response.Header().Get("Content-Type") != "application/json" {
					t.Errorf("headers %v", response.Header())
				}
			})
		})
	}
}

// What others have written is the same data in JSON that no terminal obeys.
func TestTheStatusControlsNoTerminal(t *testing.T) {
	const hostile = "\x1b[2J\u009b31m\u202ex<"
	for name, status := range map[string]func(context.Context) (any, error){
		`{"`:       func(context.Context) (any, error) { return map[string]string{hostile: "x"}, nil },
		`{"error"`: func(context.Context) (any, error) { return nil, errors.New(hostile) },
	} {
		body := admin.Look(t.Context(), status).Body.String()
		var got map[string]string
		kit.Check(t, json.Unmarshal([]byte(body), &got))
		if !strings.HasPrefix(body, name) || !strings.Contains(body, `\u001b[2J\u009b31m\u202ex<`) || got[hostile] != "x" && got["error"] != hostile {
			t.Errorf("%q", body)
		}
	}
}

// However many pages are open, there is one look in two seconds.
func TestOpenPagesShareALook(t *testing.T) {
	var looks, now, most atomic.Int32
	server, client := start(t, probesOf(func(context.Context) (any, error) {
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		time.Sleep(20 * time.Millisecond) // the fault: a slow Redis
		return looks.Add(1), nil
	}))
	begun := time.Now()
	var pages sync.WaitGroup
	for range 50 {
		pages.Go(func() {
			for range 10 {
				response, body := ask(t, client, http.MethodGet, "http://"+server.Addr()+"/api/status")
				oldest := time.Since(begun).Seconds() + .001 // the age is rounded to a millisecond
				if age, err := strconv.ParseFloat(response.Header.Get("Notifier-Age"), 64); err != nil || age < .02 || age > oldest {
					t.Errorf("look %s is %vs old (%v), expected 0.02 to %.3f", body, age, err, oldest)
				}
			}
		})
	}
	pages.Wait()
	if n, allowed := looks.Load(), 1+int32(time.Since(begun)/(2*time.Second)); n < 1 || n > allowed || most.Load() != 1 {
		t.Errorf("%d looks in %s, %d at once; expected at most %d and 1", n, time.Since(begun), most.Load(), allowed)
	}
}

// It looks again two seconds later, and a second after a look that failed.
func TestTheStatusIsTwoSecondsOldAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		look := admin.Looks(t.Context(), func(context.Context) (any, error) {
			if looks++; looks == 2 {
				return nil, errors.New("unavailable")
			}
			return looks, nil
		})
		for i, want := range []string{"1 0.000", "1 0.700", "1 1.400", `{"error":"unavailable"} 0.000`, `{"error":"unavailable"} 0.700`, "3 0.000"} {
			response := look()
			if got := fmt.Sprint(strings.TrimSpace(response.Body.String()), " ", response.Header().Get("Notifier-Age")); got != want {
				t.Errorf("after %d times 700ms: %s, expected %s", i, got, want)
			}
			time.Sleep(700 * time.Millisecond) // of synctest's clock
		}
	})
}

func TestShutdownBreaksALookOff(t *testing.T) {
	looking, ended := make(chan struct{}), make(chan error, 1)
	server, err := admin.Start(admin.Config{Addr: "127.0.0.1:0"}, probesOf(func(ctx context.Context) (any, error) {
		close(looking)
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}))
	kit.Check(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answered := make(chan int, 1)
	go func() {
		response, err := client.Get("http://" + server.Addr() + "/api/status")
		if err != nil {
			answered <- 0
			return
		}
		_ = response.Body.Close()
		answered <- response.StatusCode
	}()
	<-looking
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the look ended with %v", err)
	}
	if code := <-answered; code != http.StatusServiceUnavailable {
		t.Errorf("%d, expected 503", code)
	}
}
