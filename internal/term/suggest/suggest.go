// Package suggest finds the known word nearest to an unknown one: a command, a setting, a category.
package suggest

import (
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
)

// longest bounds the compared bytes of a word. The time grows with the product of two lengths, and words
// typed by hand are shorter.
const longest = 128

// Nearest is the known word that differs the least from word, where it differs by so few characters that it
// may be meant: by a third of the longer one's, but at least by two of a word of four or more, and by one of
// a shorter one. Capital and small letters count as the same. Of several that are as near the first one
// counts. Nothing is near an empty word, or one of more than 128 bytes.
func Nearest(word string, known []string) (string, bool) { return nearest(word, known, allowed) }

// Within is like Nearest, for words that differ by up to most characters.
func Within(word string, known []string, most int) (string, bool) {
	return nearest(word, known, func(_, _ string) int { return most })
}

func nearest(word string, known []string, allowed func(a, b string) int) (string, bool) {
	word = strings.ToLower(word)
	if word == "" || len(word) > longest {
		return "", false
	}
	found, least := "", longest+1
	for _, candidate := range known {
		if candidate == "" || len(candidate) > longest {
			continue
		}
		lower := strings.ToLower(candidate)
		most := allowed(word, lower)
		if lengths := utf8.RuneCountInString(word) - utf8.RuneCountInString(lower); max(lengths, -lengths) > most {
			continue // lower bound of the difference
		}
		if distance := levenshtein.ComputeDistance(word, lower); distance <= most && distance < least {
			found, least = candidate, distance
		}
	}
	return found, least <= longest
}

// allowed is by how many characters two words may differ for one to be meant by the other.
func allowed(a, b string) int {
	length := max(utf8.RuneCountInString(a), utf8.RuneCountInString(b))
	if length < 4 {
		return 1
	}
	return max(2, length/3)
}
