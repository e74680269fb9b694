package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostCommands limits the commands for one question of "First look".
const mostCommands = 2

// question is a row of "First look" in docs/runbook.md, or the matching section of the script.
type question struct {
	text     string
	commands []string
}

// firstLook reads the table.
func firstLook(t *testing.T, markdown string) (questions []question) {
	t.Helper()
	_, section, found := strings.Cut(markdown, "\n## First look\n")
	if !found {
		t.Fatal("there is no section First look")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for row := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(row), "|")
		if len(cells) < 4 || strings.HasPrefix(row, "| ---") || strings.HasPrefix(row, "| question |") {
			continue
		}
		q := question{text: strings.TrimSpace(cells[1])}
		for _, span := range quoted.FindAllStringSubmatch(cells[2], -1) {
			q.commands = append(q.commands, span[1])
		}
		questions = append(questions, q)
	}
	return questions
}

// A section of the script starts with ## and the question. Its commands follow.
func asked(script string) (questions []question) {
	command := regexp.MustCompile(`^asks '[^']*' (notifier .*)$`)
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if text, found := strings.CutPrefix(line, "## "); found {
			questions = append(questions, question{text: text})
		} else if found := command.FindStringSubmatch(line); found != nil && len(questions) > 0 {
			last := &questions[len(questions)-1]
			last.commands = append(last.commands, found[1])
		}
	}
	return questions
}

// meets reports whether a command of the script is the one of the table, where words in capitals stand for
// others.
func meets(command, inTable string) bool {
	words, wanted := shellWords(command), shellWords(inTable)
	variable := regexp.MustCompile(`\b[A-Z][A-Z_]+\b`)
	if len(words) != len(wanted) {
		return false
	}
	for i, word := range wanted {
		pattern := variable.ReplaceAllLiteralString(regexp.QuoteMeta(word), `.+`)
		if !regexp.MustCompile("^" + pattern + "$").MatchString(words[i]) {
			return false
		}
	}
	return true
}

// unanswered returns the differences between the table and the script.
func unanswered(table, script []question) (faults []string) {
	for _, q := range table {
		if n := len(q.commands); n < 1 || n > mostCommands {
			faults = append(faults, q.text+" has not one or two commands")
		}
		at := slices.IndexFunc(script, func(s question) bool { return s.text == q.text })
		if at < 0 {
			faults = append(faults, q.text+" is not asked by the script")
			continue
		}
		for _, command := range q.commands {
			if !slices.ContainsFunc(script[at].commands, func(c string) bool { return meets(c, command) }) {
				faults = append(faults, q.text+" is not asked with "+command)
			}
		}
	}
	for _, s := range script {
		at := slices.IndexFunc(table, func(q question) bool { return s.text == q.text })
		if at < 0 {
			faults = append(faults, s.text+" is not in the table")
			continue
		}
		for _, command := range s.commands {
			if !slices.ContainsFunc(table[at].commands, func(c string) bool { return meets(command, c) }) {
				faults = append(faults, s.text+" is asked with another command, "+command)
			}
		}
	}
	return faults
}

// TestFirstLook: testdata/script/first_look.txtar runs the commands of every question in the table.
func TestFirstLook(t *testing.T) {
	t.Parallel()
	table, script := firstLook(t, read(t, "docs/runbook.md")), asked(read(t, "cmd/notifier/testdata/script/first_look.txtar"))
	if len(table) < 12 {
		t.Errorf("only %d questions are found in the table", len(table))
	}
	for _, fault := range unanswered(table, script) {
		t.Error(fault)
	}
}

// TestFirstLookSees: the comparison reports each kind of difference.
func TestFirstLookSees(t *testing.T) {
	t.Parallel()
	table := firstLook(t, "\n## First look\n| question | commands | more |\n| --- | --- | --- |\n"+
		"| What? | `notifier why EVENT_ID`, `notifier status` | |\n| Who? | `notifier status` | |\n| When? | the log | |\n## Next\n| A? | `b` | |\n")
	script := asked("## What?\nasks '^x' notifier why e-1\nasks 'y' notifier status -json\n## Where?\nasks 'z' notifier status\n")
	want := []string{
		"What? is not asked with notifier status", "Who? is not asked by the script", "When? has not one or two commands",
		"When? is not asked by the script", "What? is asked with another command, notifier status -json", "Where? is not in the table",
	}
	if got := unanswered(table, script); !slices.Equal(got, want) {
		t.Errorf("%q, expected %q", got, want)
	}
	if !meets("notifier limit set category/errors 5/30m -for 2h", "notifier limit set category/NAME LIMIT -for DURATION") {
		t.Error("a word in capitals does not stand for another one")
	}
}

// TestFirstTenMinutes: testdata/script/first_ten_minutes.txtar runs the prompted commands of the README in
// order. The README mentions every command of the script.
func TestFirstTenMinutes(t *testing.T) {
	t.Parallel()
	readme := read(t, "README.md")
	var typed []string
	command := regexp.MustCompile(`(?m)^(?:asks '[^']*' |exec sh -c 'exec )(notifier(?:-dev)? [^>\n]*)`)
	for _, found := range command.FindAllStringSubmatch(read(t, "cmd/notifier/testdata/script/first_ten_minutes.txtar"), -1) {
		typed = append(typed, strings.Join(shellWords(found[1]), " "))
		if name := strings.Join(shellWords(found[1])[:2], " "); !strings.Contains(readme, name) && !strings.Contains(readme, "./cmd/"+name) {
			t.Errorf("a newcomer types %s, which the README does not show", name)
		}
	}
	next := 0
	for _, found := range prompted.FindAllStringSubmatch(readme, -1) {
		shown := strings.Join(shellWords(strings.TrimPrefix(found[1], "go run ./cmd/")), " ")
		if !strings.HasPrefix(shown, "notifier") {
			continue
		}
		at := slices.Index(typed[next:], shown)
		if at < 0 {
			t.Errorf("the README shows %q, which is not typed after %q", shown, typed[:next])
			continue
		}
		next += at + 1
	}
	if next < 5 {
		t.Errorf("only %d commands of the README are found among %q", next, typed)
	}
}
