package buildinfo

import "testing"

func TestWhatTheLinkerSetsComesFirst(t *testing.T) {
	if Version() == "" || Commit() == "" {
		t.Errorf("version %q, commit %q, expected something to show in any build", Version(), Commit())
	}
	version, commit = "v1.2.3", "0123abc"
	t.Cleanup(func() { version, commit = "", "" })
	if Version() != "v1.2.3" || Commit() != "0123abc" {
		t.Errorf("version %q, commit %q, expected those of the release", Version(), Commit())
	}
}
