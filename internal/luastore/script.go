//go:build !production

package luastore

import (
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// process answers EVAL and EVALSHA.
func (s *Store) process(args []any) (any, error) {
	texts := make([]string, len(args))
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			texts[i] = arg
		case *string:
			texts[i] = *arg
		case int:
			texts[i] = strconv.Itoa(arg)
		case int64:
			texts[i] = strconv.FormatInt(arg, 10)
		default:
			return nil, fmt.Errorf("argument %d is a %T, expected a string or a whole number", i, arg)
		}
	}
	name := strings.ToUpper(texts[0])
	if name != "EVAL" && name != "EVALSHA" {
		return nil, unknownCommand(name)
	}
	if len(texts) < 3 {
		return nil, replyError("ERR wrong number of arguments for '" + name + "' command")
	}
	keys, err := strconv.Atoi(texts[2])
	if err != nil || keys < 0 || keys > len(texts)-3 {
		return nil, replyError("ERR Number of keys can't be greater than number of args, or negative")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	script, found := s.scripts[texts[1]]
	if name == "EVAL" {
		if script, err = s.compile(texts[1]); err != nil {
			return nil, err
		}
	} else if !found {
		return nil, replyError("NOSCRIPT No matching script. Please use EVAL.")
	}
	return s.run(script, texts[3:3+keys], texts[3+keys:])
}

// compile returns the function of a script, and keeps it for EVALSHA.
func (s *Store) compile(source string) (*lua.LFunction, error) {
	sum := sha1.Sum([]byte(source)) // the name that Redis gives to a script; nothing relies on its strength
	name := hex.EncodeToString(sum[:])
	if script, found := s.scripts[name]; found {
		return script, nil
	}
	script, err := s.lua.LoadString(source)
	if err != nil {
		return nil, replyError("ERR Error compiling script (new function): " + err.Error())
	}
	s.scripts[name] = script
	return script, nil
}

// run runs a script. A script that fails has changed what it has changed until then, as in Redis.
func (s *Store) run(script *lua.LFunction, keys, args []string) (any, error) {
	for name, texts := range map[string][]string{"KEYS": keys, "ARGV": args} {
		table := s.lua.CreateTable(len(texts), 0)
		for _, text := range texts {
			table.Append(lua.LString(text))
		}
		s.lua.G.Global.RawSetString(name, table)
	}
	if err := s.lua.CallByParam(lua.P{Fn: script, NRet: 1, Protect: true}); err != nil {
		s.lua.SetTop(0)
		return nil, replyError("ERR " + failure(err))
	}
	result := s.lua.Get(-1)
	s.lua.SetTop(0)
	return toReply(result)
}

// failure is what went wrong in a script, without Lua's stack.
func failure(err error) string {
	var raised *lua.ApiError
	if errors.As(err, &raised) && raised.Object != nil {
		return raised.Object.String()
	}
	return err.Error()
}

// newState returns a state with the libraries that a script has in Redis, as far as the scripts need them. No script can leave
// a global variable to the next.
func (s *Store) newState() *lua.LState {
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	for name, open := range map[string]lua.LGFunction{
		lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable, lua.StringLibName: lua.OpenString, lua.MathLibName: lua.OpenMath,
	} {
		l.Push(l.NewFunction(open))
		l.Push(lua.LString(name))
		l.Call(1, 0)
	}
	functions := l.NewTable()
	functions.RawSetString("call", l.NewFunction(func(l *lua.LState) int { return s.called(l, true) }))
	functions.RawSetString("pcall", l.NewFunction(func(l *lua.LState) int { return s.called(l, false) }))
	functions.RawSetString("status_reply", l.NewFunction(func(l *lua.LState) int {
		table := l.NewTable()
		table.RawSetString("ok", l.CheckAny(1))
		l.Push(table)
		return 1
	}))
	l.G.Global.RawSetString("redis", functions)
	protect := func(what string) *lua.LFunction {
		return l.NewFunction(func(l *lua.LState) int {
			l.RaiseError("Script attempted to %s global variable '%s'", what, l.Get(2).String())
			return 0
		})
	}
	strict := l.NewTable()
	strict.RawSetString("__newindex", protect("create"))
	strict.RawSetString("__index", protect("access nonexistent"))
	l.G.Global.Metatable = strict
	return l
}

// called answers redis.call, which raises errors, and redis.pcall, which returns them.
func (s *Store) called(l *lua.LState, raise bool) int {
	s.args = s.args[:0]
	for i := 1; i <= l.GetTop(); i++ {
		switch arg := l.Get(i).(type) {
		case lua.LString:
			s.args = append(s.args, string(arg))
		case lua.LNumber:
			s.args = append(s.args, number(float64(arg)))
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	reply, err := s.command(s.args)
	if err != nil && raise {
		l.Error(lua.LString(err.Error()), 1)
	}
	if err != nil {
		table := l.NewTable()
		table.RawSetString("err", lua.LString(err.Error()))
		l.Push(table)
		return 1
	}
	l.Push(toLua(l, reply))
	return 1
}

// number writes a number as Redis does: whole ones with all their digits.
func number(n float64) string {
	if whole := int64(n); float64(whole) == n && whole != math.MaxInt64 && whole != math.MinInt64 {
		return strconv.FormatInt(whole, 10)
	}
	if math.IsInf(n, 0) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(n, 'g', -1, 64), "+"))
	}
	return strconv.FormatFloat(n, 'g', 17, 64)
}

// toLua converts the reply of a command. A nil becomes false, as in Redis.
func toLua(l *lua.LState, reply any) lua.LValue {
	switch reply := reply.(type) {
	case int:
		return lua.LNumber(reply)
	case string:
		return lua.LString(reply)
	case []any:
		table := l.CreateTable(len(reply), 0)
		for _, field := range reply {
			table.Append(toLua(l, field))
		}
		return table
	default:
		return lua.LFalse
	}
}

// toReply converts what a script returns. Numbers lose their fraction, and a list ends at its first nil, as in Redis.
func toReply(value lua.LValue) (any, error) {
	switch value := value.(type) {
	case lua.LNumber:
		return int64(value), nil
	case lua.LString:
		return string(value), nil
	case lua.LBool:
		if value {
			return int64(1), nil
		}
		return nil, nil
	case *lua.LTable:
		if err, is := value.RawGetString("err").(lua.LString); is {
			return nil, replyError(err)
		}
		if status, is := value.RawGetString("ok").(lua.LString); is {
			return string(status), nil
		}
		list := make([]any, 0, value.Len())
		for i := 1; value.RawGetInt(i) != lua.LNil; i++ {
			field, err := toReply(value.RawGetInt(i))
			if err != nil {
				return nil, err
			}
			list = append(list, field)
		}
		return list, nil
	default:
		return nil, nil
	}
}
