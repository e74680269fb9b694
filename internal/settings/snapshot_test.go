package settings

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"notifier/internal/snapshot"
	"notifier/internal/status/config"
	"notifier/test/kit"
)

func snapshotOf(t *testing.T, set map[string]string) snapshot.Settings {
	t.Helper()
	s, err := from(t, set)
	kit.Check(t, err)
	return s.Snapshot()
}

// The hash changes with every setting that affects the outcome of events, and with no other. Different
// spellings of a value have the same hash.
func TestSnapshotHash(t *testing.T) {
	base := map[string]string{
		"LIMIT_OVERRIDES": "a=20/30m,b=5/1h", "LIMIT_GROUP": "50/1h", "LIMIT_RESERVE": "payments=5", "SLACK_ROUTES": "a=C01,b=#x",
		"EVENT_MAX_AGE": "1h",
	}
	with := func(changes map[string]string) snapshot.Settings {
		t.Helper()
		set := maps.Clone(base)
		maps.Copy(set, changes)
		return snapshotOf(t, set)
	}
	same := with(nil)
	if len(same.Hash) != 8 {
		t.Errorf("hash %q, expected eight digits", same.Hash)
	}
	if again := with(map[string]string{
		"LIMIT_OVERRIDES": " b=5/60m , a=20/1800s", "SLACK_ROUTES": "b=#x,a=C01", "EVENT_MAX_AGE": "60m", "SEND_CONCURRENCY": "3",
		"NATS_URL": "nats://other:4222", "SLACK_BOT_TOKEN": "xoxb-2", "ADMIN_ADDR": "", "LOG_LEVEL": "debug",
	}); !cmp.Equal(again, same) {
		t.Errorf("equal settings differ: %s", cmp.Diff(same, again))
	}
	hashes := map[string]string{same.Hash: "the base"}
	for variable, value := range map[string]string{
		"NATS_SUBJECT": "other.>", "NATS_STREAM": "OTHER", "NATS_CONSUMER": "other",
		"LIMIT_GLOBAL": "99/30m", "LIMIT_CATEGORY": "9/30m", "LIMIT_OVERRIDES": "a=20/30m", "LIMIT_GROUP": "51/1h",
		"LIMIT_GROUP_OVERRIDES": "a=9/1h", "LIMIT_RESERVE": "payments=6", "DEDUPE_WINDOW": "23h", "EVENT_MAX_AGE": "2h",
		"EVENT_MAX_BYTES": "70000", "SLACK_CHANNEL": "#other", "SLACK_ROUTES": "a=C01", "SLACK_MARKUP": "allow", "SLACK_PACE": "off",
		"DEAD_LETTER_SUBJECT": "other-dead", "DROPPED_SUBJECT": "dropped", "DIGEST_INTERVAL": "1h", "DIGEST_CHANNEL": "#digest",
	} {
		hash := with(map[string]string{variable: value}).Hash
		if other, known := hashes[hash]; known {
			t.Errorf("with another %s the hash is that of %s", variable, other)
		}
		hashes[hash] = variable
	}
}

func TestSnapshotTextIsReadBack(t *testing.T) {
	set := map[string]string{
		"LIMIT_GLOBAL": "100/30m+10/1m:1s", "LIMIT_OVERRIDES": "team-a.>=5/1h,errors=20/30m", "LIMIT_GROUP": "50/1h",
		"LIMIT_GROUP_OVERRIDES": "team-a=60/1h", "LIMIT_RESERVE": "payments=5", "SLACK_ROUTES": "team-a.>=C01,errors=#x",
	}
	text := snapshotOf(t, set).Text
	want := map[string]string{
		"LIMIT_OVERRIDES": "errors=20/30m,team-a.>=5/1h", "LIMIT_CATEGORY": "10/30m", "SLACK_ROUTES": "errors=#x,team-a.>=C01",
		"DEDUPE_WINDOW": "24h", "SLACK_CHANNEL": "#alerts", "NATS_SUBJECT": "notify.>",
	}
	for name, value := range set {
		if want[name] == "" {
			want[name] = value
		}
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	d, err := config.Parse(text)
	kit.Check(t, err)
	if diff := cmp.Diff(text, d.Text()); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	if channel := d.ChannelOf("team-a.job"); channel != "C01" {
		t.Errorf("channel %s", channel)
	}
	if limit := d.Rules.LimitFor("errors").String(); limit != "20/30m" {
		t.Errorf("limit %s", limit)
	}
}
