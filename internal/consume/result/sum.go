package result

// Sum is what a batch has of one kind: the results with the same outcome and reason, of events of one
// category and source.
type Sum struct {
	Kind
	Results []*Result // one or more, in the order in which they were settled
}

// Kind is what those who count events tell apart.
type Kind struct{ Outcome, Reason, Category, Source string }

// Kind is what the result is counted as.
func (r *Result) Kind() Kind { return Kind{r.Outcome, r.Reason, r.Event.Category, r.Event.Source} }

// SumUp groups a batch, in the order in which kinds come first. In a storm a batch has few of them, so
// whoever counts does so once for each, and not once for each event.
func SumUp(batch []*Result) []Sum {
	sums := make([]Sum, 0, 16)
	places := make(map[Kind]int, 16)
	for _, r := range batch {
		kind := r.Kind()
		place, known := places[kind]
		if !known {
			place = len(sums)
			places[kind] = place
			sums = append(sums, Sum{Kind: kind})
		}
		sums[place].Results = append(sums[place].Results, r)
	}
	return sums
}
