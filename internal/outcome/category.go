package outcome

import "strings"

// OtherCategories stands for the categories past the first ones, wherever their number is bounded: publishers
// choose the names.
const OtherCategories = "_other"

// CategoryName is the name under which a category is counted and shown. It is the category itself, but for
// one that could be taken for OtherCategories: _other, and the same with more underscores, have one
// underscore more. So no publisher can add to what is counted there, and no two categories have one name.
func CategoryName(category string) string {
	if looksOurs(category, 1) {
		return "_" + category
	}
	return category
}

// CategoryOf is the category with this name, the inverse of CategoryName. OtherCategories is no category's
// name, and is returned as it is.
func CategoryOf(name string) string {
	if looksOurs(name, 2) {
		return name[1:]
	}
	return name
}

// looksOurs reports whether a name is OtherCategories with at least so many underscores.
func looksOurs(name string, underscores int) bool {
	rest := strings.TrimLeft(name, "_")
	return rest == OtherCategories[1:] && len(name)-len(rest) >= underscores
}
