package settings

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Problems collects every problem with the settings, so that a user can fix all of them in one go. It is an
// error if it has a line. The zero value is empty and ready to use.
type Problems struct{ lines []string }

// Add adds one problem on one line: the variable, the problem, and the expected value. The line must not
// quote a secret.
func (p *Problems) Add(variable, format string, arguments ...any) {
	line := variable + ": " + fmt.Sprintf(format, arguments...)
	p.lines = append(p.lines, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?' // a path can contain a line end
		}
		return r
	}, line))
}

// Lines returns the problems, each as "VARIABLE: problem, expected ...".
func (p *Problems) Lines() []string { return slices.Clone(p.lines) }

// Line returns the first problem of a variable, without its name.
func (p *Problems) Line(variable string) (text string, found bool) {
	for _, line := range p.lines {
		if text, found := strings.CutPrefix(line, variable+": "); found {
			return text, true
		}
	}
	return "", false
}

// Err returns nil if there is no problem.
func (p *Problems) Err() error {
	if len(p.lines) == 0 {
		return nil
	}
	return p
}

// Error lists all problems, a line each.
func (p *Problems) Error() string { return strings.Join(p.lines, "\n") }
