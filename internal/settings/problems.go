package settings

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Problems collects every problem with the settings, so that a user can fix all of them in one go. It is an
// error if it has a line. The zero value is empty and ready to use.
type Problems struct {
	lines     []string
	variables map[string]bool // those that have a line

	values map[string]string // of variables, to be judged where they have a problem; they may be secrets
}

// judge makes Add append hints about these values.
func (p *Problems) judge(env Environment) { p.values = byName(env) }

// Add adds one problem on one line: the variable, the problem, and the expected value. The first problem of a
// variable also gets a hint. The line must not quote a secret.
func (p *Problems) Add(variable, format string, arguments ...any) {
	line := variable + ": " + fmt.Sprintf(format, arguments...)
	if likely := hint(variable, p.values[variable]); likely != "" && !p.variables[variable] {
		line += "; " + likely
	}
	p.lines = append(p.lines, strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?' // a path can contain a line end
		}
		return r
	}, line))
	if p.variables == nil {
		p.variables = map[string]bool{}
	}
	p.variables[variable] = true
}

// addEach notes each of the errors that errors.Join has joined, or the one that err is; none if it is nil.
func (p *Problems) addEach(variable string, err error) {
	switch joined, several := err.(interface{ Unwrap() []error }); {
	case several:
		for _, err := range joined.Unwrap() {
			p.addEach(variable, err)
		}
	case err != nil:
		p.Add(variable, "%v", err)
	}
}

// Lines returns the problems, each as "VARIABLE: problem, expected ...".
func (p *Problems) Lines() []string { return slices.Clone(p.lines) }

// Line is the first problem of a variable, without its name, if it has one.
func (p *Problems) Line(variable string) (text string, found bool) {
	for _, line := range p.lines {
		if text, found := strings.CutPrefix(line, variable+": "); found {
			return text, true
		}
	}
	return "", false
}

// Err is nil when nothing is wrong.
func (p *Problems) Err() error {
	if len(p.lines) == 0 {
		return nil
	}
	return p
}

// Error lists all problems, a line each.
func (p *Problems) Error() string { return strings.Join(p.lines, "\n") }

// unreadable reports whether the variable is set to a file that could not be read: then its value is unknown,
// and a problem with the value would be one too many.
func (p *Problems) unreadable(variable string) bool { return p.variables[variable+"_FILE"] }

// about returns only the problems of these variables and of the files that they come from.
func (p *Problems) about(variables []string) *Problems {
	chosen := &Problems{}
	for _, line := range p.lines {
		name, rest, _ := strings.Cut(line, ": ")
		if slices.Contains(variables, strings.TrimSuffix(name, "_FILE")) {
			chosen.Add(name, "%s", rest)
		}
	}
	chosen.values = p.values
	return chosen
}
