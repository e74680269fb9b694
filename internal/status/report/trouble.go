package report

import (
	"context"
	"strings"
	"unicode"
)

// Kinds of trouble with Redis. A server in one of the first four replies, and refuses every write.
const (
	Full        = "full"        // maxmemory is reached, and nothing may be evicted
	ReadOnly    = "read_only"   // a replica
	NotSaving   = "not_saving"  // it cannot write to its disk
	NoReplicas  = "no_replicas" // fewer replicas are connected than it requires
	Loading     = "loading"     // it is reading its data
	Denied      = "denied"      // it refuses the user, or one of its commands
	Unreachable = "unreachable" // no reply, or an unknown error
)

// signs lists the beginnings of Redis's errors.
var signs = []struct{ sign, kind string }{
	{"OOM ", Full},
	{"READONLY ", ReadOnly},
	{"MISCONF ", NotSaving},
	{"NOREPLICAS ", NoReplicas},
	{"LOADING ", Loading},
	{"MASTERDOWN ", Loading},
	{"NOPERM", Denied},
	{"can't run this command", Denied},
	{"NOAUTH", Denied},
	{"WRONGPASS", Denied},
}

// Trouble returns the kind of trouble that the text of an error of Redis describes, also if a script or a
// wrapper has put words before it. It returns Unreachable if it does not know the error.
func Trouble(text string) string {
	for _, known := range signs {
		before, _, found := strings.Cut(text, known.sign)
		// after a letter it would be a part of a name
		if found && (before == "" || !unicode.IsLetter(rune(before[len(before)-1]))) {
			return known.kind
		}
	}
	return Unreachable
}

// writeFlag is a script that declares that it may write, and writes nothing. A server that takes no writes
// refuses to run it.
const writeFlag = "#!lua\nreturn 1"

// RefusesWrites returns the error with which Redis refuses all writes now (full, a replica, cannot save), or
// nil if it takes them or the user may not find out.
func (r *Reader) RefusesWrites(ctx context.Context) error {
	err := r.redis.Eval(ctx, writeFlag, []string{r.keys.replicas()}).Err()
	if err == nil {
		return nil
	}
	switch Trouble(err.Error()) {
	case Full, ReadOnly, NotSaving, NoReplicas:
		return err
	}
	return nil
}
