package recent

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// DeniedSubject is the subject that a server does not let its client publish to, out of an error that the connection reports;
// empty: it is another error. The server says so in a message of its own, and never answers the request.
func DeniedSubject(err error) string {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	_, quoted, found := strings.Cut(err.Error(), "for Publish to ")
	if !found {
		return ""
	}
	prefix, err := strconv.QuotedPrefix(quoted)
	if err != nil {
		return ""
	}
	subject, _ := strconv.Unquote(prefix) // a quoted prefix can be unquoted
	return subject
}

// writes reports whether a recorder publishes to a subject.
func (p Place) writes(subject string) bool {
	return strings.HasPrefix(subject, p.Subject+".") || subject == "$JS.API.STREAM.INFO."+p.Stream || subject == "$JS.API.STREAM.CREATE."+p.Stream
}

// readSubject is where a reader asks for records.
func (p Place) readSubject() string { return "$JS.API.DIRECT.GET." + p.Stream }
