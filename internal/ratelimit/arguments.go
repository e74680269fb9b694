package ratelimit

import (
	"slices"
	"strconv"
)

// admitArguments returns the keys and the arguments of admit.lua for a batch. Texts are passed by reference: an argument is
// an interface, which would cost each of them an allocation.
func (l *Limiter) admitArguments(batch []Request) (keyNames []string, arguments []any) {
	keyNames = []string{l.keys.global(), l.keys.inFlight(), l.keys.sent(), l.keys.categories()}
	arguments = make([]any, len(l.limits), len(l.limits)+5*len(batch)+2)
	copy(arguments, l.limits)

	// Each distinct category is one key. The numbers of their rules come first, then the sources; the events then refer to
	// either.
	origins := originsOf(batch)
	for _, o := range origins.categories {
		keyNames = append(keyNames, l.keys.category(o.category))
		rule, overridden := l.ruleOf[o.category]
		if !overridden {
			rule = 2
		}
		arguments = append(arguments, strconv.Itoa(rule))
	}
	arguments = append(arguments, strconv.Itoa(len(origins.sources)))
	for _, o := range origins.sources {
		arguments = append(arguments, o.of, indexEntry(o.category, o.source))
	}

	arguments = append(arguments, strconv.Itoa(len(batch)))
	members := make([]string, len(batch))
	for i, request := range batch {
		members[i] = origins.of[i].member(request.ID)
		arguments = append(arguments, &members[i])
	}
	for i := range batch {
		arguments = append(arguments, &batch[i].Delivery)
	}
	for i := range batch {
		arguments = append(arguments, &origins.of[i].number)
	}
	if slices.ContainsFunc(batch, func(request Request) bool { return request.Cost != 1 }) {
		for _, request := range batch {
			arguments = append(arguments, strconv.Itoa(request.Cost))
		}
	}
	return keyNames, arguments
}

// batchOrigins are the distinct categories and the distinct sources of a batch, in the order in which they come.
type batchOrigins struct {
	categories []*batchOrigin
	sources    []*batchOrigin
	of         []*batchOrigin // of each event: one of the categories or of the sources
}

// batchOrigin is an origin with the number by which the events of a batch refer to it.
type batchOrigin struct {
	origin
	number string
	of     string // a source's: the number of its category
}

func originsOf(batch []Request) batchOrigins {
	origins := batchOrigins{of: make([]*batchOrigin, len(batch))}
	byCategory := make(map[string]*batchOrigin, 32)
	for i, request := range batch {
		o, seen := byCategory[request.Category]
		if !seen {
			o = &batchOrigin{origin: newOrigin(request.Category, ""), number: strconv.Itoa(len(byCategory) + 1)}
			byCategory[request.Category] = o
			origins.categories = append(origins.categories, o)
		}
		origins.of[i] = o
	}
	type pair struct{ category, source string }
	var bySource map[pair]*batchOrigin // few publishers have sources
	for i, request := range batch {
		if request.Source == "" {
			continue
		}
		named := pair{request.Category, request.Source}
		o, seen := bySource[named]
		if !seen {
			o = &batchOrigin{origin: newOrigin(request.Category, sourceName(request.Source)), of: byCategory[request.Category].number}
			o.number = strconv.Itoa(len(origins.categories) + len(origins.sources) + 1)
			origins.sources = append(origins.sources, o)
			if bySource == nil {
				bySource = map[pair]*batchOrigin{}
			}
			bySource[named] = o
		}
		origins.of[i] = o
	}
	return origins
}
