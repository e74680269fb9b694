package event

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Pattern is a NATS subject with at least one wildcard. The last one marks the category.
// The zero Pattern matches no subject. Patterns are immutable and safe for concurrent use.
type Pattern struct {
	subject  string
	tokens   []string
	category int // index in tokens of the last wildcard
}

// ParsePattern reads a subscription subject such as "notify.>" or "svc.*.alerts". A wildcard is a whole
// token: "*" stands for one token, ">" for one or more and only at the end.
//
// It returns an error if subject has no wildcard, an empty token, whitespace, a control character or invalid
// UTF-8, has ">" before its end, or starts with "$", which NATS reserves.
func ParsePattern(subject string) (Pattern, error) {
	if subject == "" {
		return Pattern{}, errors.New(`subject is empty, expected one with a wildcard such as "notify.>"`)
	}
	if !utf8.ValidString(subject) {
		return Pattern{}, errors.New("subject is not valid UTF-8, expected a NATS subject")
	}
	if strings.ContainsFunc(subject, spaceOrControl) {
		return Pattern{}, fmt.Errorf("subject %q has whitespace or a control character, expected none", subject)
	}
	if subject[0] == '$' {
		return Pattern{}, fmt.Errorf(
			"subject %q is reserved by NATS, expected one that does not start with $",
			subject,
		)
	}
	p := Pattern{subject: subject, tokens: strings.Split(subject, "."), category: -1}
	for i, token := range p.tokens {
		switch token {
		case "":
			return Pattern{}, fmt.Errorf("subject %q has an empty token, expected text between all dots", subject)
		case ">":
			if i != len(p.tokens)-1 {
				return Pattern{}, fmt.Errorf(
					"subject %q has > before its end, expected > as the last token only",
					subject,
				)
			}
			p.category = i
		case "*":
			p.category = i
		}
	}
	if p.category < 0 {
		return Pattern{}, fmt.Errorf(
			"subject %q has no wildcard, expected > or * as a whole token to take the category from",
			subject,
		)
	}
	return p, nil
}

// String returns the subject as it was given to ParsePattern.
func (p Pattern) String() string { return p.subject }

// Category returns the part of subject that the last wildcard matches: with "notify.>" it is "errors.db" of
// "notify.errors.db". It returns false when subject does not match, which includes every subject with an
// empty token. The category shares memory with subject; nothing is allocated.
func (p Pattern) Category(subject string) (string, bool) {
	category, rest := "", subject
	for i, want := range p.tokens {
		if want == ">" {
			if !wholeTokens(rest) {
				return "", false
			}
			return rest, true
		}
		token, after, more := strings.Cut(rest, ".")
		if token == "" || want != "*" && token != want || more != (i < len(p.tokens)-1) {
			return "", false
		}
		if i == p.category {
			category = token
		}
		rest = after
	}
	return category, category != ""
}

// Subject is the inverse of Category: the subject to publish to for a category. It returns an error if the
// pattern has a second wildcard, which the category does not fill, or if the category cannot replace its
// wildcard.
func (p Pattern) Subject(category string) (string, error) {
	tokens := slices.Clone(p.tokens)
	if len(tokens) > 0 {
		if slices.Contains(tokens[:p.category], "*") {
			return "", fmt.Errorf("%q has a second wildcard, which a category does not fill; "+
				"expected a whole subject", p.subject)
		}
		tokens[p.category] = category
	}
	subject := strings.Join(tokens, ".")
	got, matches := p.Category(subject)
	if !matches || got != category || strings.ContainsAny(subject, "*>") ||
		strings.ContainsFunc(subject, spaceOrControl) {
		return "", fmt.Errorf(
			"category %q gives no subject for %q; expected a category without wildcards and whitespace, "+
				"of as many tokens as the last wildcard takes (* one, > one or more)",
			category, p.subject,
		)
	}
	return subject, nil
}

// Gives reports whether some subject that p matches has a category that is, or matches, categories: a name,
// or a pattern of package pattern. The zero Pattern, an unset NATS_SUBJECT, rules out none.
func (p Pattern) Gives(categories string) bool {
	return len(p.tokens) == 0 || Overlap(p.tokens[p.category], categories)
}

// Repeated returns the category that was meant by a user who wrote the whole subject instead: errors for
// notify.errors if p is notify.>. A pattern that begins with a wildcard has no prefix to repeat.
func (p Pattern) Repeated(categories string) (meant string, found bool) {
	if len(p.tokens) == 0 || p.category == 0 || p.tokens[0] == "*" {
		return "", false
	}
	return p.Category(categories)
}

// wholeTokens reports whether s is one or more tokens, none of them empty.
func wholeTokens(s string) bool {
	return s != "" && s[0] != '.' && s[len(s)-1] != '.' && !strings.Contains(s, "..")
}

// spaceOrControl reports whether r is whitespace or a control character. A subject may contain neither.
func spaceOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
