package steering

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"notifier/internal/pattern"
	"notifier/internal/ratelimit"
	"notifier/internal/term"
)

// Bounds of an order. lua/steer.lua has MostOrders, too.
const (
	Shortest      = time.Second
	Longest       = 31 * 24 * time.Hour
	MostOrders    = 1000
	LongestReason = 200 // characters
	LongestBy     = 100 // characters
)

// Kind is the kind of an order.
type Kind string

// The kinds, as the names of fields begin with them.
const (
	Mute  Kind = "mute"  // matching events are dropped
	Limit Kind = "limit" // a scope has another limit
)

// Order is one override that an operator set.
type Order struct {
	Kind   Kind      `json:"kind"`
	Target string    `json:"name"` // Mute: a pattern of categories. Limit: a scope, as ParseScope takes it
	Limit  string    `json:"limit,omitempty"`
	Since  time.Time `json:"since"` // by the clock of Redis, as Until
	Until  time.Time `json:"until"`
	By     string    `json:"by"`               // a name
	Reason string    `json:"reason,omitempty"` // empty: none was given

	limit ratelimit.Limit
	value string // as stored. Empty unless it was read from Redis
}

// Describe names the order: "mute of errors", "limit 20/30m of group/team-a".
func (o Order) Describe() string {
	if o.Kind == Mute {
		return "mute of " + o.Target
	}
	return "limit " + o.Limit + " of " + o.Target
}

// field is its name in the hash.
func (o Order) field() string { return string(o.Kind) + " " + o.Target }

// content is the part of its value that lua/steer.lua does not look at.
type content struct {
	By     string `json:"by"`
	Reason string `json:"reason,omitempty"`
	Limit  string `json:"limit,omitempty"`
}

// NewMute returns an order to drop events that match a pattern. The error names the invalid pattern, author or
// reason.
func NewMute(categories, by, reason string) (Order, error) {
	return checked(Order{Kind: Mute, Target: categories, By: by, Reason: reason})
}

// NewLimit returns an order to apply a limit to a scope. The error names the invalid scope, limit, author or
// reason.
func NewLimit(scope, limit, by, reason string) (Order, error) {
	return checked(Order{Kind: Limit, Target: scope, Limit: limit, By: by, Reason: reason})
}

func checked(o Order) (Order, error) {
	switch o.Kind {
	case Mute:
		if err := pattern.Check(o.Target); err != nil {
			return Order{}, fmt.Errorf("pattern %.200q %w", o.Target, err)
		}
		if o.Limit != "" {
			return Order{}, errors.New("a mute with a limit, expected none")
		}
	case Limit:
		if _, err := ParseScope(o.Target); err != nil {
			return Order{}, err
		}
		limit, err := ratelimit.ParseLimit(o.Limit)
		if err != nil {
			return Order{}, fmt.Errorf("limit: %w", err)
		}
		o.limit, o.Limit = limit, limit.String()
	default:
		return Order{}, fmt.Errorf("kind %.20q, expected mute or limit", o.Kind)
	}
	if err := checkText("reason", o.Reason, LongestReason); err != nil {
		return Order{}, err
	}
	return o, checkText("author", o.By, LongestBy)
}

// checkText checks a text that operators read.
func checkText(name, text string, longest int) error {
	switch {
	case term.Printable(text) != text:
		return fmt.Errorf("%s %.200q, expected one line of printable text", name, text)
	case utf8.RuneCountInString(text) > longest:
		return fmt.Errorf("%s has %d characters, expected at most %d", name, utf8.RuneCountInString(text),
			longest)
	}
	return nil
}

// The forms of a scope.
const (
	GlobalScope    = "global"
	GroupPrefix    = "group/"
	CategoryPrefix = "category/"
)

// ParseScope reads "global", "group/NAME" or "category/NAME". The error names the fault and the
// expected form.
func ParseScope(text string) (ratelimit.Scope, error) {
	if text == GlobalScope {
		return ratelimit.Scope{}, nil
	}
	if name, found := strings.CutPrefix(text, GroupPrefix); found {
		if err := ratelimit.CheckGroup(name); err != nil {
			return ratelimit.Scope{}, fmt.Errorf("group %.200q %w", name, err)
		}
		return ratelimit.Scope{Group: name}, nil
	}
	if name, found := strings.CutPrefix(text, CategoryPrefix); found {
		if pattern.HasWildcard(name) {
			return ratelimit.Scope{}, fmt.Errorf(
				"category %.200q is a pattern, expected the name of one category, such as errors", name)
		}
		if err := pattern.Check(name); err != nil {
			return ratelimit.Scope{}, fmt.Errorf("category %.200q %w", name, err)
		}
		return ratelimit.Scope{Category: name}, nil
	}
	return ratelimit.Scope{}, fmt.Errorf(
		"scope %.200q, expected global, group/NAME such as group/team-a, or category/NAME such as category/errors",
		text)
}

// valueShape is "<since> <until> <the rest>".
var valueShape = regexp.MustCompile(`(?s)^(\d{1,16}) (\d{1,16}) (.*)$`)

// longestContent bounds the JSON of an order in bytes: each character may be escaped.
const longestContent = 8 << 10

// decodeOrder reads a field of the hash. The error names the fault.
func decodeOrder(field, value string) (Order, error) {
	kind, target, _ := strings.Cut(field, " ")
	parts := valueShape.FindStringSubmatch(value)
	if parts == nil || len(parts[3]) > longestContent {
		return Order{}, fmt.Errorf("%.60q, expected two times in microseconds and a JSON object", value)
	}
	var rest content
	if err := json.Unmarshal([]byte(parts[3]), &rest); err != nil {
		return Order{}, fmt.Errorf("%.60q, expected a JSON object: %w", parts[3], err)
	}
	o, err := checked(Order{Kind: Kind(kind), Target: target, Limit: rest.Limit, By: rest.By,
		Reason: rest.Reason})
	if err != nil {
		return Order{}, err
	}
	o.Since, o.Until, o.value = microTime(parts[1]), microTime(parts[2]), value
	if length := o.Until.Sub(o.Since); length <= 0 || length > Longest {
		return Order{}, fmt.Errorf("it lasts %s, expected up to %s", term.ShortDuration(length),
			term.ShortDuration(Longest))
	}
	return o, nil
}

func microTime(digits string) time.Time {
	micros, _ := strconv.ParseInt(digits, 10, 64) // of digits alone, and not too many
	return time.UnixMicro(micros).UTC()
}
