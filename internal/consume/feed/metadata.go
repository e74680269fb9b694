package feed

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// metadata describes a delivered message.
type metadata struct {
	delivered uint64    // deliveries, including this one
	sequence  uint64    // in the stream
	published time.Time // when the stream stored it
	pending   uint64    // messages after it for the consumer
}

// parseMetadata reads the acknowledgement subject of a message, which has one of these forms (ADR-15 of NATS).
// Further words are ignored.
//
//	$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING
//	$JS.ACK.DOMAIN.ACCOUNT.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING
//
// nats.go's Msg.Metadata takes four times as long, which in a storm counts (BenchmarkMetadata).
func parseMetadata(subject string) (metadata, error) {
	before := 4 // words before DELIVERED
	switch n := strings.Count(subject, ".") + 1; {
	case n >= 11:
		before = 6
	case n != 9:
		return metadata{}, fmt.Errorf("%d words, expected 9, or 11 or more", n)
	}
	if !strings.HasPrefix(subject, ackPrefix) {
		return metadata{}, fmt.Errorf("expected it to begin with %s", ackPrefix)
	}
	rest := subject
	for range before {
		rest = rest[strings.IndexByte(rest, '.')+1:]
	}
	var numbers [5]uint64 // from DELIVERED on; the time in nanoseconds since 1970
	for i := range numbers {
		var word string
		word, rest, _ = strings.Cut(rest, ".")
		var isNumber bool
		if numbers[i], isNumber = parseNumber(word); !isNumber {
			return metadata{}, fmt.Errorf("word %q, expected a whole number", word)
		}
	}
	return metadata{
		delivered: numbers[0], sequence: numbers[1],
		published: time.Unix(0, int64(numbers[3])), pending: numbers[4],
	}, nil
}

// parseNumber reads a number of digits alone, of at most 63 bits.
func parseNumber(digits string) (n uint64, ok bool) {
	for i := range len(digits) {
		digit := uint64(digits[i] - '0')
		if digit > 9 || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = n*10 + digit
	}
	return n, digits != ""
}
