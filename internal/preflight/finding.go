package preflight

import (
	"fmt"

	"notifier/internal/term"
)

// Level is how much a finding matters.
type Level string

// The levels. Only a failure means that a worker could not do its job.
const (
	OK   Level = "ok"
	Note Level = "note"
	Warn Level = "warn"
	Fail Level = "fail"
)

// Finding is the result of one check.
type Finding struct {
	Level  Level
	Text   string // without secrets, printable
	Advice string // what to do about it; may be empty
}

// report collects the findings of one area. It is for one goroutine.
type report struct{ findings []Finding }

func (r *report) add(level Level, advice, format string, arguments ...any) {
	r.findings = append(
		r.findings,
		Finding{
			Level:  level,
			Text:   term.Printable(fmt.Sprintf(format, arguments...)),
			Advice: term.Printable(advice),
		},
	)
}

func (r *report) ok(format string, arguments ...any) { r.add(OK, "", format, arguments...) }

func (r *report) note(advice, format string, arguments ...any) {
	r.add(Note, advice, format, arguments...)
}

func (r *report) warn(advice, format string, arguments ...any) {
	r.add(Warn, advice, format, arguments...)
}

func (r *report) fail(advice, format string, arguments ...any) {
	r.add(Fail, advice, format, arguments...)
}
