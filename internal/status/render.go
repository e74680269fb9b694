package status

import (
	"fmt"
	"io"
	"strings"
	"time"

	"notifier/internal/term"
)

// Section is one table of a State, which is rendered as text and as HTML.
type Section struct {
	ID      string // of the HTML element: conditions, limits, replicas, overrides, mute, sources, events
	Title   string
	Columns []Column
	Rows    []Row
	Note    string // below the table: "12 more are not shown"
}

// Column is the head of a column.
type Column struct {
	Name  string // upper case
	Right bool   // numbers, aligned on the right in HTML
}

// Row is one row.
type Row struct {
	Level Level // colours the row, unless it is empty or OK
	Cells []Cell
}

// Cell is the content of one cell, printable and at most 300 characters long.
type Cell struct {
	Text string
	Bar  float64 // 0 to 1, drawn in HTML as a bar behind the text; 0 draws nothing
}

// Sections returns the tables of a State: conditions that are not ok, limits, replicas, overrides. A table may
// have no rows.
func (s State) Sections() []Section {
	conditions := Section{
		ID: "conditions", Title: "Conditions", Columns: columns("CONDITION", "STATE", "SINCE", "MESSAGE"),
		Note: notShown(s.Omitted.Conditions),
	}
	for _, c := range s.Conditions {
		since := ""
		if !c.Since.IsZero() {
			since = span(s.Time.Sub(c.Since))
		}
		conditions.add(c.State, c.Type, string(c.State), since, c.Message)
	}
	replicas := Section{
		ID: "replicas", Title: "Replicas", Note: notShown(s.Omitted.Replicas),
		Columns: columns("REPLICA", "STATE", "HELD>", "SETTINGS", "VERSION", "SEEN"),
	}
	anySilent := false
	for _, r := range s.Replicas {
		level := Warn
		if r.State == ready {
			level = OK
		}
		anySilent = anySilent || r.State == silent
		seen := "now"
		if age := s.Time.Sub(r.Seen).Round(time.Second); age > 0 {
			seen = span(age) + " ago"
		}
		replicas.add(level, r.ID, r.State, fmt.Sprint(r.Held), r.Settings, r.Version, seen)
	}
	switch {
	case !anySilent:
		replicas.dropLastColumn()
	case s.refusesWrites:
		replicas.Note = "While Redis refuses writes, running workers are silent, too. " + replicas.Note
		replicas.Note = strings.TrimSpace(replicas.Note)
	}
	overrides := overrideSection("overrides", "Mutes and temporary limits", s.Overrides)
	overrides.Note = notShown(s.Omitted.Overrides)
	return []Section{conditions, s.limitSection(), replicas, overrides}
}

func (s State) limitSection() Section {
	section := limitSection(s.Limits, s.Time)
	section.Note = fmt.Sprintf("Counts cover the last hour, as of %s, and lag by up to two seconds.",
		s.Time.UTC().Format(time.RFC3339))
	if s.Omitted.Minutes > 0 {
		section.Note += fmt.Sprintf(" They leave out %d minutes with too many categories and sources.",
			s.Omitted.Minutes)
	}
	if s.Omitted.Events > 0 {
		section.Note += fmt.Sprintf(" %s of further categories count only in global.",
			term.Count(s.Omitted.Events, "event"))
	}
	if more := notShown(s.Omitted.Limits); more != "" {
		section.Note += " " + more
	}
	return section
}

func limitSection(limits []Limit, now time.Time) Section {
	section := Section{
		ID: "limits", Title: "Limits",
		Columns: columns("LIMIT", "USED>", "FREE IN>", "SENT 1H>", "DROPPED 1H>"),
	}
	for _, l := range limits {
		level, free := OK, ""
		if !l.FreeAt.IsZero() {
			level, free = Warn, l.wait(now)
		}
		section.add(level, l.Scope+" "+l.Limit, fmt.Sprintf("%d/%d", l.Used, l.Max), free,
			fmt.Sprint(l.Sent1h), fmt.Sprint(l.Dropped1h))
		section.Rows[len(section.Rows)-1].Cells[1].Bar = min(1, l.fullness())
	}
	return section
}

func overrideSection(id, title string, overrides []Override) Section {
	section := Section{ID: id, Title: title, Columns: columns("OVERRIDE", "UNTIL", "BY", "REASON")}
	for _, o := range overrides {
		what := strings.TrimSpace(o.Kind + " " + o.Name + " " + o.Limit)
		section.add(OK, what, o.Until.UTC().Format(time.RFC3339), o.By, o.Reason)
	}
	return section
}

// columns makes columns of names. A name that ends in ">" is of numbers.
func columns(names ...string) []Column {
	columns := make([]Column, len(names))
	for i, name := range names {
		text, right := strings.CutSuffix(name, ">")
		columns[i] = Column{Name: text, Right: right}
	}
	return columns
}

// add adds a row. An empty cell shows "-".
func (s *Section) add(level Level, texts ...string) {
	row := Row{Level: level}
	for _, text := range texts {
		if text == "" {
			text = "-"
		}
		row.Cells = append(row.Cells, Cell{Text: cut(text, maxMessage)})
	}
	s.Rows = append(s.Rows, row)
}

func (s *Section) dropLastColumn() {
	s.Columns = s.Columns[:len(s.Columns)-1]
	for i, row := range s.Rows {
		s.Rows[i].Cells = row.Cells[:len(row.Cells)-1]
	}
}

func notShown(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d more not shown.", n)
}

// WriteText writes the sentence, and each section that has rows.
func (s State) WriteText(out io.Writer, screen term.Screen) error {
	return writeText(out, screen, s.State, s.Summary, s.Sections())
}

func writeText(out io.Writer, screen term.Screen, level Level, sentence string, sections []Section) error {
	var text strings.Builder
	text.WriteString(paint(screen, level, term.Printable(sentence)) + "\n")
	for _, section := range sections {
		if len(section.Rows) > 0 {
			text.WriteString("\n")
			section.write(&text, screen)
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func (s Section) write(text *strings.Builder, screen term.Screen) {
	var plain strings.Builder
	table := term.NewTable(&plain)
	row := make([]any, len(s.Columns))
	for i, column := range s.Columns {
		row[i] = column.Name
	}
	table.Row(row...)
	for _, r := range s.Rows {
		for i, cell := range r.Cells {
			row[i] = cell.Text
		}
		table.Row(row...)
	}
	_ = table.Flush() // a strings.Builder never fails
	for i, line := range strings.Split(strings.TrimSuffix(plain.String(), "\n"), "\n") {
		if i > 0 {
			line = paint(screen, s.Rows[i-1].Level, line)
		}
		text.WriteString(line + "\n")
	}
	if s.Note != "" {
		text.WriteString(s.Note + "\n")
	}
}

func paint(screen term.Screen, level Level, text string) string {
	switch level {
	case Fail:
		return screen.Paint(term.Red, text)
	case Warn:
		return screen.Paint(term.Yellow, text)
	}
	return text
}
