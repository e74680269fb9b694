package survival

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// measured holds the results of one round for one form.
type measured struct {
	admitted  int
	excess    int           // see the function excess
	forgotten int           // ids of admissions that were unknown at the end
	silence   time.Duration // longest time without a reply to a worker
	stall     time.Duration // from the new primary until all workers had a reply
}

// resultTable collects the results by scenario and form.
type resultTable struct {
	mu     sync.Mutex
	rounds map[[2]string][]measured
}

var results = resultTable{rounds: map[[2]string][]measured{}}

func (r *resultTable) add(scenario, form string, m measured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := [2]string{scenario, form}
	r.rounds[key] = append(r.rounds[key], m)
}

// column returns the smallest, median and largest value of one result over all rounds.
func column[T int | time.Duration](all []measured, of func(measured) T) string {
	values := make([]T, len(all))
	for i, m := range all {
		values[i] = of(m)
	}
	text := func(v T) any {
		if d, ok := any(v).(time.Duration); ok {
			return fmt.Sprintf("%.1f", d.Seconds())
		}
		return v
	}
	return fmt.Sprintf("%v / %v / %v", text(slices.Min(values)), text(median(values)), text(slices.Max(values)))
}

func (r *resultTable) print(out io.Writer) {
	if len(r.rounds) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "each: smallest / median / largest of the rounds; times in seconds")
	fmt.Fprintln(w, "scenario\tlimits\trounds\texcess\tids forgotten\twithout an answer\tstall")
	for _, s := range scenarios {
		for _, form := range forms {
			all := r.rounds[[2]string{s.name, form.name}]
			if len(all) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", s.name, form.name, len(all),
				column(all, func(m measured) int { return m.excess }),
				column(all, func(m measured) int { return m.forgotten }),
				column(all, func(m measured) time.Duration { return m.silence }),
				column(all, func(m measured) time.Duration { return m.stall }))
		}
	}
	_ = w.Flush()
}
