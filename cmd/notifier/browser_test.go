package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"notifier/test/kit"
)

// chromium is the headless Chromium that the tests of the package share: starting one is more work than most
// of them are.
var chromium struct {
	start sync.Once
	ctx   context.Context
	err   error
}

// startChromium starts it for the rest of the package. Its time zone is five and a half hours east.
func startChromium(path string) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.Env("TZ=Asia/Kolkata"))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox) // root needs it
	}
	ctx, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, endFirst := chromedp.NewContext(ctx)
	atTheEnd = append(atTheEnd, end, endFirst)
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
}

// browser is a tab of Chromium in a browser context of the test's own: it shares neither storage nor
// connections with others.
type browser struct {
	ctx  context.Context
	home string // the only server that the page may reach

	mu       sync.Mutex
	problems []string
	failing  bool // failed requests are expected
}

// openBrowser opens a tab that ends with the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	const variable = "NOTIFIER_TEST_BROWSER"
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv(variable) == "require" {
			t.Fatalf("%s=require, and there is no chromium in PATH", variable)
		}
		t.Skipf("SKIPPED: there is no chromium in PATH, so nobody looks at the page. %s=require makes that a failure", variable)
	}
	chromium.start.Do(func() { startChromium(path) })
	if chromium.err != nil {
		t.Fatalf("chromium: %v", chromium.err)
	}
	ctx, closeTab := chromedp.NewContext(chromium.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, 6*kit.Patience)
	t.Cleanup(cancel)
	b := &browser{ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, problem := range b.problems {
			t.Error(problem)
		}
	})
	return b
}

// listen records errors of the page: exceptions, policy violations, console output, requests to other hosts.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			text += " " + e.ExceptionDetails.Exception.Description
		}
		b.problems = append(b.problems, "the page's script failed: "+text)
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprintf("the page wrote to the console: %v", e.Args))
	case *log.EventEntryAdded:
		if !b.failing || e.Entry.Source != log.EntrySourceNetwork {
			b.problems = append(b.problems, fmt.Sprintf("Chromium objects (%s): %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
		}
	case *network.EventRequestWillBeSent:
		if url := withoutUser(e.Request.URL); !strings.HasPrefix(url, b.home) && !strings.HasPrefix(url, "data:") {
			b.problems = append(b.problems, "the page asked "+url)
		}
	}
}

func (b *browser) expectFailures(yes bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failing = yes
}

// withoutUser is a URL without the user and the password in it.
func withoutUser(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.User == nil {
		return address
	}
	parsed.User = nil
	return parsed.String()
}

// open loads a page and allows it to reach only its own server. At the end of the test the server stops
// before the browser, so a last request may fail.
func (b *browser) open(t *testing.T, url string) {
	t.Helper()
	b.mu.Lock()
	b.home = withoutUser(url)
	b.mu.Unlock()
	t.Cleanup(func() { b.expectFailures(true) })
	b.do(t, chromedp.Navigate(url+"/"))
}

func (b *browser) do(t *testing.T, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		t.Fatalf("chromium: %v", err)
	}
}

// click clicks an element by script. The mouse would miss it if the page moves at that moment.
func (b *browser) click(t *testing.T, selector string) {
	t.Helper()
	see[bool](t, b, fmt.Sprintf(`document.querySelector(%q).click(), true`, selector))
}

// see evaluates JavaScript in the page. It tries again if the page navigates meanwhile.
func see[T any](t *testing.T, b *browser, script string) T {
	t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	for deadline := time.Now().Add(kit.Patience); err != nil && strings.Contains(err.Error(), "navigated") && time.Now().Before(deadline); {
		value, err = chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	}
	if err != nil {
		t.Fatalf("chromium: %v in %s", err, script)
	}
	return value
}

// text waits for an element and returns its text.
func (b *browser) text(t *testing.T, selector string) string {
	t.Helper()
	var text *string
	script := fmt.Sprintf("document.querySelector(%q)?.textContent ?? null", selector)
	kit.Eventually(t, "there is "+selector+" in the page", func() bool {
		text = see[*string](t, b, script)
		return text != nil
	})
	return *text
}

// waitForText waits until an element's text holds all of the texts.
func (b *browser) waitForText(t *testing.T, selector string, texts ...string) {
	t.Helper()
	if shown, holds := b.shows(t, kit.Patience, selector, texts...); !holds {
		t.Fatalf("after %s %s still shows %q, expected %q", kit.Patience, selector, shown, texts)
	}
}

// pollEvery is the interval at which a test refreshes the status page, which refreshes itself every 5 s.
const pollEvery = 400 * time.Millisecond

// shows waits until an element contains all texts, for at most limit. It also returns the element's last text.
// It refreshes the status page more often than the page does, except while failures are expected.
func (b *browser) shows(t *testing.T, limit time.Duration, selector string, texts ...string) (shown string, holds bool) {
	t.Helper()
	script := fmt.Sprintf("document.querySelector(%q)?.textContent ?? null", selector)
	b.mu.Lock()
	failing := b.failing
	b.mu.Unlock()
	asked := time.Now()
	holds = kit.Within(limit, func() bool {
		if !failing && time.Since(asked) >= pollEvery {
			asked = time.Now()
			see[bool](t, b, `typeof refresh === "function" && refresh(), true`)
		}
		text := see[*string](t, b, script)
		if text == nil {
			return false
		}
		shown = *text
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(shown, text) })
	})
	return shown, holds
}
