package main

import (
	"fmt"
	"strings"
)

// target is a row of the table of targets: a figure and its bound.
type target struct {
	name     string
	most     bool // the bound is a maximum
	measured string
	bound    string
	missed   bool
}

// met fills in the median and range of values, and sets missed if the median violates the bound.
func (t target) met(values []float64, bound float64, format string) target {
	t.measured = spread(format, values)
	if len(values) == 1 {
		t.measured = fmt.Sprintf(format, values[0])
	}
	limit := strings.TrimSuffix(fmt.Sprintf("%.2f", bound), "0")
	limit = strings.TrimSuffix(limit, ".0")
	t.bound, t.missed = "at least "+limit, median(values) < bound
	if t.most {
		t.bound, t.missed = "at most "+limit, median(values) > bound
	}
	return t
}

// targetTable returns the table of targets in Markdown.
func targetTable(targets []target) string {
	var text strings.Builder
	text.WriteString("| | measured | target | |\n| --- | --- | --- | --- |\n")
	for _, t := range targets {
		result := "met"
		if t.missed {
			result = "missed"
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s |\n", t.name, t.measured, t.bound, result)
	}
	return text.String()
}
