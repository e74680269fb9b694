package result

// Sum holds the results of one kind in a batch.
type Sum struct {
	Kind    Kind
	Results []*Result // one or more, in the order in which they were settled
}

// Kind holds the values by which events are counted.
type Kind struct{ Outcome, Reason, Category, Source string }

// Kind returns the result's kind.
func (r *Result) Kind() Kind { return Kind{r.Outcome, r.Reason, r.Event.Category, r.Event.Source} }

// SumUp groups a batch by kind, in the order of the first of each kind. In a storm a batch has few kinds, so
// counting costs little.
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
