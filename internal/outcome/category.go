package outcome

import "strings"

// OtherCategories stands for all categories past a bound. Publishers choose the names, so every list of them has one.
const OtherCategories = "_other"

// CategoryName returns the name under which a category is counted and shown: the category itself, unless it looks
// like OtherCategories. A category _other, or the same with more underscores, gets one more underscore. So no
// publisher can add to that count, and no two categories share a name.
func CategoryName(category string) string {
	if looksOurs(category, 1) {
		return "_" + category
	}
	return category
}

// CategoryOf is the inverse of CategoryName. It returns OtherCategories, which names no category, unchanged.
func CategoryOf(name string) string {
	if looksOurs(name, 2) {
		return name[1:]
	}
	return name
}

// looksOurs reports whether a name is OtherCategories with this number of underscores or more.
func looksOurs(name string, underscores int) bool {
	rest := strings.TrimLeft(name, "_")
	return rest == OtherCategories[1:] && len(name)-len(rest) >= underscores
}
