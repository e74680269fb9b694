package ratelimit_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"notifier/internal/ratelimit"
	"notifier/test/kit"
	"notifier/test/redistest"
)

func TestReadyAndCheckStoreNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s *store) {
		limiter := limiterAt(t, s.url())
		if err := limiter.Ready(t.Context()); err != nil {
			t.Errorf("ready: %v", err)
		}
		if err := limiter.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
		if got := s.contents(t); got != "" {
			t.Errorf("stored:\n%s", got)
		}
	})
}

const emptyDecision = "*7\r\n$7\r\ndecided\r\n:1795149541123457\r\n:0\r\n*0\r\n*0\r\n*0\r\n*0\r\n"

func TestCheckRejectsAnOldRedis(t *testing.T) {
	for version, suitable := range map[string]bool{
		"2.8.24": false, "5.0.14": false, "6.2.17": false, "7.0.0": true, "7.0.15": true, "7.2.4": true, "8.4.0": true, "10.0.1": true, "255.255.255": true,
		"unknown": false,
	} {
		info := fmt.Sprintf("# Server\r\nredis_version:%s\r\nredis_mode:standalone\r\n", version)
		addr := fake(t, map[string]string{"INFO": fmt.Sprintf("$%d\r\n%s\r\n", len(info), info), "EVALSHA": emptyDecision})
		err := limiterAt(t, "redis://"+addr).Check(t.Context())
		switch {
		case suitable && err != nil:
			t.Errorf("version %s: %v", version, err)
		case !suitable && (!errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), "version "+version+", expected 7.0 or newer")):
			t.Errorf("version %s: %v, expected that it is unsuitable and what is expected", version, err)
		}
	}
}

func TestCheckAcceptsAnUnknownVersion(t *testing.T) {
	for _, info := range []string{
		"-ERR section (server) is not supported\r\n", "-NOPERM this user has no permissions to run the 'info' command\r\n",
		"$0\r\n\r\n", "$21\r\nmystery_version:1.2.3\r\n",
	} {
		kit.Check(t, limiterAt(t, "redis://"+fake(t, map[string]string{"INFO": info, "EVALSHA": emptyDecision})).Check(t.Context()))
	}
}

func TestCheckNamesMissingPermissions(t *testing.T) {
	server := redistest.StartProcess(t)
	admin := server.Client(t)
	for name, test := range map[string]struct {
		rules    []any
		suitable bool
	}{
		"may do all":                        {[]any{"~*", "+@all"}, true},
		"not EVALSHA":                       {[]any{"~*", "+@all", "-evalsha"}, false},
		"EVALSHA, not EVAL, nothing loaded": {[]any{"~*", "+@all", "-eval"}, false},
		"no scripts at all":                 {[]any{"~*", "+@all", "-@scripting"}, false},
		"other keys only":                   {[]any{"~other:*", "+@all"}, false},
		"its own keys only":                 {[]any{"~{n}:*", "+@all"}, true},
		"no INFO":                           {[]any{"~{n}:*", "+@all", "-info"}, true},
	} {
		kit.Check(t, admin.ScriptFlush(t.Context()).Err())
		user := strings.NewReplacer(" ", "-", ",", "").Replace(name)
		kit.Check(t, admin.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">s3cret-word"}, test.rules...)...).Err())
		limiter := limiterAt(t, fmt.Sprintf("redis://%s:s3cret-word@%s/0", user, server.Addr))
		err := limiter.Check(t.Context())
		if test.suitable && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.suitable {
			if !errors.Is(err, ratelimit.ErrUnsuitable) || !strings.Contains(err.Error(), "expected a user that may run EVALSHA and EVAL on {n}:*") {
				t.Errorf("%s: %v, expected that it is unsuitable and what is expected", name, err)
			}
			if decisions, err := limiter.Admit(t.Context(), events(1, "e", "a")); err == nil || decisions != nil {
				t.Errorf("%s: %v, %v", name, decisions, err)
			}
		}
	}
}

func TestWrongPasswordIsNotShown(t *testing.T) {
	server := redistest.StartProcess(t)
	kit.Check(t, server.Client(t).ConfigSet(t.Context(), "requirepass", "right-word").Err())
	for _, url := range []string{"redis://:wrong-word@" + server.Addr, "redis://somebody:wrong-word@" + server.Addr, "redis://" + server.Addr} {
		err := limiterAt(t, url).Check(t.Context())
		if err == nil || strings.Contains(err.Error(), "wrong-word") {
			t.Errorf("%v, expected an error without the password", err)
		}
	}
	limiterAt(t, "redis://:right-word@"+server.Addr).admits(event("e", "a"))
}
