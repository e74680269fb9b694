package rig

import (
	"fmt"
	"os"
	"strings"
)

// Rewrite replaces what stands in a file between the two comments of a name.
func Rewrite(path, name, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	replaced, err := Between(string(content), name, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(replaced), 0o644)
}

// Between is a text with another one between the two comments of a name.
func Between(content, name, text string) (string, error) {
	begin, end := "<!-- "+name+" -->", "<!-- /"+name+" -->"
	before, rest, found := strings.Cut(content, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("there is no %s ... %s", begin, end)
	}
	return before + begin + text + end + after, nil
}
