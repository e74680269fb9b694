package markup

import (
	"regexp"
	"strings"
)

// In a markdown block, <!channel>, <@U0123> and <#C0123> are mentions as in mrkdwn. In code they are inert, and
// an escaped "<" would be shown as "&lt;". So markdown skips code, but only code that every parser recognizes:
// otherwise a mention could hide in text that only looks like code to this package.

var (
	mentionStart = regexp.MustCompile(`<\\*[!@#]`)
	anyFence     = regexp.MustCompile("```|~~~")
	fenceOpens   = regexp.MustCompile("^```[A-Za-z0-9_+#.-]*\r?$")
	fenceCloses  = regexp.MustCompile("^```\r?$")
	// anyTag matches a possible start of HTML. Fences have no meaning inside HTML.
	anyTag = regexp.MustCompile(`<[!?/A-Za-z]`)
	// loneReturn matches a carriage return that ends a line by itself, for some parsers.
	loneReturn = regexp.MustCompile("\r([^\n]|$)")
	// inlineLine matches a line in which backticks can only delimit code: each opening one follows a space, and
	// no link, table, HTML or escape can contain one of a pair.
	inlineLine = regexp.MustCompile("^[^`<|\\[\\\\\r]*((^|[ \t])`[^`|\\\\\r]+`[^`<|\\[\\\\\r]*)*\r?$")
)

// markdown escapes the start of each mention that is not in code.
func markdown(text string) string {
	if !mentionStart.MatchString(text) {
		return text
	}
	lines := strings.Split(text, "\n")
	fenced, ok := fencedLines(lines)
	frontMatter := strings.HasPrefix(text, "---")
	if !ok || frontMatter || loneReturn.MatchString(text) {
		return escapeMentions(text)
	}
	inlineCode := true
	for i, line := range lines {
		inlineCode = inlineCode && (fenced[i] || inlineLine.MatchString(line))
	}
	if inlineCode {
		return text // inlineLine has no "<" outside of code
	}
	for i, line := range lines {
		if !fenced[i] {
			lines[i] = escapeMentions(line)
		}
	}
	return strings.Join(lines, "\n")
}

func escapeMentions(text string) string {
	return mentionStart.ReplaceAllStringFunc(text, func(start string) string { return "&lt;" + start[1:] })
}

// fencedLines reports which lines belong to fenced code blocks. ok is false if parsers may disagree.
func fencedLines(lines []string) (fenced []bool, ok bool) {
	fenced = make([]bool, len(lines))
	open, fences, tags := false, false, false // tags are those outside of fences
	for i, line := range lines {
		fenced[i] = open
		switch {
		case !anyFence.MatchString(line):
			tags = tags || !open && anyTag.MatchString(line)
		case !open && fenceOpens.MatchString(line), open && fenceCloses.MatchString(line):
			open = !open
			fenced[i], fences = true, true
		default:
			return nil, false
		}
	}
	return fenced, !open && !(fences && tags)
}
