//go:build !production

package luastore

import (
	"math"
	"strconv"
)

const (
	errNotFloat = replyError("ERR value is not a valid float")
	errNotRange = replyError("ERR min or max is not a float")
	errSyntax   = replyError("ERR syntax error")
)

// noSet stands for the set of a key that does not exist.
var noSet = newSortedSet()

// setOf returns the sorted set of a key; an empty one if there is none.
func (s *Store) setOf(key string) (*sortedSet, error) {
	v := s.find(key)
	if v == nil {
		return noSet, nil
	}
	if v.set == nil {
		return nil, errWrongType
	}
	return v.set, nil
}

// zadd knows no options: the scripts use none.
func (s *Store) zadd(args []string) (any, error) {
	greater := len(args) > 1 && args[1] == "GT" // a member that is there gets a greater score only
	if greater {
		args = append([]string{args[0]}, args[2:]...)
	}
	if len(args)%2 == 0 {
		return nil, errSyntax
	}
	scores := make([]float64, 0, len(args)/2)
	for i := 1; i < len(args); i += 2 {
		score, err := strconv.ParseFloat(args[i], 64)
		if err != nil || math.IsNaN(score) {
			return nil, errNotFloat
		}
		scores = append(scores, score)
	}
	set, err := s.setOf(args[0])
	if err != nil {
		return nil, err
	}
	if set == noSet {
		set = newSortedSet()
		s.put(args[0], &value{set: set})
	}
	added := 0
	for i, score := range scores {
		if before, found := set.scores[args[2+2*i]]; greater && found && before >= score {
			continue
		}
		if set.add(args[2+2*i], score) {
			added++
		}
	}
	return added, nil
}

func (s *Store) zrem(args []string) (any, error) {
	set, err := s.setOf(args[0])
	if err != nil || set == noSet {
		return 0, err
	}
	removed := 0
	for _, member := range args[1:] {
		if set.remove(member) {
			removed++
		}
	}
	s.dropIfEmpty(args[0], s.keys[args[0]])
	return removed, nil
}

func (s *Store) zcard(args []string) (any, error) {
	set, err := s.setOf(args[0])
	if err != nil {
		return nil, err
	}
	return set.len(), nil
}

func (s *Store) zcount(args []string) (any, error) {
	set, from, to, err := s.byScore(args[0], args[1], args[2])
	if set == nil {
		return nil, err
	}
	return to - from, nil
}

func (s *Store) zscore(args []string) (any, error) {
	set, err := s.setOf(args[0])
	if err != nil {
		return nil, err
	}
	if score, found := set.scores[args[1]]; found {
		return number(score), nil
	}
	return nil, nil
}

func (s *Store) zmscore(args []string) (any, error) {
	set, err := s.setOf(args[0])
	if err != nil {
		return nil, err
	}
	scores := make([]any, len(args)-1)
	for i, member := range args[1:] {
		if score, found := set.scores[member]; found {
			scores[i] = number(score)
		}
	}
	return scores, nil
}
