package letters

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"notifier/internal/event"
	"notifier/internal/outcome"
)

// NotOursError is why a message of the stream is no letter that a worker wrote, so that it is not deleted.
type NotOursError struct{ Why string }

func (n *NotOursError) Error() string { return n.Why }

// Bin deletes letters of a stream for good.
type Bin struct {
	stream  *Stream
	subject string // letters are kept below it
}

// Bin prepares to delete letters that workers keep at <subject>.<category>. It fails where the stream is not
// the one that stores them, or does not allow messages to be deleted.
func (s *Stream) Bin(subject string) (*Bin, error) {
	subjects := s.stream.CachedInfo().Config.Subjects
	stores := func(wide string) bool { return event.Covers(wide, subject+".>") }
	switch {
	case !slices.ContainsFunc(subjects, stores):
		return nil, fmt.Errorf("stream %s does not store %s.>, where dead letters go (DEAD_LETTER_SUBJECT); "+
			"its subjects are %q, and nothing was deleted", s.Name(), subject, subjects)
	case !s.deletable():
		return nil, fmt.Errorf("stream %s does not allow messages to be deleted", s.Name())
	}
	return &Bin{s, subject}, nil
}

// deletable reports whether the stream allows messages to be deleted.
func (s *Stream) deletable() bool {
	config := s.stream.CachedInfo().Config
	return !config.DenyDelete && !config.Sealed
}

// Delete deletes a letter. One that is already gone by then counts as deleted. The error is a *NotOursError
// for a message that is no letter; any other concerns the connection or the server.
func (b *Bin) Delete(ctx context.Context, letter *Letter) error {
	if why := b.foreign(letter); why != "" {
		return &NotOursError{why}
	}
	return b.stream.remove(ctx, letter.Seq)
}

// foreign returns why a message is not a letter of ours; empty: it is one. Others can publish into the
// stream, too: what they put there is theirs to delete.
func (b *Bin) foreign(letter *Letter) string {
	switch {
	case !strings.HasPrefix(letter.kept, b.subject+"."):
		return fmt.Sprintf("it is no dead letter: its subject %.80q is not below %s", letter.kept, b.subject)
	case !slices.Contains(outcome.DeadReasons(), letter.Reason):
		return fmt.Sprintf("it is no dead letter: its %s is %.80q, which is no reason of one",
			outcome.HeaderReason, letter.Reason)
	case letter.header.Get(outcome.HeaderTime) == "":
		return "it is no dead letter: it has no " + outcome.HeaderTime
	}
	return ""
}
