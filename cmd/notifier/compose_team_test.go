package main

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"notifier/test/kit"
)

// TestComposeSecretsOfASecondTeam: it gets users of NATS and Redis of its own, for its own names alone, and
// the first team's stay as they were.
func TestComposeSecretsOfASecondTeam(t *testing.T) {
	t.Parallel()
	s, settings := newSecretsScript(t), []string{"DROPPED_SUBJECT=dropped"}
	run := func(arguments string) string { return s.must(t, arguments, settings...) }
	run("")
	first, redis := users(t, s), s.file(t, "redis/users.acl")
	passwords := run("team payments")
	if again := run("team payments"); again != passwords || strings.Count(passwords, "\n") != 4 {
		t.Errorf("the passwords are %q and then %q, expected the same four", passwords, again)
	}
	run("team ops")
	run("rotate ops-nats-publisher")
	if rotated := run("team payments"); rotated != passwords {
		t.Errorf("the passwords of payments have changed with one of ops: %q", rotated)
	}

	both := users(t, s)
	if len(both) != 3*len(first) {
		t.Errorf("%d users, expected %d for each of three teams", len(both), len(first))
	}
	for name, permissions := range both {
		switch team, _, others := strings.Cut(name, "-"); {
		case !others && permissions != first[name]:
			t.Errorf("%s has %s, expected the permissions from before, %s", name, permissions, first[name])
		case others && (strings.Contains(permissions, "notify") || strings.Contains(permissions, "NOTIFY") || strings.Contains(permissions, "dropped")):
			t.Errorf("%s may reach what is the first team's: %s", name, permissions)
		case others && strings.HasSuffix(name, "publisher") && !strings.Contains(permissions, team+".>"):
			t.Errorf("%s may not publish below %s: %s", name, team, permissions)
		}
	}
	added, found := strings.CutPrefix(s.file(t, "redis/users.acl"), redis)
	if !found || strings.Count(added, "\n") != 2 || !strings.Contains(added, "user payments-notifier on #") ||
		!strings.Contains(added, " ~{payments}:* ") || strings.Contains(added, "{notifier}") {
		t.Errorf("the users of Redis have become\n%s\nfrom\n%s", s.file(t, "redis/users.acl"), redis)
	}

	other := newSecretsScript(t)
	if out, err := other.run(t, "join", passwords, "TEAM=payments"); err != nil {
		t.Fatalf("join: %v: %s", err, out)
	}
	for line := range strings.Lines(passwords) {
		name, password, _ := strings.Cut(strings.TrimSpace(line), " ")
		server, user, _ := strings.Cut(name, "-")
		file := map[string]string{"notifier": "worker"}[user]
		if file == "" {
			file = user
		}
		if got := other.file(t, filepath.Join(file, server+"-url")); !strings.Contains(got, "//payments-"+user+":"+password+"@"+server) {
			t.Errorf("the team's URL for %s is %q", name, got)
		}
	}
}

// TestComposeSecretsRemoveATeam: removing a team deletes its users and passwords and keeps all others.
func TestComposeSecretsRemoveATeam(t *testing.T) {
	t.Parallel()
	s := newSecretsScript(t)
	run := func(arguments string) string { return s.must(t, arguments) }
	run("")
	first, redis := users(t, s), s.file(t, "redis/users.acl")
	passwords := run("team payments")
	run("team ops")
	run("remove ops")
	if left := users(t, s); len(left) != 2*len(first) || run("team payments") != passwords {
		t.Errorf("without ops there are %d users, expected those of two teams as they were", len(left))
	}
	run("remove payments")
	if left := users(t, s); !maps.Equal(left, first) || s.file(t, "redis/users.acl") != redis {
		t.Errorf("without teams there are %v and\n%s, expected what was there before", left, s.file(t, "redis/users.acl"))
	}
	if run("team payments") == passwords {
		t.Error("a team that was removed and added again has its old passwords")
	}
}

// users gives the permissions of each user of NATS as the server reads them.
func users(t *testing.T, s secretsScript) map[string]string {
	t.Helper()
	options, err := server.ProcessConfigFile(filepath.Join(s.secrets, "nats/nats.conf"))
	kit.Check(t, err)
	all := map[string]string{}
	for _, user := range options.Users {
		permissions := ""
		for _, subjects := range []*server.SubjectPermission{user.Permissions.Publish, user.Permissions.Subscribe} {
			if subjects != nil {
				permissions += strings.Join(subjects.Allow, " ") + " not " + strings.Join(subjects.Deny, " ") + "; "
			}
		}
		all[user.Username] = permissions
	}
	return all
}

// TestComposeSecretsRefuseATeam: the script rejects malformed passwords and names with a special meaning to
// the scripts or the servers.
func TestComposeSecretsRefuseATeam(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ arguments, input, settings, want string }{
		{"team", "", "", "expected team NAME"},
		{"team a b", "", "", "expected team NAME"},
		{"team Payments", "", "", "expected small letters"},
		{"team 1st", "", "", "expected small letters"},
		{"team a.>", "", "", "expected small letters"},
		{"team ../../x", "", "", "expected small letters"},
		{"team notify", "", "", "the names of the default settings"},
		{"team alerts", "", "NATS_SUBJECT=alerts.>", "would read what"},
		{"team alerts", "", "REDIS_NAMESPACE=alerts", "would read what"},
		{"remove", "", "", "expected remove NAME"},
		{"remove payments", "", "", "there is no team payments"},
		{"remove ../x", "", "", "expected small letters"},
		{"join", "", "", "TEAM is not set"},
		{"join", "nats-root x\n", "TEAM=payments", "no password is named nats-root"},
		{"join", "../x y\n", "TEAM=payments", "no password is named ../x"},
		{"join", "nats-notifier short\n", "TEAM=payments", "expected 48"},
		{"", "", "TEAM=a/b", "expected small letters"},
	} {
		s := newSecretsScript(t)
		out, err := s.run(t, test.arguments, test.input, test.settings)
		if err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s with %q and %s: %v and %q, expected a failure with %q", test.arguments, test.input, test.settings, err, out, test.want)
		}
		if s.file(t, "nats/nats.conf") != "" {
			t.Errorf("%s: the configuration of NATS was written all the same", test.arguments)
		}
	}
}
