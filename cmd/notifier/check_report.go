package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
)

// level is how much a finding matters.
type level string

// The levels. Only a failure changes the exit code.
const (
	levelOK   level = "ok"
	levelNote level = "note"
	levelWarn level = "warn"
	levelFail level = "fail"
)

// levelColour is how a terminal shows a level.
var levelColour = map[level]string{levelOK: green, levelNote: bold, levelWarn: yellow, levelFail: red}

// finding is one thing that was looked at.
type finding struct {
	level  level
	text   string
	advice string // what to do about it; may be empty
}

// findings collects what is found out about one subject. It is for one goroutine.
type findings struct{ list []finding }

func (f *findings) add(l level, advice, format string, arguments ...any) {
	f.list = append(f.list, finding{level: l, text: plain(fmt.Sprintf(format, arguments...)), advice: plain(advice)})
}

func (f *findings) ok(format string, arguments ...any) { f.add(levelOK, "", format, arguments...) }

func (f *findings) note(advice, format string, arguments ...any) {
	f.add(levelNote, advice, format, arguments...)
}

func (f *findings) warn(advice, format string, arguments ...any) {
	f.add(levelWarn, advice, format, arguments...)
}

func (f *findings) fail(advice, format string, arguments ...any) {
	f.add(levelFail, advice, format, arguments...)
}

func (f *findings) count(l level) int {
	n := 0
	for _, found := range f.list {
		if found.level == l {
			n++
		}
	}
	return n
}

// write writes the finding as a line for people: "warn  redis     ...".
func (f finding) write(out io.Writer, screen terminal, subject string) error {
	word := screen.paint(levelColour[f.level], fmt.Sprintf("%-4s", f.level))
	text := f.text
	if f.advice != "" {
		text += "; " + f.advice
	}
	_, err := fmt.Fprintf(out, "%s  %-8s  %s\n", word, subject, text)
	return err
}

// writeOrigins writes the settings as a table: those that somebody has set, or all.
func writeOrigins(out io.Writer, origins []origin, all bool) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	left := 0
	for _, o := range origins {
		if o.source == fromDefault && !all {
			left++
			continue
		}
		source := o.source
		if o.file != "" {
			source += " " + plain(o.file)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", o.name, o.shown(), source)
	}
	if err := table.Flush(); err != nil { // errors of the lines above come back here
		return err
	}
	if left > 0 {
		if _, err := fmt.Fprintf(out, "%s at the default; -all shows them\n", counted(left, "more setting")); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(out)
	return err
}

// checkJSON is what -json writes.
type checkJSON struct {
	OK       bool             `json:"ok"` // nothing has failed
	Settings []checkedSetting `json:"settings"`
	Checks   []checkedFinding `json:"checks"`
}

type checkedSetting struct {
	Name   string `json:"name"`
	Value  string `json:"value"` // as the lines show it
	Source string `json:"source"`
	File   string `json:"file,omitempty"`
}

type checkedFinding struct {
	Level   level  `json:"level"`
	Subject string `json:"subject"`
	Text    string `json:"text"`
	Advice  string `json:"advice,omitempty"`
}

func writeCheckJSON(out io.Writer, origins []origin, subjects []subject) error {
	answer := checkJSON{OK: true}
	for _, o := range origins {
		answer.Settings = append(answer.Settings, checkedSetting{Name: o.name, Value: o.shown(), Source: o.source, File: o.file})
	}
	for _, s := range subjects {
		for _, f := range s.findings.list {
			answer.OK = answer.OK && f.level != levelFail
			answer.Checks = append(answer.Checks, checkedFinding{Level: f.level, Subject: s.name, Text: f.text, Advice: f.advice})
		}
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // as the log
	encoder.SetIndent("", "  ")
	return encoder.Encode(answer)
}
