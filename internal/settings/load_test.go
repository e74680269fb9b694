package settings

import (
	"strings"
	"testing"
	"time"
)

// A command reads only the settings it needs and ignores mistakes in others.
func TestPartsOfTheSettings(t *testing.T) {
	for name, value := range map[string]string{"SLACK_BOT_TOKEN": "", "BATCH_SIZE": "nonsense", "LOG_LEVEL": "nonsense"} {
		t.Setenv(name, value)
	}
	if _, err := LoadNATS(); err != nil {
		t.Errorf("NATS: %v", err)
	}
	store, err := LoadStore()
	if err != nil || store.Redis == nil || store.Limits.Global.String() != "100/30m" {
		t.Errorf("store: %v, %+v", err, store)
	}
	store.close()
	if addr, token, err := LoadAdmin(); err != nil || addr != "127.0.0.1:8080" || token != "" {
		t.Errorf("admin server: %q, %q, %v", addr, token, err)
	}

	t.Setenv("LIMIT_GLOBAL", "nonsense")
	t.Setenv("REDIS_NAMESPACE", "{}")
	if store, err := LoadStore(); err == nil || len(lines(t, err)) != 2 || store.Redis != nil {
		t.Errorf("store: %v, expected two problems and no client", err)
	}
	t.Setenv("ADMIN_ADDR", "")
	if _, _, err := LoadAdmin(); err == nil || !strings.HasPrefix(err.Error(), "ADMIN_ADDR: is empty") {
		t.Errorf("admin server: %v, expected a problem", err)
	}
	t.Setenv("ADMIN_ADDR_FILE", "/missing")
	if _, _, err := LoadAdmin(); err == nil || len(lines(t, err)) != 1 || !strings.HasPrefix(err.Error(), "ADMIN_ADDR_FILE: ") {
		t.Errorf("admin server: %v, expected one problem", err)
	}
}

// TestTheTokenIsOptional: a health check is one without it, too, and needs no other setting.
func TestTheTokenIsOptional(t *testing.T) {
	t.Setenv("ADMIN_TOKEN", "correct-horse-battery")
	t.Setenv("NATS_URL_FILE", "/missing")
	if _, token, err := LoadAdmin(); err != nil || token != "correct-horse-battery" {
		t.Errorf("admin server: %q, %v, expected its token", token, err)
	}
	t.Setenv("ADMIN_TOKEN", "")
	t.Setenv("ADMIN_TOKEN_FILE", "/missing")
	if addr, token, err := LoadAdmin(); err != nil || addr != "127.0.0.1:8080" || token != "" {
		t.Errorf("admin server: %q, %q, %v, expected it without a token", addr, token, err)
	}
}

// TestLimitsInstead: a value that replaces a variable is checked, and the variable's own is not.
func TestLimitsInstead(t *testing.T) {
	t.Setenv("LIMIT_GLOBAL", "nonsense")
	t.Setenv("LIMIT_CATEGORY_FILE", "/missing")
	limits, err := LoadLimits(map[string]string{"LIMIT_GLOBAL": "5/1m", "LIMIT_CATEGORY": "3/1m"})
	if err != nil || limits.Limits.Global.String() != "5/1m" || limits.Limits.Category.String() != "3/1m" || limits.Redis != nil {
		t.Errorf("%v: %+v, expected the values that were given", err, limits)
	}
	t.Setenv("LIMIT_RESERVE", "a=nonsense")
	all, err := LoadLimits(map[string]string{
		"LIMIT_GLOBAL": "5/1m", "LIMIT_CATEGORY": "3/1m", "LIMIT_OVERRIDES": "a.*=2/1m", "LIMIT_GROUP": "4/1m", "LIMIT_GROUP_OVERRIDES": "b=3/1m",
		"LIMIT_RESERVE": "a=1", "DEDUPE_WINDOW": "1h",
	})
	if rules := all.Limits; err != nil || rules.LimitFor("a.x").String() != "2/1m" || rules.GroupLimit("a").String() != "4/1m" ||
		rules.GroupLimit("b").String() != "3/1m" || rules.Reserve["a"] != 1 || all.Dedupe != time.Hour {
		t.Errorf("%v: %+v, expected the values that were given", err, all)
	}
	t.Setenv("LIMIT_RESERVE", "")
	_, err = LoadLimits(map[string]string{"LIMIT_GLOBAL": "5"})
	if got := lines(t, err); len(got) != 2 || !strings.HasPrefix(got[0], "LIMIT_CATEGORY_FILE: ") || !strings.HasPrefix(got[1], `LIMIT_GLOBAL: "5", `) {
		t.Errorf("%q, expected problems of the file and of the value that was given", got)
	}
}

// TestAReservationUnderALimitThatCannotBeRead: the limit's problem is reported, and nothing about the
// reservation.
func TestAReservationUnderALimitThatCannotBeRead(t *testing.T) {
	for _, limits := range []map[string]string{
		{"LIMIT_GLOBAL": "5/1m", "LIMIT_CATEGORY": "3/1", "LIMIT_RESERVE": "a=1"},
		{"LIMIT_GLOBAL": "5/1m", "LIMIT_CATEGORY": "3/1m", "LIMIT_OVERRIDES": "a=3/1", "LIMIT_RESERVE": "a=1"},
		{"LIMIT_GLOBAL": "5/1", "LIMIT_CATEGORY": "3/1m", "LIMIT_RESERVE": "a=1"},
	} {
		_, err := LoadLimits(limits)
		if got := lines(t, err); len(got) != 1 || strings.HasPrefix(got[0], "LIMIT_RESERVE") {
			t.Errorf("%v: %q, expected one problem, of the limit", limits, got)
		}
	}
}

// dev uses IsSet to keep a value that the user has chosen.
func TestIsSet(t *testing.T) {
	if IsSet("LOG_FORMAT") {
		t.Error("it is set by nothing")
	}
	t.Setenv("LOG_FORMAT_FILE", "/somewhere")
	if !IsSet("LOG_FORMAT") {
		t.Error("it is not set by a file")
	}
}
