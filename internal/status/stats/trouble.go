package stats

import (
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"notifier/internal/term"
)

// Kinds of trouble with Redis. The first four are those of a server that answers and takes no writes.
const (
	Full        = "full"        // maxmemory is reached, and nothing may be evicted
	ReadOnly    = "read_only"   // it is a replica
	NotSaving   = "not_saving"  // it cannot write to its disk
	NoReplicas  = "no_replicas" // fewer replicas are connected than it wants
	Loading     = "loading"     // it still reads its data
	Denied      = "denied"      // it refuses the user, or the user may not do that
	WrongKey    = "wrong_key"   // a key has another type, or holds what no worker writes
	Unreachable = "unreachable" // there is no answer
)

// signs are what the errors of Redis begin with, also where a script or a wrapper has put words before them.
var signs = []struct{ sign, kind string }{
	{"OOM ", Full},
	{"READONLY ", ReadOnly},
	{"MISCONF ", NotSaving},
	{"NOREPLICAS ", NoReplicas},
	{"LOADING ", Loading},
	{"MASTERDOWN ", Loading},
	{"NOPERM", Denied}, {"can't run this command", Denied}, {"NOAUTH", Denied}, {"WRONGPASS", Denied},
	{"WRONGTYPE", WrongKey}, {", expected ", WrongKey},
}

// TroubleKind is what kind of trouble the text of an error of Redis describes: one of the constants,
// Unreachable where it is none of the others.
func TroubleKind(reason string) string {
	for _, known := range signs {
		before, _, found := strings.Cut(reason, known.sign)
		if found && (before == "" || !unicode.IsLetter(rune(before[len(before)-1]))) { // else it is part of a name
			return known.kind
		}
	}
	return Unreachable
}

// RefusesWrites reports whether the trouble is that of a server that answers, and takes no writes of anybody.
func RefusesWrites(kind string) bool {
	return kind == Full || kind == ReadOnly || kind == NotSaving || kind == NoReplicas
}

// remind is how often an outage is logged.
const remind = time.Minute

// Trouble is why the counts of a replica do not reach Redis.
type Trouble struct {
	Kind   string
	Reason string    // the latest error
	Since  time.Time // by this machine's clock

	logged time.Time
}

// Trouble is why the last flush failed; nil: it did not, or there was none yet.
func (r *Recorder) Trouble() *Trouble { return r.trouble.Load() }

// note takes the result of a flush, and logs when an outage begins, once a minute, and when it is over.
func (r *Recorder) note(err error, now time.Time) {
	last := r.trouble.Load()
	if err == nil {
		if last != nil {
			r.log.Log(
				last.level(zap.InfoLevel),
				"counts reach Redis again",
				zap.Float64("after_s", term.Seconds(now.Sub(last.Since))),
			)
		}
		r.trouble.Store(nil)
		return
	}
	trouble := &Trouble{Kind: TroubleKind(err.Error()), Reason: err.Error(), Since: now}
	if last != nil {
		trouble.Since, trouble.logged = last.Since, last.logged
	}
	if now.Sub(trouble.logged) >= remind {
		trouble.logged = now
		r.log.Log(
			trouble.level(zap.WarnLevel),
			"counts do not reach Redis",
			zap.Error(err),
			zap.Float64("for_s", term.Seconds(now.Sub(trouble.Since))),
		)
	}
	r.trouble.Store(trouble)
}

// level is debug in the first minute: the worker has already logged that Redis is unavailable, and counts
// wait without harm.
func (t *Trouble) level(later zapcore.Level) zapcore.Level {
	if t.logged.Sub(t.Since) < remind {
		return zap.DebugLevel
	}
	return later
}
