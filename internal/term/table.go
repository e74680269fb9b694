package term

import (
	"fmt"
	"io"
	"text/tabwriter"
	"unicode/utf8"
)

// columnGap is the number of blanks between two columns.
const columnGap = 3

// Table writes rows as aligned columns when it is flushed.
type Table struct {
	out     io.Writer
	numbers bool
	rows    [][]string
}

// NewTable is a table of words: each column is aligned on the left.
func NewTable(out io.Writer) *Table { return &Table{out: out} }

// NewNumberTable is a table of names and numbers: the first column is aligned left, all others right. Lines
// are indented by columnGap.
func NewNumberTable(out io.Writer) *Table { return &Table{out: out, numbers: true} }

// Row adds a row. Unprintable characters become question marks.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		row[i] = Printable(fmt.Sprint(cell))
	}
	t.rows = append(t.rows, row)
}

// Flush writes the rows. The error is out's.
func (t *Table) Flush() error {
	if t.numbers {
		return t.flushNumbers()
	}
	table := tabwriter.NewWriter(t.out, 0, 0, columnGap, ' ', 0)
	for _, row := range t.rows {
		for i, cell := range row {
			if i > 0 {
				_, _ = io.WriteString(table, "\t")
			}
			_, _ = io.WriteString(table, cell)
		}
		_, _ = io.WriteString(table, "\n")
	}
	return table.Flush() // errors of the writes above come back here
}

func (t *Table) flushNumbers() error {
	width := 0
	for _, row := range t.rows {
		width = max(width, utf8.RuneCountInString(row[0]))
	}
	table := tabwriter.NewWriter(t.out, 0, 0, columnGap, ' ', tabwriter.AlignRight)
	for _, row := range t.rows {
		_, _ = fmt.Fprintf(table, "%-*s\t", width, row[0])
		for _, cell := range row[1:] {
			_, _ = io.WriteString(table, cell+"\t")
		}
		_, _ = io.WriteString(table, "\n")
	}
	return table.Flush() // errors of the writes above come back here
}
