//go:build !production

package luastore

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// command answers one command of a script: with a whole number (int), a string, a list of those, or nil. args is used again by
// the next command, so nothing may keep it.
func (s *Store) command(args []string) (any, error) {
	if len(args) == 0 {
		return nil, replyError("ERR Please specify at least one argument for this redis.call()")
	}
	c, found := commands[args[0]]
	if !found {
		if c, found = commands[strings.ToUpper(args[0])]; !found {
			return nil, unknownCommand(args[0])
		}
	}
	if len(args)-1 < c.least || c.most > 0 && len(args)-1 > c.most {
		return nil, replyError("ERR wrong number of arguments for '" + strings.ToLower(args[0]) + "' command")
	}
	return c.answer(s, args[1:])
}

// command is one that scripts may call, and how many arguments it takes; most 0: any number.
type command struct {
	least, most int
	answer      func(s *Store, args []string) (any, error)
}

var commands = map[string]command{
	"TIME":             {0, 0, (*Store).time},
	"EXISTS":           {1, 0, (*Store).exists},
	"DEL":              {1, 0, (*Store).del},
	"PEXPIREAT":        {2, 2, (*Store).pexpireat},
	"PEXPIRETIME":      {1, 1, (*Store).pexpiretime},
	"HSET":             {3, 0, (*Store).hset},
	"HGET":             {2, 2, (*Store).hget},
	"HEXISTS":          {2, 2, (*Store).hexists},
	"HMGET":            {2, 0, (*Store).hmget},
	"HDEL":             {2, 0, (*Store).hdel},
	"HKEYS":            {1, 1, (*Store).hkeys},
	"HLEN":             {1, 1, (*Store).hlen},
	"ZADD":             {3, 0, (*Store).zadd},
	"ZREM":             {2, 0, (*Store).zrem},
	"ZCARD":            {1, 1, (*Store).zcard},
	"ZCOUNT":           {3, 3, (*Store).zcount},
	"ZSCORE":           {2, 2, (*Store).zscore},
	"ZMSCORE":          {2, 0, (*Store).zmscore},
	"ZRANK":            {2, 2, (*Store).zrank},
	"ZRANGE":           {3, 0, (*Store).zrange},
	"ZREVRANGE":        {3, 4, (*Store).zrevrange},
	"ZRANGEBYSCORE":    {3, 0, (*Store).zrangebyscore},
	"ZREVRANGEBYSCORE": {3, 0, (*Store).zrevrangebyscore},
	"ZREMRANGEBYSCORE": {3, 3, (*Store).zremrangebyscore},
	"ZREMRANGEBYRANK":  {3, 3, (*Store).zremrangebyrank},
}

func (s *Store) time([]string) (any, error) {
	return []any{strconv.FormatInt(s.now/1e6, 10), strconv.FormatInt(s.now%1e6, 10)}, nil
}

func (s *Store) exists(args []string) (any, error) {
	n := 0
	for _, key := range args {
		if s.find(key) != nil {
			n++
		}
	}
	return n, nil
}

func (s *Store) del(args []string) (any, error) {
	n := 0
	for _, key := range args {
		if s.find(key) != nil {
			delete(s.keys, key)
			n++
		}
	}
	return n, nil
}

func (s *Store) pexpireat(args []string) (any, error) {
	at, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return nil, errNotWhole
	}
	v := s.find(args[0])
	if v == nil {
		return 0, nil
	}
	if at <= s.now/1000 { // Redis removes at once what is to expire now
		delete(s.keys, args[0])
	}
	v.expires = at
	return 1, nil
}

const errNotWhole = replyError("ERR value is not an integer or out of range")

func (s *Store) pexpiretime(args []string) (any, error) {
	switch v := s.find(args[0]); {
	case v == nil:
		return -2, nil
	case v.expires == 0:
		return -1, nil
	default:
		return int(v.expires), nil
	}
}

// hashOf returns the hash of a key, or nil.
func (s *Store) hashOf(key string) (map[string]string, error) {
	v := s.find(key)
	if v == nil {
		return nil, nil
	}
	if v.hash == nil {
		return nil, errWrongType
	}
	return v.hash, nil
}

func (s *Store) hset(args []string) (any, error) {
	if len(args)%2 == 0 {
		return nil, replyError("ERR wrong number of arguments for 'hset' command")
	}
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	if hash == nil {
		hash = map[string]string{}
		s.put(args[0], &value{hash: hash})
	}
	before := len(hash)
	for i := 1; i < len(args); i += 2 {
		hash[args[i]] = args[i+1]
	}
	return len(hash) - before, nil
}

func (s *Store) hget(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if text, found := hash[args[1]]; found {
		return text, nil
	}
	return nil, err
}

func (s *Store) hexists(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	if _, found := hash[args[1]]; found {
		return 1, nil
	}
	return 0, nil
}

func (s *Store) hmget(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	texts := make([]any, len(args)-1)
	for i, field := range args[1:] {
		if text, found := hash[field]; found {
			texts[i] = text
		}
	}
	return texts, nil
}

func (s *Store) hdel(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if hash == nil {
		return 0, err
	}
	before := len(hash)
	for _, field := range args[1:] {
		delete(hash, field)
	}
	n := before - len(hash)
	s.dropIfEmpty(args[0], s.keys[args[0]])
	return n, nil
}

// hkeys returns the fields in alphabetical order; Redis promises none.
func (s *Store) hkeys(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	fields := make([]any, 0, len(hash))
	for _, field := range slices.Sorted(maps.Keys(hash)) {
		fields = append(fields, field)
	}
	return fields, nil
}

func (s *Store) hlen(args []string) (any, error) {
	hash, err := s.hashOf(args[0])
	if err != nil {
		return nil, err
	}
	return len(hash), nil
}
