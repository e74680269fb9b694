package event

import "strings"

// Covers reports whether a NATS subscription takes every subject that another one takes.
func Covers(wide, narrow string) bool {
	wides, narrows := strings.Split(wide, "."), strings.Split(narrow, ".")
	for i, token := range wides {
		switch {
		case token == ">":
			return len(narrows) > i
		case i >= len(narrows) || narrows[i] == ">":
			return false
		case token != "*" && token != narrows[i]:
			return false
		}
	}
	return len(wides) == len(narrows)
}

// Overlap reports whether there is a subject that two NATS subscriptions both match.
func Overlap(a, b string) bool {
	_, overlap := Common(a, b)
	return overlap
}

// Common returns the subscription that matches exactly the subjects that a and b both match. It returns false
// if no subject matches both.
func Common(a, b string) (string, bool) {
	first, second := strings.Split(a, "."), strings.Split(b, ".")
	var common []string
	for i := range min(len(first), len(second)) {
		switch {
		case first[i] == ">":
			return strings.Join(append(common, second[i:]...), "."), true
		case second[i] == ">":
			return strings.Join(append(common, first[i:]...), "."), true
		case first[i] == "*":
			common = append(common, second[i])
		case second[i] == "*" || first[i] == second[i]:
			common = append(common, first[i])
		default:
			return "", false
		}
	}
	return strings.Join(common, "."), len(first) == len(second)
}
