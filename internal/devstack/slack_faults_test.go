package devstack

import (
	"net/http"
	"strings"
	"testing"

	"notifier/test/kit"
)

// setFaults changes the faults as the inbox page does. site is the Sec-Fetch-Site header of the browser.
func (f *fake) setFaults(body, site string) (status int, reply string) {
	f.Helper()
	request, err := http.NewRequestWithContext(
		f.Context(), http.MethodPost, f.URL()+"/fake/faults", strings.NewReader(body),
	)
	kit.Check(f.T, err)
	request.Header.Set("Sec-Fetch-Site", site)
	response, err := f.client.Do(request)
	kit.Check(f.T, err)
	defer response.Body.Close()
	var text strings.Builder
	kit.Check(f.T, response.Write(&text))
	return response.StatusCode, text.String()
}

func TestFaults(t *testing.T) {
	for faults, want := range map[string]struct{ post, other, hook string }{
		`{}`:                                    {posted, posted, "200 ok"},
		`{"fail":"503"}`:                        {"503 Service Unavailable", "503 Service Unavailable", "503 Service Unavailable"},
		`{"fail":"is_archived"}`:                {archived, archived, "400 is_archived"},
		`{"fail":"is_archived","channel":"C1"}`: {archived, posted, "400 is_archived"},
		`{"fail":"429","retry_after":"1m"}`:     {"429 after 60" + limited, "429 after 60" + limited, "429 after 60 ratelimited"},
		`{"limit":"1/1h","retry_after":"30s"}`:  {posted, posted, "429 after 30 ratelimited"},
		`{"delay":"1ms"}`:                       {posted, posted, "200 ok"},
	} {
		t.Run(faults, func(t *testing.T) {
			f := startFake(t)
			if status, reply := f.setFaults(faults, "same-origin"); status != http.StatusOK {
				t.Fatal(reply)
			}
			f.expect(f.post, "C1", want.post)
			f.expect(f.post, "C2", want.other)
			f.expect(f.hook, "C1", want.hook)
			if status, reply := f.setFaults(`{}`, "same-origin"); status != http.StatusOK {
				t.Fatal(reply)
			}
			f.expect(f.post, "C1", posted)
		})
	}
}

func TestRevokedTokenFailsEveryMethod(t *testing.T) {
	f := startFake(t)
	kit.Check(t, f.SetFaults(Faults{Revoked: true}))
	for _, method := range []string{"auth.test", "conversations.history", "conversations.replies"} {
		f.expect(func(channel string) string { return f.method(method, channel) }, "C1", revoked)
	}
}

func TestInvalidFaultsChangeNothing(t *testing.T) {
	f := startFake(t)
	kit.Check(t, f.SetFaults(Faults{Fail: "is_archived"}))
	for body, want := range map[string]string{
		"fail=503":             "expected a JSON object",
		`{"fial":"503"}`:       `unknown field "fial"`,
		`{"fail":"200"}`:       `fail: "200", expected an HTTP status from 300 to 599 or an error code`,
		`{"fail":"<script>"}`:  `fail: "<script>", expected`,
		`{"limit":"12"}`:       `limit: "12", expected COUNT/DURATION`,
		`{"retry_after":"10"}`: `retry_after: "10", expected whole seconds`,
		`{"delay":"-1s"}`:      `delay: "-1s", expected a duration`,
	} {
		if status, reply := f.setFaults(body, "same-origin"); status != http.StatusBadRequest || !strings.Contains(reply, want) {
			t.Errorf("%s: %d %s, want 400 and %q", body, status, reply, want)
		}
	}
	f.expect(f.post, "C1", archived)
}

// A page of another site can make a browser post here. Sec-Fetch-Site reveals it.
func TestOtherSitesCannotSetFaults(t *testing.T) {
	f := startFake(t)
	for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-origin": http.StatusOK} {
		if status, reply := f.setFaults(`{"revoked":true}`, site); status != want {
			t.Errorf("%s: %d %s, want %d", site, status, reply, want)
		}
	}
}
