//go:build !production

package luastore

import (
	"math"
	"strconv"
	"strings"
)

// query is which entries a command of ranges asks for.
type query struct {
	byScore, reverse, withScores bool
	skip, most                   int // entries of the range; most -1: all
}

func (s *Store) zrange(args []string) (any, error) { return s.entries(args, query{most: -1}) }

func (s *Store) zrevrange(args []string) (any, error) {
	return s.entries(args, query{most: -1, reverse: true})
}

func (s *Store) zrangebyscore(args []string) (any, error) {
	return s.entries(args, query{most: -1, byScore: true})
}

func (s *Store) zrevrangebyscore(args []string) (any, error) {
	return s.entries(args, query{most: -1, byScore: true, reverse: true})
}

// options completes a query with the arguments behind the range.
func (q query) options(args []string) (query, error) {
	limited := false
	for len(args) > 0 {
		switch option := strings.ToUpper(args[0]); {
		case option == "WITHSCORES":
			q.withScores = true
		case option == "BYSCORE":
			q.byScore = true
		case option == "REV":
			q.reverse = true
		case option == "LIMIT" && len(args) > 2:
			var err, err2 error
			q.skip, err = strconv.Atoi(args[1])
			q.most, err2 = strconv.Atoi(args[2])
			if err != nil || err2 != nil {
				return q, errNotWhole
			}
			args, limited = args[2:], true
		default:
			return q, errSyntax
		}
		args = args[1:]
	}
	if limited && !q.byScore {
		return q, replyError("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX")
	}
	return q, nil
}

// entries replies a range of a sorted set: members, each with its score behind it where that is asked for.
func (s *Store) entries(args []string, q query) (any, error) {
	q, err := q.options(args[3:])
	if err != nil {
		return nil, err
	}
	first, last := args[1], args[2]
	if q.byScore && q.reverse {
		first, last = last, first
	}
	var set *sortedSet
	var from, to int
	if q.byScore {
		set, from, to, err = s.byScore(args[0], first, last)
	} else {
		set, from, to, err = s.byRank(args[0], first, last, q.reverse)
	}
	if err != nil {
		return nil, err
	}
	if q.skip < 0 {
		from = to
	}
	if q.reverse {
		to = max(from, to-max(0, q.skip))
	} else {
		from = min(to, from+max(0, q.skip))
	}
	n := to - from
	if q.most >= 0 {
		n = min(n, q.most)
	}
	fields := make([]any, 0, 2*n)
	for i := range n {
		e := set.entries[from:to][i]
		if q.reverse {
			e = set.entries[to-1-i]
		}
		fields = append(fields, e.member)
		if q.withScores {
			fields = append(fields, number(e.score))
		}
	}
	return fields, nil
}

// byScore returns the places of a range of scores in the set of a key.
func (s *Store) byScore(key, least, most string) (set *sortedSet, from, to int, err error) {
	low, err := parseBound(least)
	if err != nil {
		return nil, 0, 0, err
	}
	high, err := parseBound(most)
	if err != nil {
		return nil, 0, 0, err
	}
	if set, err = s.setOf(key); err != nil {
		return nil, 0, 0, err
	}
	from, to = set.between(low, high)
	return set, from, to, nil
}

// parseBound reads one end of a range of scores: 5, (5, -inf, +inf.
func parseBound(text string) (bound, error) {
	text, open := strings.CutPrefix(text, "(")
	score, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(score) {
		return bound{}, errNotRange
	}
	return bound{score, open}, nil
}

// byRank returns the places of a range of ranks in the set of a key. Negative ranks count from the end, and those of a reverse
// range from the highest score.
func (s *Store) byRank(key, first, last string, reverse bool) (set *sortedSet, from, to int, err error) {
	from, err = strconv.Atoi(first)
	if err != nil {
		return nil, 0, 0, errNotWhole
	}
	to, err = strconv.Atoi(last)
	if err != nil {
		return nil, 0, 0, errNotWhole
	}
	if set, err = s.setOf(key); err != nil {
		return nil, 0, 0, err
	}
	n := set.len()
	if from < 0 {
		from = max(0, from+n)
	}
	if to < 0 {
		to += n
	}
	to = min(to+1, n)
	if from >= to {
		return set, 0, 0, nil
	}
	if reverse {
		from, to = n-to, n-from
	}
	return set, from, to, nil
}

func (s *Store) zrank(args []string) (any, error) {
	set, err := s.setOf(args[0])
	if err != nil {
		return nil, err
	}
	if _, found := set.scores[args[1]]; !found {
		return nil, nil
	}
	return set.rank(args[1]), nil
}

func (s *Store) zremrangebyscore(args []string) (any, error) {
	set, from, to, err := s.byScore(args[0], args[1], args[2])
	return s.removed(args[0], set, from, to, err)
}

func (s *Store) zremrangebyrank(args []string) (any, error) {
	set, from, to, err := s.byRank(args[0], args[1], args[2], false)
	return s.removed(args[0], set, from, to, err)
}

// removed removes a range of the set of a key, and replies how many entries it had.
func (s *Store) removed(key string, set *sortedSet, from, to int, err error) (any, error) {
	if err != nil || from == to {
		return 0, err
	}
	set.removeAt(from, to)
	s.dropIfEmpty(key, s.keys[key])
	return to - from, nil
}
