package settings_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"notifier/internal/settings"
	"notifier/test/kit"
)

// A secret that other users may read is named, whichever way a setting gets to it; one that its group may
// read is not.
func TestSecretFilesThatOthersMayUseAreFound(t *testing.T) {
	for _, test := range []struct {
		mode os.FileMode
		want bool
	}{{0o400, false}, {0o440, false}, {0o660, false}, {0o444, true}, {0o644, true}, {0o602, true}, {0o711, false}} {
		folder := t.TempDir()
		file := func(name, content string) string {
			path := filepath.Join(folder, name)
			kit.Check(t, os.WriteFile(path, []byte(content), 0o600))
			kit.Check(t, os.Chmod(path, test.mode))
			return path
		}
		t.Setenv("SLACK_BOT_TOKEN_FILE", file("token", "xoxb-1"))
		t.Setenv("REDIS_URL_FILE", file("redis", "redis://me:word@127.0.0.1"))
		t.Setenv("NATS_NKEY_FILE", file("nkey", "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"))
		t.Setenv("LIMIT_GLOBAL_FILE", file("limit", "10/30m")) // no secret
		t.Setenv("SLACK_CHANNEL", "C1")
		s, err := settings.Load()
		kit.Check(t, err)
		kit.Check(t, s.Store.Redis.Close())
		var got, want []string
		for _, exposed := range s.Exposed {
			got = append(got, exposed.Variable)
		}
		if test.want {
			want = []string{"NATS_NKEY_FILE", "REDIS_URL_FILE", "SLACK_BOT_TOKEN_FILE"}
		}
		if !slices.Equal(got, want) {
			t.Errorf("mode %04o: %q, expected %q", test.mode, got, want)
		}
	}
}
