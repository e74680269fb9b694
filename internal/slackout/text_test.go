package slackout

import (
	"testing"

	"notifier/test/kit"
)

const ourText = "errors &lt;b&gt; <!date^1791115920^{time}|14:32 UTC>"

func TestPostTextPostsTheTextAsItIs(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			s := startSlack(t)
			receipt, err := newPoster(t, way.config(s)).PostText(t.Context(), "C0OTHER", ourText)
			kit.Check(t, err)
			m := s.Messages()[0]
			if m.Text != ourText || m.Form["unfurl_links"] != "false" || m.Metadata != nil {
				t.Errorf("posted %+v", m)
			}
			want := Receipt{Channel: "C0OTHER", TS: m.TS}
			if way.name == "webhook" {
				want = Receipt{}
			}
			if m.Channel != "C0OTHER" || receipt != want {
				t.Errorf("receipt %+v, want %+v; posted to %s", receipt, want, m.Channel)
			}
		})
	}
}
