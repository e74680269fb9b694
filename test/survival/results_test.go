package survival

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"text/tabwriter"
	"time"
)

// measured is what one round has shown of one form.
type measured struct {
	admitted  int
	excess    int           // above the limit in the fullest window; below 0: so many slots were never given out
	forgotten int           // ids of admissions that were unknown at the end
	silence   time.Duration // the longest time for which a replica had no answer
	stall     time.Duration // from when there was a primary again until all replicas had an answer
}

// resultTable collects what the rounds have shown, by scenario and form.
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

// column gives one number of all rounds: smallest, median and largest.
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
