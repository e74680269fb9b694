package feed

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// metadata is what the server says about a message that it delivers.
type metadata struct {
	delivered uint64    // how often, this time included
	sequence  uint64    // in the stream
	published time.Time // when the stream stored it
	pending   uint64    // how many the consumer has after it
}

// parseMetadata reads the acknowledgement subject of a message, which has one of these forms (ADR-15 of NATS;
// what follows the last word named here is ignored):
//
//	$JS.ACK.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING
//	$JS.ACK.DOMAIN.ACCOUNT.STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER-SEQUENCE.TIME.PENDING
//
// nats.go reads them, too, and makes three more allocations for each message.
func parseMetadata(subject string) (metadata, error) {
	const short, long = 9, 11
	var words [long]string
	n := 0
	for rest, more := subject, true; more && n < len(words); n++ {
		words[n], rest, more = strings.Cut(rest, ".")
	}
	if (n != short && n != long) || !strings.HasPrefix(subject, ackPrefix) {
		return metadata{}, fmt.Errorf("%d words, expected %d or %d or more", n, short, long)
	}
	fromDelivered := words[n-5 : n]
	var numbers [5]uint64 // as from DELIVERED on; the time in nanoseconds since 1970
	for i := range numbers {
		number, err := strconv.ParseUint(fromDelivered[i], 10, 63)
		if err != nil {
			return metadata{}, fmt.Errorf("word %q, expected a whole number", fromDelivered[i])
		}
		numbers[i] = number
	}
	return metadata{
		delivered: numbers[0], sequence: numbers[1],
		published: time.Unix(0, int64(numbers[3])), pending: numbers[4],
	}, nil
}
