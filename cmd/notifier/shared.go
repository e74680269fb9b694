package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v3"

	cmdline "notifier/internal/cli"
	"notifier/internal/event"
	"notifier/internal/settings"
)

// interrupted replaces a cancellation with a readable error and returns other errors unchanged.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return err
}

// categoryFlag returns the value of -category, or "" if unset. It ignores invalid settings, because the
// command later reports all of them together.
func categoryFlag(cmd *cli.Command) (string, error) {
	category := cmd.String("category")
	if category == "" && cmd.IsSet("category") {
		return "", cmdline.Usage(cmd, `-category "", expected a category such as errors`)
	}
	loaded, err := settings.Load("NATS_SUBJECT")
	if err != nil {
		return category, nil
	}
	return category, repeatsPrefix(loaded.NATS.Pattern, category)
}

// repeatsPrefix rejects a category, or a pattern of categories, that is named by its whole subject:
// notify.errors in place of errors.
func repeatsPrefix(pattern event.Pattern, category string) error {
	meant, found := pattern.Repeated(category)
	if !found {
		return nil
	}
	return &cmdline.UsageError{Text: fmt.Sprintf(
		"category %q repeats the prefix of NATS_SUBJECT %q (did you mean %q?)", category, pattern, meant)}
}
